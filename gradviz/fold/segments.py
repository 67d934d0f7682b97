"""Cuts what is still too tall into segments: boxes that follow one another in the order they ran, each segment one box.

For what modules and repeats do not fold: a long script of plain functions, a module with a thousand ops of its own. Segments
are pieces of one topological order, so joining them never closes a cycle. They end where few values are alive, which is between
the steps of a computation.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from gradviz.fold.partition import Part, Partition, in_order
from gradviz.graph import Graph
from gradviz.graph.scopes import ScopeTree

LEAST = 3
"""Single ops that are joined to make room for a module: fewer take little."""


def join_segments(partition: Partition, most: int, spare: Collection[int | None] = (), *, across: bool = False) -> None:
    """Join boxes until about `most` follow one another, and at least one for each change of the module around them.

    With `across` a segment may lie in several modules. What lies in the calls in `spare` is left as it is.
    """
    boxes, edges = _ordered(partition)
    scopes = [None if across else partition.scope(box) for box in boxes]
    runs = [(start, end) for start, end in _runs(scopes) if partition.scope(boxes[start]) not in spare]
    alive = _alive(boxes, edges)
    members = partition.members()
    length = _length([end - start for start, end in runs], most)
    for start, end in runs:
        for first, after in _cut(start, end, length, alive):
            if after - first > 1 or most == 1:
                _join(partition, boxes[first:after], members)


def join_loose(partition: Partition, scopes: Collection[int | None]) -> None:
    """Join single ops that follow one another directly inside one of these calls (None: outside of all modules)."""
    boxes, _ = _ordered(partition)
    members = partition.members()
    keys = [None if box in partition.parts else (partition.scope(box),) for box in boxes]
    for start, end in _runs(keys):
        key = keys[start]
        if key is not None and key[0] in scopes and end - start >= LEAST:
            _join(partition, boxes[start:end], members)


def _ordered(partition: Partition) -> tuple[list[int], list[tuple[int, int]]]:
    """Boxes that are not leaves, every one after those it uses, and the edges between them."""
    leaves = {partition.box_of[leaf.node] for leaf in partition.graph.leaves} - partition.parts.keys()
    places = {box: place for box, place in partition.places().items() if box not in leaves}
    edges = [(producer, consumer) for producer, consumer in partition.edges() if producer not in leaves]
    return in_order(edges, places), edges


def _runs(keys: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Where runs of equal keys begin, and where they end."""
    starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
    return list(zip(starts, [*starts[1:], len(keys)]))


def _alive(boxes: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[int]:
    """How many values made before each place are used at it or after it."""
    place = {box: i for i, box in enumerate(boxes)}
    last_use = list(range(len(boxes)))
    for producer, consumer in edges:
        last_use[place[producer]] = max(last_use[place[producer]], place[consumer])
    change = [0] * (len(boxes) + 2)
    for i, last in enumerate(last_use):
        change[i + 1] += 1
        change[last + 1] -= 1
    return list(accumulate(change))


def _length(lengths: list[int], most: int) -> int:
    """The least length of a segment that leaves at most `most` of them, as far as that can be."""
    longest = max(lengths, default=1)
    return (
        bisect_left(range(1, longest), True, key=lambda length: sum(-(-whole // length) for whole in lengths) <= most)
        + 1
    )


def _cut(start: int, end: int, length: int, alive: list[int]) -> list[tuple[int, int]]:
    """Segments of about this length, each ending near there, where the fewest values are alive."""
    count = -(-(end - start) // length)
    room = length // 3
    cuts = [start]
    for i in range(1, count):
        ideal = start + i * (end - start) // count
        near = range(max(ideal - room, cuts[-1] + 1), min(ideal + room, end - 1) + 1)
        cuts.append(min(near, key=lambda place: (alive[place], abs(place - ideal)), default=ideal))
    return list(zip(cuts, [*cuts[1:], end]))


def _join(partition: Partition, boxes: list[int], members: dict[int, list[int]]) -> None:
    parts, nodes = partition.parts, partition.graph.nodes
    titles = [parts[box].title if box in parts else nodes[box].op for box in boxes]
    title = titles[0] if len(set(titles)) == 1 else f"{titles[0]} … {titles[-1]}"
    scope = ScopeTree(partition.graph).common({partition.scope(box) for box in boxes})
    partition.join([node for box in boxes for node in members[box]], Part("chain", title, 1, scope))


# Makes a view smaller until a page holds it, whatever the graph: what modules and repeats do not fold is joined by
# its order. Each step joins more than the one before. The last one leaves one box for all ops and a few leaves, so
# that it always fits.

LEAVES = 8
"""Leaves that stay single when there are so many that no page holds them."""


class _Step(NamedTuple):
    """How many segments to leave (None: join none), across modules or inside each, and what to do with leaves."""

    segments: int | None
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
        if step.segments is not None:
            join_segments(partition, step.segments, () if step.across else spared, across=step.across)
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
