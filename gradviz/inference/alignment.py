"""Which module made what lies between two operations with parameters: what the code of
the modules around says that comes there, in that order, is aligned with what came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice, pairwise, product

from gradviz.graph.origins import Registered
from gradviz.inference.layers import PRODUCTS, VIEWS, makes_so
from gradviz.inference.order import ForwardOrder, InferredCall
from gradviz.inference.scripts import MOST, End, Item, Scripts, Way

_LONGEST = 2000  # operations between two that are certain

# What it costs that an operation was made so. Less is more likely.
_OUTSIDE = 1.1
_COMPOSED = 1.2  # by a function of torch, of several
_UNEXPECTED = 3.0  # by a module whose code says nothing of it
_ELEMENT = 0.4  # by `x[0]`, which may be an element of a list
_AGAIN = 0.3  # by code that made one like it right before
_INSIDE = 0.01  # for each call inside the one that is around both ends
_PASSED = 0.05  # for each module with parameters that was not called on the way
_NEVER = 1e9


class Alignment:
    """Widens calls in place, and says for each position which module without parameters
    made it.
    """

    def __init__(
        self,
        modules: Sequence[Registered],
        order: ForwardOrder,
        calls: Sequence[InferredCall],
        anchored: Mapping[int, str],
    ) -> None:
        self._modules, self._order = modules, order
        self._scripts = Scripts(modules, {call.module for call in calls})
        self._names = anchored
        self.made_by: dict[int, tuple[InferredCall, int]] = {}
        """Call and module by position, for what modules without parameters made."""
        self._innermost: dict[int, InferredCall] = {}
        for call in calls:
            for position in range(call.start, call.end + 1):
                self._innermost.setdefault(position, call)
        self._aligned = cache(_aligned)

    def widen(self) -> None:
        """Give each position between those that are certain to who made it."""
        for before, after in pairwise([None, *self._names, None]):
            start, end = -1, len(self._order)
            if before is not None:
                start = self._with_result(before)
            if after is not None:
                end = self._with_input(start, after)
            if end - start > 1 and end - start <= _LONGEST:
                self._divide(range(start + 1, end), before, after)

    def _divide(self, gap: range, before: int | None, after: int | None) -> None:
        """Give each position to the item that made it, on the best of all ways."""
        kinds = tuple(self._order.kinds[gap.start : gap.stop])
        least = _NEVER
        chosen: list[Item] = []
        for items, passed in self._expected(before, after):
            costs = tuple((item.name, item.cost, depth) for item, depth in items)
            places, cost = self._aligned(kinds, costs)
            if cost + _PASSED * passed < least:
                least = cost + _PASSED * passed
                chosen = [items[place][0] for place in places]
        for position, item in zip(gap, chosen):
            _widen(item.call, position)
            if item.call is not None and item.silent is not None:
                self.made_by[position] = item.call, item.silent

    def _expected(
        self, before: int | None, after: int | None
    ) -> Iterator[tuple[list[tuple[Item, int]], int]]:
        """What may come between two operations, by the ways through all forwards around:
        the items, each with how deep inside it is, and the modules passed.
        """
        earlier, later = self._around(before), self._around(after)
        outer: InferredCall | None = None
        while earlier and later and earlier[-1] is later[-1]:
            outer = earlier.pop()
            later.pop()
        tails, first = self._inner(earlier, self._name(before), is_tail=True)
        heads, last = self._inner(later, self._name(after), is_tail=False)
        middle = [Way([Item(None, None, "?", _OUTSIDE)])]
        if outer is not None:
            ways = self._scripts.between(outer, first, last)
            ways = ways or [self._scripts.as_registered(outer, first, last)]
            unexpected = Item(outer, None, "?", _UNEXPECTED)
            middle = [Way([*items, unexpected], passed) for items, passed in ways]
        for chosen in islice(product(*tails, middle, *reversed(heads)), MOST):
            items: list[tuple[Item, int]] = []
            for place, way in enumerate(chosen):
                depth = abs(place - len(tails))
                items += [(one, depth + (one.silent is not None)) for one in way.items]
            yield items, sum(way.passed for way in chosen)

    def _inner(
        self, calls: Sequence[InferredCall], end: End, *, is_tail: bool
    ) -> tuple[list[list[Way]], End]:
        """How calls inside each other go on after an operation, or come to it; and the
        outermost of them.
        """
        parts: list[list[Way]] = []
        for call in calls:
            ends = (end, None) if is_tail else (None, end)
            parts.append(self._scripts.between(call, *ends) or [Way(())])
            end = call.module
        return parts, end

    def _name(self, position: int | None) -> str | None:
        return None if position is None else self._names[position]

    def _around(self, position: int | None) -> list[InferredCall]:
        """The calls around a position, inner first."""
        calls = []
        call = None if position is None else self._innermost[position]
        while call is not None:
            calls.append(call)
            call = call.parent
        return calls

    # -- a linear layer makes a matrix of its input, and its output as its input was ----

    def _with_result(self, position: int) -> int:
        """The last position of what has an operation with parameters at its end."""
        call = self._innermost[position]
        if not self._restores(call, position):
            return position
        _widen(call, position + 1)
        return position + 1

    def _with_input(self, start: int, position: int) -> int:
        """The first position of what begins with an operation with parameters."""
        before, call = position - 1, self._innermost[position]
        is_flat = self._is_matrix(before) and self._restores(call, call.end)
        if before <= start or not is_flat:
            return position
        _widen(call, before)
        return before

    def _restores(self, call: InferredCall, position: int) -> bool:
        """Whether a linear layer's product gets more dimensions right after it."""
        shapes, after = self._order.shapes, position + 1
        if self._modules[call.module].base != "Linear" or after >= len(shapes):
            return False
        shape = shapes[after] or ()
        return (
            self._is_matrix(position, VIEWS | PRODUCTS)
            and not self._is_matrix(after)
            and self._order.stems[after] in VIEWS
            and shape[-1:] == (shapes[position] or ())[-1:]
            and position in self._order.producers[after]
        )

    def _is_matrix(self, position: int, stems: frozenset[str] = VIEWS) -> bool:
        is_one = len(self._order.shapes[position] or ()) == 2
        return is_one and self._order.stems[position] in stems


