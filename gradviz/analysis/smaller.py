"""Makes a view smaller until a page holds it, whatever the graph: what modules and repeats do not fold is joined by its order.

Each step joins more than the one before. The last one leaves one box for all ops and a few leaves, so that it always fits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from gradviz.analysis.partition import Part, Partition
from gradviz.analysis.stretches import join_stretches
from gradviz.graph import Graph

LEAVES = 8
"""Leaves that stay single when there are so many that no page holds them."""


class _Step(NamedTuple):
    """How many stretches to leave (None: join none), across modules or inside each, and what to do with leaves."""

    stretches: int | None
    across: bool = False
    shared: bool = True  # parameters that several boxes use are drawn inside the first of them
    few_leaves: bool = False


_STEPS = (
    _Step(12),
    _Step(12, few_leaves=True),
    _Step(12, across=True),
    _Step(8, across=True, few_leaves=True),
    _Step(5, across=True, few_leaves=True),
    _Step(3, across=True, few_leaves=True),
    _Step(1, across=True, few_leaves=True),
)


def steps_from(rows: float, *, is_tall: bool) -> tuple[_Step, ...]:
    """What to try for a view that has too many rows, or for one that is only too large for its page."""
    first = (_Step(int(rows), shared=False), _Step(int(rows)))
    return (*first, *_STEPS) if is_tall else (_Step(None), *first[1:], *_STEPS)


def smaller(
    view: Callable[[], Partition],
    steps: Sequence[_Step],
    holds: Callable[[Graph], bool],
    spared: Collection[int | None] = (),
) -> Graph:
    """The first of ever smaller foldings of `view()`, made anew for each, that the page holds; else the last.

    What lies in the calls in `spared` is left as it is as long as that can be.
    """
    folded = None
    for step in steps:
        partition = view()
        if step.stretches is not None:
            join_stretches(partition, step.stretches, () if step.across else spared, across=step.across)
        partition.absorb_parameters(shared=step.shared)
        if step.few_leaves:
            join_leaves(partition, LEAVES)
        folded = partition.folded()
        if holds(folded):
            break
    assert folded is not None
    return folded


def join_leaves(partition: Partition, most: int) -> None:
    """Leave `most` leaves single, and put the rest into one box."""
    single = [leaf.node for leaf in partition.graph.leaves if partition.box_of[leaf.node] == leaf.node]
    rest = single[most:]
    if len(rest) > 1:
        partition.join(rest, Part("more", f"+{len(rest):,} more leaves"))
