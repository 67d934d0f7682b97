"""Cuts what is still too tall into stretches: boxes that follow one another in the order they ran, each stretch one box.

For what modules and repeats do not fold: a long script of plain functions, a module with a thousand ops of its own. Stretches
are pieces of one topological order, so joining them never closes a cycle. They end where few values are alive, which is between
the steps of a computation.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import NamedTuple

from gradviz.fold.partition import Part, Partition
from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.scopes import ScopeTree

LEAST = 3
"""Single ops that are joined to make room for a module: fewer take little."""


class _Order(NamedTuple):
    """Boxes that are not leaves, every one after those it uses, and for each of them the last place that uses it."""

    boxes: list[int]
    last_use: list[int]


def join_stretches(
    partition: Partition, most: int, spare: Collection[int | None] = (), *, across: bool = False
) -> None:
    """Join boxes until about `most` follow one another, and at least one for each change of the module around them.

    With `across` a stretch may lie in several modules. What lies in the calls in `spare` is left as it is.
    """
    order = _order(partition)
    whole = [(0, len(order.boxes))] if order.boxes else []
    pieces = [
        piece
        for piece in (whole if across else _same_scope(partition, order.boxes))
        if _scope(partition, order.boxes[piece[0]]) not in spare
    ]
    alive = _alive(order)
    members = partition.members()
    size = _size([end - start for start, end in pieces], most)
    for start, end in pieces:
        for first, after in _cut(start, end, size, alive):
            if after - first > 1 or most == 1:
                _join(partition, [order.boxes[i] for i in range(first, after)], members)


def join_loose(partition: Partition, scopes: Collection[int | None]) -> None:
    """Join single ops that follow one another directly inside one of these calls (None: outside of all modules)."""
    order = _order(partition)
    members = partition.members()
    keys = [None if box in partition.parts else (_scope(partition, box),) for box in order.boxes]
    for start, end in _equal(keys):
        key = keys[start]
        if key is not None and key[0] in scopes and end - start >= LEAST:
            _join(partition, order.boxes[start:end], members)


def _order(partition: Partition) -> _Order:
    graph, box_of = partition.graph, partition.box_of
    is_leaf = {box_of[leaf.node] for leaf in graph.leaves if box_of[leaf.node] not in partition.parts}
    place: dict[int, int] = {}
    for i, node in enumerate(forward_order(graph)):
        place.setdefault(box_of[node], i)
    ends = zip(column(graph.edges, "producer"), column(graph.edges, "consumer"))
    pairs = {(box_of[producer], box_of[consumer]) for producer, consumer in ends}
    consumers: dict[int, list[int]] = {}
    waiting: dict[int, int] = {}
    for producer, consumer in pairs:
        if producer != consumer and producer not in is_leaf:
            consumers.setdefault(producer, []).append(consumer)
            waiting[consumer] = waiting.get(consumer, 0) + 1
    ready = [(at, box) for box, at in place.items() if box not in waiting and box not in is_leaf]
    heapq.heapify(ready)
    boxes: list[int] = []
    while ready:
        _, box = heapq.heappop(ready)
        boxes.append(box)
        for consumer in consumers.get(box, ()):
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, (place[consumer], consumer))
    at = {box: i for i, box in enumerate(boxes)}
    return _Order(boxes, [max((at[consumer] for consumer in consumers.get(box, ())), default=at[box]) for box in boxes])


def _same_scope(partition: Partition, boxes: list[int]) -> list[tuple[int, int]]:
    """Where the module around changes: the places from `start` up to, not including, `end` have the same."""
    return _equal([_scope(partition, box) for box in boxes])


def _equal(keys: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Where runs of equal keys begin, and where they end."""
    starts = [i for i, key in enumerate(keys) if i == 0 or key != keys[i - 1]]
    return list(zip(starts, [*starts[1:], len(keys)]))


def _alive(order: _Order) -> list[int]:
    """How many values made before each place are used at it or after it."""
    change = [0] * (len(order.boxes) + 2)
    for i, last in enumerate(order.last_use):
        change[i + 1] += 1
        change[last + 1] -= 1
    alive, now = [], 0
    for one in change:
        now += one
        alive.append(now)
    return alive


def _size(lengths: list[int], most: int) -> int:
    """The least length of a stretch that leaves at most `most` of them, as far as that can be."""
    low, high = 1, max(lengths, default=1)
    while low < high:
        middle = (low + high) // 2
        if sum(-(-length // middle) for length in lengths) <= most:
            high = middle
        else:
            low = middle + 1
    return low


def _cut(start: int, end: int, size: int, alive: list[int]) -> list[tuple[int, int]]:
    """Stretches of about `size` places, each ending near there, where the fewest values are alive."""
    count = -(-(end - start) // size)
    room = size // 3
    cuts = [start]
    for i in range(1, count):
        ideal = start + i * (end - start) // count
        near = range(max(ideal - room, cuts[-1] + 1), min(ideal + room, end - 1) + 1)
        cuts.append(min(near, key=lambda place: (alive[place], abs(place - ideal)), default=ideal))
    return list(zip(cuts, [*cuts[1:], end]))


def _join(partition: Partition, boxes: list[int], members: dict[int, list[int]]) -> None:
    titles = [_title(partition, box) for box in boxes]
    part = Part(
        "chain",
        titles[0] if len(set(titles)) == 1 else f"{titles[0]} … {titles[-1]}",
        1,
        ScopeTree(partition.graph).common({_scope(partition, box) for box in boxes}),
    )
    partition.join([node for box in boxes for node in members[box]], part)


def _scope(partition: Partition, box: int) -> int | None:
    part = partition.parts.get(box)
    return part.scope if part is not None else partition.graph.nodes[box].scope


def _title(partition: Partition, box: int) -> str:
    part = partition.parts.get(box)
    return part.title if part is not None else partition.graph.nodes[box].op


# Makes a view smaller until a page holds it, whatever the graph: what modules and repeats do not fold is joined by
# its order. Each step joins more than the one before. The last one leaves one box for all ops and a few leaves, so
# that it always fits.

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
