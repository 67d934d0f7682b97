"""Cuts what is still too tall into stretches: boxes that follow one another in the order they ran, each stretch one box.

For what modules and repeats do not fold: a long script of plain functions, a module with a thousand ops of its own. Stretches
are pieces of one topological order, so joining them never closes a cycle. They end where few values are alive, which is between
the steps of a computation.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import NamedTuple

from gradviz.analysis.held import forward_order
from gradviz.analysis.partition import Part, Partition
from gradviz.graph import column


class _Order(NamedTuple):
    """Boxes that are not leaves, every one after those it uses, and for each of them the last place that uses it."""

    boxes: list[int]
    last_use: list[int]


def join_stretches(partition: Partition, most: int, spare: Collection[int | None] = ()) -> None:
    """Join boxes until about `most` follow one another, and at least one for each change of the module around them.

    What lies in the calls in `spare` is left as it is.
    """
    order = _order(partition)
    pieces = [
        piece for piece in _same_scope(partition, order.boxes) if _scope(partition, order.boxes[piece[0]]) not in spare
    ]
    alive = _alive(order)
    members = partition.members()
    size = _size([end - start for start, end in pieces], most)
    for start, end in pieces:
        for first, after in _cut(start, end, size, alive):
            if after - first > 1:
                _join(partition, [order.boxes[i] for i in range(first, after)], members)


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
    scopes = [_scope(partition, box) for box in boxes]
    starts = [i for i, scope in enumerate(scopes) if i == 0 or scope != scopes[i - 1]]
    return list(zip(starts, [*starts[1:], len(boxes)]))


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
    titles = [_title(partition, box) for box in (boxes[0], boxes[-1])]
    part = Part("chain", " … ".join(titles), 1, _scope(partition, boxes[0]))
    partition.join([node for box in boxes for node in members[box]], part)


def _scope(partition: Partition, box: int) -> int | None:
    part = partition.parts.get(box)
    return part.scope if part is not None else partition.graph.nodes[box].scope


def _title(partition: Partition, box: int) -> str:
    part = partition.parts.get(box)
    return part.title if part is not None else partition.graph.nodes[box].op
