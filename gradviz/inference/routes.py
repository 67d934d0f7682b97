"""What the forwards of modules may do between one anchor and the next: each route
through their code.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from gradviz.graph.origins import Registered
from gradviz.inference.calls import InferredCall
from gradviz.inference.steps import SYNTAX, keys_of

_DEEPEST = 6
_SINGLE = frozenset(("add", "sub", "mul", "div", "pow"))
"""What code calls so is one operation."""
MOST = 12
"""ForwardRoutes that are tried, and modules of a list that are looked at."""
UNKNOWN = 1.0
"""What it costs that a function of which nothing is known made an operation."""


class Candidate(NamedTuple):
    """What may have made an operation: a call, or the module without parameters inside
    it, by what the code calls `name`; "?" for anything.
    """

    call: InferredCall | None
    module: int | None
    name: str
    cost: float = UNKNOWN


class Route(NamedTuple):
    """What comes on one route, in order."""

    candidates: Sequence[Candidate]
    skipped: int = 0  # calls of modules with parameters that did not come


Boundary: TypeAlias = int | str | None
"""Where a route begins or ends: at a module that is called, at a parameter that is worked
with, or with the forward.
"""


@dataclass(slots=True)
class _Callees:
    """The modules that one step may call: those without parameters, and whether there
    are others.
    """

    plain: list[int] = field(default_factory=list)
    has_called: bool = False


class _ResolvedStep(NamedTuple):
    """A step of a forward, with the modules that it may call."""

    callees: _Callees | None
    name: str


class ForwardRoutes:
    """The routes through the forwards of all modules. `called`: those with anchors."""

    def __init__(self, modules: Sequence[Registered], called: Iterable[int]) -> None:
        self._modules, self._called = modules, set(called)
        self._inside: dict[int, list[int]] = {}
        for i, module in enumerate(modules):
            if module.parent is not None:
                self._inside.setdefault(module.parent, []).append(i)
        self._steps: dict[int, list[_ResolvedStep]] = {}
        self._places: dict[int, dict[str, list[int]]] = {}

    def between(
        self, call: InferredCall, before: Boundary, after: Boundary
    ) -> list[Route]:
        """What a call may do after one thing and before another; [] where its code does
        not tell.
        """
        module = self._modules[call.module]
        if self._is_torchs(call.module):
            end = "begins" if before is None else "ends"
            return [Route([Candidate(call, None, f"{module.base} {end}")])]
        steps = self._read(call.module)
        starts = self._places_of(call.module, before, -1)
        ends = self._places_of(call.module, after, len(steps))
        if isinstance(before, str) and before:
            starts = [_after(steps, start) for start in starts]
        if not starts or not ends:
            return []
        spans = _spans(starts, ends, len(steps))
        routes = (self._route(call, span, before, after) for span in spans)
        return [route for route in routes if route is not None]

    def _is_torchs(self, module: int) -> bool:
        """Whether a module is torch's and calls no other: its class says what it does."""
        return bool(self._modules[module].base) and module not in self._inside

    # -- reading -------------------------------------------------------------------

    def _read(self, module: int) -> list[_ResolvedStep]:
        """The steps of a module, with the modules that they may call."""
        if module in self._steps:
            return self._steps[module]
        written, inside = self._modules[module].steps, self._inside.get(module, ())
        if written is None:  # as registered, and anything between
            keys = (self._modules[child].key for child in inside)
            written = (("", "?"), *((path, "?") for key in keys for path in (key, "")))
        places: dict[str, list[int]] = {}
        for i, (path, _) in enumerate(written):
            places.setdefault(path, []).append(i)
        places.pop("", None)
        callees: dict[str, _Callees] = {}
        for child in inside:
            names = keys_of(self._modules[child].key)
            name = next((name for name in names if name in places), None)
            if name is None:
                continue
            known = callees.setdefault(name, _Callees())
            if child in self._called:
                known.has_called = True
            else:
                known.plain.append(child)
        self._places[module] = places
        self._steps[module] = [
            _ResolvedStep(callees.get(path), name) for path, name in written
        ]
        return self._steps[module]

    def _places_of(self, module: int, what: Boundary, unknown: int) -> list[int]:
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

    # -- routes --------------------------------------------------------------------

    def _route(
        self, call: InferredCall, span: range, before: Boundary, after: Boundary
    ) -> Route | None:
        """What comes between two steps; None where no route leads from one to the other."""
        steps = self._steps[call.module]
        is_whole = span.stop == len(steps)
        first = steps[span.start].callees if span.start >= 0 else None
        last = None if is_whole else steps[span.stop].callees
        candidates: list[Candidate] = []
        if isinstance(before, int) and first is not last:
            candidates += self._some(call, first, before, None)
        skipped = depth = 0  # depth of branches that are open
        for callees, name in steps[span.start + 1 : span.stop]:
            if callees is not None:
                skipped += callees.has_called
                candidates += self._some(call, callees, None, None)
            elif name not in SYNTAX:
                candidates.append(Candidate(call, None, name))
            elif name == "return" and not depth:
                if not is_whole:
                    return None
                break
            else:
                depth = max(0, depth + (name == "if") - (name == "end"))
        if first is last and isinstance(before, int):  # a loop through a list
            middle = self._some(call, first, before, after)
            candidates = [*candidates, *middle, *candidates]
        elif isinstance(after, int):
            candidates += self._some(call, last, None, after)
        return Route(candidates, skipped)

    def _some(
        self,
        call: InferredCall,
        callees: _Callees | None,
        before: Boundary,
        after: Boundary,
    ) -> Iterator[Candidate]:
        """What those without parameters of a list do, between two of it."""
        plain = callees.plain if callees is not None else []
        start = bisect(plain, before) if isinstance(before, int) else 0
        end = bisect(plain, after) if isinstance(after, int) else len(plain)
        for child in plain[start:end][:MOST]:
            yield from self._plain(call, child, 0)

    def _plain(
        self, call: InferredCall, module: int, depth: int
    ) -> Iterator[Candidate]:
        """What a module without parameters makes."""
        record = self._modules[module]
        if self._is_torchs(module):
            if record.steps is None:
                yield Candidate(call, module, record.base)
        elif record.steps is None or depth > _DEEPEST:
            yield Candidate(call, module, "?")
        else:
            for callees, name in self._read(module):
                for child in callees.plain if callees is not None else ():
                    yield from self._plain(call, child, depth + 1)
                if callees is None and name not in SYNTAX:
                    yield Candidate(call, module, name)


def _spans(starts: Sequence[int], ends: Sequence[int], length: int) -> list[range]:
    """From where to where, shortest first; where it is never behind, around a call."""
    spans = [range(start, end) for start in starts for end in ends if start < end]
    again = [range(starts[-1], length), range(-1, ends[0])]
    return sorted(spans, key=len)[:MOST] or again


def _after(steps: Sequence[_ResolvedStep], place: int) -> int:
    """The last step of an operation that works with a parameter: what the parameter is
    made into comes after it.
    """
    if place >= 0 and steps[place].name:
        return place - 1
    following = steps[place + 1 : place + 2]
    return place + any(step.name in _SINGLE for step in following)
