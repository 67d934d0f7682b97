"""Counts the paths of a graph, exactly, also where there are more than could ever be followed.

Plain data: knows nothing of torch. A place is a node and one of its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from gradviz.graph import Graph

Place = tuple[int, int]


def ways_to(graph: Graph, target: Place) -> dict[int, int]:
    """How many paths lead from each node to the target, going through the node; nodes without any are left out."""
    node, output = target
    ways: dict[int, int] = {}
    for consumer in reversed(graph.order):
        number = 0
        for edge in graph.inputs(consumer):
            if edge.producer == node and edge.output == output:
                number += 1
            number += ways.get(edge.producer, 0)
        if number:
            ways[consumer] = number
    return ways


def beginnings(graph: Graph, root: int, ways: Mapping[int, int]) -> int:
    """How many calls it takes to follow every path from `root`: one for each distinct beginning of a path."""
    reached = {root: 1} if root in ways else {}
    calls = 0
    for consumer in graph.order:
        number = reached.pop(consumer, 0)
        calls += number
        if number:
            for edge in graph.inputs(consumer):
                if edge.producer in ways:
                    reached[edge.producer] = reached.get(edge.producer, 0) + number
    return calls