def _widen(call: InferredCall | None, position: int) -> None:
    """Widen a call by a position, and all around it."""
    while call is not None:
        call.start = min(call.start, position)
        call.end = max(call.end, position)
        call = call.parent


def _aligned(
    kinds: Sequence[str], items: Sequence[tuple[str, float, int]]
) -> tuple[list[int], float]:
    """For each operation the place of the item that made it, so that as much as possible
    is what the code says; and how much is not. Items keep their order.
    """
    costs = [_NEVER] * len(items)
    sources: list[list[int]] = []
    best, last = 0.0, ""  # what all before the first costs
    for kind in kinds:
        best_at = -1
        new, source = [], []
        for place, (name, unknown, depth) in enumerate(items):
            first, again = _costs(name, unknown, kind, kind == last)
            again += costs[place]
            is_again = again <= best + first
            new.append((again if is_again else best + first) + _INSIDE * depth)
            source.append(place if is_again else best_at)
            if costs[place] < best:
                best, best_at = costs[place], place
        costs, best, last = new, _NEVER, kind
        sources.append(source)
    cost = min(costs)
    place = costs.index(cost)
    found = []
    for source in reversed(sources):
        found.append(place)
        place = source[place]
    return found[::-1], cost


def _costs(name: str, unknown: float, kind: str, is_like: bool) -> tuple[float, float]:
    """What it costs that code made an operation, and that it made that one, too."""
    if name == "?":
        return unknown, unknown
    if makes_so(name, kind):
        is_one = is_like and " " not in name
        return _ELEMENT if name == "element" else 0.0, _AGAIN if is_one else 0.0
    if name.startswith("F."):
        return _COMPOSED, _COMPOSED
    return _NEVER, _UNEXPECTED
