"""Which module made what lies between two anchors: the operations that came are aligned
with what the code of the modules around says may come there, in that order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice, pairwise, product
from typing import TypeAlias

from gradviz.graph.origins import Registered
from gradviz.inference.anchors import Anchor
from gradviz.inference.calls import InferredCall
from gradviz.inference.layers import PRODUCTS, VIEWS, makes_so
from gradviz.inference.order import ForwardOrder
from gradviz.inference.routes import MOST, Boundary, Candidate, ForwardRoutes, Route

_LARGEST = 100_000  # operations between two anchors times candidates

# What it costs that an operation was made so. Less is more likely.
_OUTSIDE = 1.1  # by no module
_COMPOSED = 1.1  # by a function of torch, of several
_UNEXPECTED = 3.0  # by a module whose code says nothing of it
_AGAIN = 0.3  # by code that made one like it right before
_INSIDE = 0.01  # for each call inside the one that is around both ends
_SKIPPED = 0.05  # for each module with parameters that was not called on the way
_NEVER = 1e9


_End: TypeAlias = tuple[Anchor, InferredCall] | None
"""An end of a gap: an anchor with its call, or that of the graph."""


class Alignment:
    """Finds for each position between two anchors the call in which it lies."""

    def __init__(
        self,
        modules: Sequence[Registered],
        order: ForwardOrder,
        anchors: Sequence[Anchor],
        calls: Sequence[InferredCall],
        call_of: Sequence[InferredCall],
    ) -> None:
        self._modules, self._order = modules, order
        self._ends: list[_End] = [None, *zip(anchors, call_of), None]
        self._routes = ForwardRoutes(modules, {call.module for call in calls})
        self._plain_calls: list[InferredCall] = []
        self._aligned = cache(_aligned)

    def fill_gaps(self) -> list[InferredCall]:
        """Widen the calls by the positions that lie in them. Returns the calls of modules
        without parameters.
        """
        for before, after in pairwise(self._ends):
            start, end = -1, len(self._order)
            if before is not None:
                start = self._with_result(*before)
            if after is not None:
                end = self._with_input(start, *after)
            if end - start > 1:
                self._fill(range(start + 1, end), before, after)
        return self._plain_calls

    def _fill(self, gap: range, before: _End, after: _End) -> None:
        """Give each position to the candidate that made it, on the best of all routes."""
        kinds = tuple(self._order.kinds[gap.start : gap.stop])
        least = _NEVER
        chosen: list[Candidate] = []
        for candidates, depths, skipped in self._expected(before, after):
            if len(kinds) * len(candidates) > _LARGEST:
                continue
            names, costs = zip(*((one.name, one.cost) for one in candidates))
            places, cost = self._aligned(kinds, names, costs, tuple(depths))
            if cost + _SKIPPED * skipped < least:
                least = cost + _SKIPPED * skipped
                chosen = [candidates[place] for place in places]
        for position, candidate in zip(gap, chosen):
            if candidate.call is not None:
                candidate.call.widen(position)
                if candidate.module is not None:
                    self._add_plain(candidate.module, position, candidate.call)

    def _add_plain(self, module: int, position: int, parent: InferredCall) -> None:
        """Note that a module without parameters ran here: positions side by side that the
        same one made in the same call are one call.
        """
        last = self._plain_calls[-1] if self._plain_calls else None
        if (
            last is not None
            and last.parent is parent
            and (last.module, last.end) == (module, position - 1)
        ):
            last.end = position
        else:
            self._plain_calls.append(InferredCall(module, position, position, parent))

    def _expected(
        self, before: _End, after: _End
    ) -> Iterator[tuple[list[Candidate], list[int], int]]:
        """What may come between two anchors, by the routes through all forwards around:
        the candidates, how deep inside each is, and how many modules are skipped.
        """
        earlier, later = _around(before), _around(after)
        outer: InferredCall | None = None
        while earlier and later and earlier[-1] is later[-1]:
            outer = earlier.pop()
            later.pop()
        tails, first = self._inner(earlier, before, is_tail=True)
        heads, last = self._inner(later, after, is_tail=False)
        middle = [Route([Candidate(None, None, "?", _OUTSIDE)])]
        if outer is not None:
            anything = Candidate(outer, None, "?")
            routes = self._routes.between(outer, first, last) or [Route([anything])]
            unexpected = Candidate(outer, None, "?", _UNEXPECTED)
            middle = [Route([*some, unexpected], skipped) for some, skipped in routes]
        for route in islice(product(*tails, middle, *reversed(heads)), MOST):
            candidates: list[Candidate] = []
            depths: list[int] = []
            for place, part in enumerate(route):
                depth = abs(place - len(tails))
                candidates += part.candidates
                depths += [depth + (one.module is not None) for one in part.candidates]
            yield candidates, depths, sum(part.skipped for part in route)

    def _inner(
        self, calls: Sequence[InferredCall], end: _End, *, is_tail: bool
    ) -> tuple[list[list[Route]], Boundary]:
        """How calls inside each other go on after an anchor, or come to it; and the
        outermost of them.
        """
        parts: list[list[Route]] = []
        boundary: Boundary = None if end is None else end[0].name
        for call in calls:
            ends = (boundary, None) if is_tail else (None, boundary)
            parts.append(self._routes.between(call, *ends) or [Route(())])
            boundary = call.module
        return parts, boundary

    # -- a linear layer makes a matrix of its input, and its output as its input was ----

    def _with_result(self, anchor: Anchor, call: InferredCall) -> int:
        """The last position of what has an anchor at its end."""
        position = anchor.position
        if self._restores(call, position):
            position += 1
            call.widen(position)
        return position

    def _with_input(self, start: int, anchor: Anchor, call: InferredCall) -> int:
        """The first position of what begins with an anchor."""
        before = anchor.position - 1
        is_free = before > start and self._is_matrix(before)
        if not is_free or not self._restores(call, call.end):
            return anchor.position
        call.widen(before)
        return before

    def _restores(self, call: InferredCall, position: int) -> bool:
        """Whether a linear layer's product gets more dimensions right after it."""
        order, after = self._order, position + 1
        if self._modules[call.module].base != "Linear" or after >= len(order):
            return False
        sizes, sizes_after = order.shapes[position] or (), order.shapes[after] or ()
        return (
            self._is_matrix(position, VIEWS | PRODUCTS)
            and len(sizes_after) != 2
            and order.stems[after] in VIEWS
            and sizes_after[-1:] == sizes[-1:]
            and order.nodes[position] in order.inputs[order.nodes[after]]
        )

    def _is_matrix(self, position: int, stems: frozenset[str] = VIEWS) -> bool:
        is_one = len(self._order.shapes[position] or ()) == 2
        return is_one and self._order.stems[position] in stems


