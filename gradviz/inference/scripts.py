"""What the forwards of modules may do between one of their calls and another: each way
through their code.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from gradviz.graph.origins import Registered
from gradviz.inference.order import InferredCall

_DEEPEST = 6
_SYNTAX = ("", "if", "else", "end", "return")
_ONE = frozenset(("add", "sub", "mul", "div", "pow"))
"""What code calls so is one operation."""
MOST = 12
"""Ways through forwards that are tried, and modules of a list that are looked at."""
UNKNOWN = 1.0
"""What it costs that a function of which nothing is known made an operation."""


class Item(NamedTuple):
    """What may have made an operation: a call, or the module without parameters inside
    it, and what the code says: `name` is "?" for anything.
    """

    call: InferredCall | None
    silent: int | None
    name: str
    cost: float = UNKNOWN


class Way(NamedTuple):
    """One way through a forward, from one thing to another."""

    items: Sequence[Item]
    passed: int = 0  # calls of modules with parameters that did not come


@dataclass(slots=True)
class _Callees:
    """The modules that one step may call: those without parameters, and whether there
    are others.
    """

    silent: list[int] = field(default_factory=list)
    has_called: bool = False


class _Read(NamedTuple):
    """A step of a forward, with the modules that it may call."""

    callees: _Callees | None
    name: str


End: TypeAlias = int | str | None
"""A module that is called, a parameter that is worked with, or the end of a forward."""


def keys_of(path: str) -> list[str]:
    """How a forward may name what it holds under a path."""
    parts = path.split(".")
    return [path, ".".join([*parts[:-1], "*"]), ".".join("*" * len(parts))]


class Scripts:
    """What the forwards of all modules do, step by step."""

    def __init__(self, modules: Sequence[Registered], called: Iterable[int]) -> None:
        self._modules, self._called = modules, set(called)
        self._inside: dict[int, list[int]] = {}
        for i, module in enumerate(modules):
            if module.parent is not None:
                self._inside.setdefault(module.parent, []).append(i)
        self._steps: dict[int, list[_Read]] = {}
        self._places: dict[int, dict[str, list[int]]] = {}

    def between(self, call: InferredCall, before: End, after: End) -> list[Way]:
        """What a call may do after one thing and before another; [] where its code does
        not tell.
        """
        module = self._modules[call.module]
        if module.base and call.module not in self._inside:
            name = f"{module.base} {'begins' if before is None else 'ends'}"
            return [Way([Item(call, None, name)])]
        if module.steps is None:
            return []
        steps = self._read(call.module)
        starts = self._places_of(call.module, before, -1)
        ends = self._places_of(call.module, after, len(steps))
        if isinstance(before, str) and before:
            starts = [_after(steps, start) for start in starts]
        if not starts or not ends:
            return []
        return self._ways(call, _pairs(starts, ends, len(steps)), before, after)

    def _ways(
        self, call: InferredCall, pairs: Sequence[range], before: End, after: End
    ) -> list[Way]:
        ways = (self._way(call, pair, before, after) for pair in pairs)
        return [way for way in ways if way is not None]

    def as_registered(self, call: InferredCall, before: End, after: End) -> Way:
        """What a call may do whose code does not tell."""
        first = before if isinstance(before, int) else -1
        last = after if isinstance(after, int) else len(self._modules)
        anything = Item(call, None, "?")
        items = [anything]
        inside = self._inside.get(call.module, [])
        for child in inside[bisect(inside, first) : bisect(inside, last)]:
            if child not in self._called:
                items += [*self._silent(call, child, 0), anything]
        return Way(items)

    # -- reading -------------------------------------------------------------------

    def _read(self, module: int) -> list[_Read]:
        """The steps of a module, with the modules that they may call."""
        if module in self._steps:
            return self._steps[module]
        written = self._modules[module].steps or ()
        places: dict[str, list[int]] = {}
        for i, (path, _) in enumerate(written):
            places.setdefault(path, []).append(i)
        places.pop("", None)
        callees: dict[str, _Callees] = {}
        for child in self._inside.get(module, ()):
            keys = [key for key in keys_of(self._modules[child].key) if key in places]
            if keys:
                known = callees.setdefault(keys[0], _Callees())
                if child in self._called:
                    known.has_called = True
                else:
                    known.silent.append(child)
        self._places[module] = places
        self._steps[module] = [_Read(callees.get(path), name) for path, name in written]
        return self._steps[module]

    def _places_of(self, module: int, what: End, unknown: int) -> list[int]:
        """The steps that call a module, or work with a parameter."""
        places = self._places[module]
        if isinstance(what, int):
            keys = keys_of(self._modules[what].key)
            return next((places[key] for key in keys if key in places), [])
        found: set[int] = set()
        for key in keys_of(what)[:2] if what else ():
            for path in places:
                if path == key or path.startswith(f"{key}."):
                    found.update(places[path])
        return sorted(found) or [unknown]

    # -- ways ----------------------------------------------------------------------

    def _way(
        self, call: InferredCall, span: range, before: End, after: End
    ) -> Way | None:
        """What comes between two steps; None where no way leads from one to the other."""
        steps = self._steps[call.module]
        is_whole = span.stop == len(steps)
        first = steps[span.start].callees if span.start >= 0 else None
        last = None if is_whole else steps[span.stop].callees
        trail = _Trail()
        if isinstance(before, int) and first is not last:
            trail.items += self._some(call, first, before, None)
        if not self._follow(call, trail, span) and not is_whole:
            return None
        if not is_whole:
            trail.leave()
        if first is last and isinstance(before, int):  # a loop through a list
            turn = trail.items
            trail.items = [*turn, *self._some(call, first, before, after), *turn]
        elif isinstance(after, int):
            trail.items += self._some(call, last, None, after)
        return Way(trail.items, trail.passed)

    def _follow(self, call: InferredCall, trail: _Trail, span: range) -> bool:
        """Go through the steps between two; says whether the second one is reached."""
        steps = self._steps[call.module]
        place = span.start + 1
        while place < span.stop:
            callees, name = steps[place]
            if callees is not None:
                trail.passed += callees.has_called
                trail.items += self._some(call, callees, None, None)
            elif name not in _SYNTAX:
                trail.items.append(Item(call, None, name))
            elif trail.blocks or name == "if":
                trail.branch(name)
            elif name == "else":
                place = _end_of(steps, place)
            elif name == "return":
                return False
            place += 1
        return True

    def _some(
        self, call: InferredCall, callees: _Callees | None, before: End, after: End
    ) -> Iterator[Item]:
        """What those without parameters of a list do, between two of it."""
        silent = callees.silent if callees is not None else []
        start = bisect(silent, before) if isinstance(before, int) else 0
        end = bisect(silent, after) if isinstance(after, int) else len(silent)
        for child in silent[start:end][:MOST]:
            yield from self._silent(call, child, 0)

    def _silent(self, call: InferredCall, module: int, depth: int) -> Iterator[Item]:
        """What a module without parameters makes."""
        record = self._modules[module]
        if record.base and module not in self._inside:
            if record.steps is None:
                yield Item(call, module, record.base)
        elif record.steps is None or depth > _DEEPEST:
            yield Item(call, module, "?")
        else:
            for callees, name in self._read(module):
                for child in callees.silent if callees is not None else ():
                    yield from self._silent(call, child, depth + 1)
                if callees is None and name not in _SYNTAX:
                    yield Item(call, module, name)


@dataclass(slots=True)
class _Block:
    """A branch on a way through a forward: where its items begin, and those of the
    other branch.
    """

    first: int
    other: int
    returns: bool = False


class _Trail:
    """A way through a forward as it grows."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.passed = 0
        self.blocks: list[_Block] = []

    def branch(self, name: str) -> None:
        """Begin or end a branch. What returned is not on the way."""
        if name == "if":
            self.blocks.append(_Block(len(self.items), len(self.items)))
        elif name == "return":
            self.blocks[-1].returns = True
        elif name:
            block = self.blocks[-1]
            if block.returns:
                del self.items[block.other :]
            block.other, block.returns = len(self.items), False
            if name == "end":
                self.blocks.pop()

    def leave(self) -> None:
        """Arrive inside branches: the other ones are not on the way."""
        for block in reversed(self.blocks):
            del self.items[block.first : block.other]


def _pairs(starts: Sequence[int], ends: Sequence[int], length: int) -> list[range]:
    """From where to where, shortest first; where it is never behind, around a call."""
    pairs = [range(start, end) for start in starts for end in ends if start < end]
    again = [range(starts[-1], length), range(-1, ends[0])]
    return sorted(pairs, key=len)[:MOST] or again


def _after(steps: Sequence[_Read], place: int) -> int:
    """The last step of an operation that works with a parameter: what the parameter is
    made into comes after it.
    """
    if place >= 0 and steps[place].name:
        return place - 1
    following = steps[place + 1 : place + 2]
    return place + any(step.name in _ONE for step in following)


def _end_of(steps: Sequence[_Read], place: int) -> int:
    """Where the branches end between which "else" stands."""
    depth = 1
    while depth:
        place += 1
        depth += {"if": 1, "end": -1}.get(steps[place].name, 0)
    return place
