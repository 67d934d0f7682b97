"""Where the call of an adapter ends: at the sum of what its small matrices made and what its frozen weights made beside them.

A frozen weight is no leaf of the graph, so its product looks like anybody's. The sum tells: it takes the result of the call, and
a product that was computed right before the call and needed no gradient for its weight.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.analysis.inference.calls import Call
from gradviz.analysis.inference.layers import VIEWS
from gradviz.analysis.inference.order import Order

_PRODUCTS = frozenset(("Addmm", "Mm", "Convolution"))
_JOINS = frozenset(("Add", "Sub"))


def adapter_ends(
    order: Order, calls: Sequence[Call], before: Sequence[range], after: Sequence[range]
) -> list[tuple[range, range]]:
    """How far the calls of one class reach into what lies free before and after each; [] if none ends with such a sum.

    Where the input of a call needs no gradient, the frozen product is not in the graph; the sum is found all the same, since
    calls of one class do the same things.
    """
    sums = [_steps_to_sum(order, call.end, gap) for call, gap in zip(calls, after)]
    starts = [_steps_to_product(order, earlier, later[:n]) for earlier, later, n in zip(before, after, sums)]
    if not any(starts):
        return []
    return [(earlier[:k], later[:n]) for earlier, later, k, n in zip(before, after, starts, sums)]


def _steps_to_sum(order: Order, end: int, gap: range) -> int:
    """How many operations, each on the result of the one before, lead from the end of a call to a sum; 0 if none does."""
    last = end
    for i, position in enumerate(gap):
        if last not in order.producers[position]:
            return 0
        if order.stems[position] in _JOINS:
            return i + 1
        last = position
    return 0


def _steps_to_product(order: Order, gap: range, later: range) -> int:
    """How many operations before a call reach back to the frozen product that its sum takes; 0 if it takes none."""
    if not later or not gap:
        return 0
    beside = [one for one in order.producers[later[-1]] if one in gap]
    if len(beside) != 1:
        return 0
    position = beside[0]
    while order.stems[position] in VIEWS and len(order.producers[position]) == 1:
        position = order.producers[position][0]
    if position not in gap or order.stems[position] not in _PRODUCTS:
        return 0
    flattened = position - 1
    if flattened in gap and flattened in order.producers[position] and order.stems[flattened] in VIEWS:
        position = flattened
    return gap.index(position) + 1
