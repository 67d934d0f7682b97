"""How tall a drawing of boxes will be, counted in rows and not in pixels: analyses know no layout.

A row is one box on the longest way from a leaf to an output. Going into the frame of an open module, or out of it, takes about
half a row for the frame's border, its title and the room around them.
"""

from __future__ import annotations

from collections.abc import Iterable

from gradviz.analysis.partition import Partition
from gradviz.analysis.scopes import ScopeTree
from gradviz.graph import column

BORDER = 0.5
"""Rows that one border of a frame takes: 45 to 55 pixels, where a box with the gap below it takes about 100."""


def rows(partition: Partition, tree: ScopeTree) -> float:
    """Rows of a drawing of these boxes. Takes time proportional to the graph."""
    graph, box_of = partition.graph, partition.box_of
    number = {box: i for i, box in enumerate(dict.fromkeys(box_of))}
    scopes: list[int | None] = [None] * len(number)
    is_leaf = bytearray(len(number))
    for node, (box, scope) in enumerate(zip(box_of, column(graph.nodes, "scope"))):
        part = partition.parts.get(box)
        scopes[number[box]] = part.scope if part is not None else scope
        is_leaf[number[box]] = part is None and node in graph.leaf_of
    ends = zip(column(graph.edges, "producer"), column(graph.edges, "consumer"))
    pairs = {(number[box_of[producer]], number[box_of[consumer]]) for producer, consumer in ends}
    frames = {scope: frozenset(tree.around(scope)) for scope in set(scopes)}
    return _longest(len(number), ((a, b) for a, b in pairs if a != b), scopes, frames, is_leaf)


def _longest(
    count: int,
    pairs: Iterable[tuple[int, int]],
    scopes: list[int | None],
    frames: dict[int | None, frozenset[int]],
    is_leaf: bytearray,
) -> float:
    """The longest way, where a leaf stands in the frame of whoever uses it."""
    consumers: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for producer, consumer in pairs:
        consumers[producer].append(consumer)
        waiting[consumer] += 1
    reached = [1.0 if is_leaf[box] else 1.0 + BORDER * len(frames[scopes[box]]) for box in range(count)]
    ready = [box for box in range(count) if not waiting[box]]
    tallest = 0.0
    for box in ready:  # grows while it is read
        tallest = max(tallest, reached[box] + BORDER * len(frames[scopes[box]]))
        for consumer in consumers[box]:
            inside = frames[scopes[consumer]]
            crossed = inside if is_leaf[box] else inside ^ frames[scopes[box]]
            reached[consumer] = max(reached[consumer], reached[box] + 1 + BORDER * len(crossed))
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    return tallest