def _around(end: _End) -> list[InferredCall]:
    """The calls around an end, inner first."""
    calls = []
    call = None if end is None else end[1]
    while call is not None:
        calls.append(call)
        call = call.parent
    return calls


def _aligned(
    kinds: Sequence[str],
    names: Sequence[str],
    unknown: Sequence[float],
    depths: Sequence[int],
) -> tuple[list[int], float]:
    """For each operation the place of the candidate that made it, so that as much as
    possible is what the code says; and how much is not. Candidates keep their order.
    """
    totals = [_NEVER] * len(names)  # by who made the last operation
    sources: list[list[int]] = []  # and by operation: who made the one before
    least, last = 0.0, ""  # what all before this candidate costs at least
    for kind in kinds:
        least_at = -1
        new, source = [], []
        for place, name in enumerate(names):
            first, again = _costs(name, unknown[place], kind, kind == last)
            again += totals[place]
            is_again = again <= least + first
            new.append((again if is_again else least + first) + _INSIDE * depths[place])
            source.append(place if is_again else least_at)
            if totals[place] < least:
                least, least_at = totals[place], place
        totals, least, last = new, _NEVER, kind
        sources.append(source)
    cost = min(totals)
    place = totals.index(cost)
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
        return 0.0, _AGAIN if is_like and " " not in name else 0.0
    if name.startswith("F."):
        return _COMPOSED, _COMPOSED
    return _NEVER, _UNEXPECTED
