"""Bytes held by each box of a graph, folded or not, and on which step of a scale each stands.

A step is a factor of two down from the largest, so that one huge node does not make all others look alike. Knows nothing
of colours.
"""

from __future__ import annotations

from typing import NamedTuple

from gradviz.graph import Graph
from gradviz.graph.storage import held_bytes

STEPS = 5


class Heat(NamedTuple):
    """Bytes held for backward, by node id of the graph given. Every storage counts once, for whoever saved it first."""

    nbytes: tuple[int, ...]
    largest: int

    def step(self, node: int) -> int:
        """From 1 (least) to 5 (above half of the largest); 0 for a node that holds nothing."""
        held = self.nbytes[node]
        if held <= 0:
            return 0
        return next((step for step in range(STEPS, 1, -1) if held > self.above(step)), 1)

    def above(self, step: int) -> int:
        """The bytes that a step begins above."""
        return self.largest >> (STEPS + 1 - step) if step > 1 else 0


def heat(graph: Graph) -> Heat:
    """Bytes held by every node; a folded box holds what the nodes inside it do.

    >>> from gradviz.graph import Node, SavedTensor, Storage
    >>> slot = SavedTensor("result", None, 0, "activation", "live")
    >>> nodes = (Node(0, "ExpBackward0", saved=(slot,)), Node(1, "AddBackward0"))
    >>> found = heat(Graph(nodes, storages=(Storage(0, 8, "activation"),)))
    >>> found.nbytes, found.step(0), found.step(1)
    ((8, 0), 5, 0)
    """
    nbytes = _of_boxes(graph, graph.original) if graph.original is not None else held_bytes(graph)
    return Heat(tuple(nbytes), max(nbytes, default=0))


def _of_boxes(graph: Graph, original: Graph) -> list[int]:
    """Nodes that were not folded keep their order, so the n-th of them is the n-th of the original's that is in no group."""
    held = held_bytes(original)
    inside = {i for node in graph.nodes if node.group is not None for i in node.group.nodes}
    single = (i for i in range(len(original.nodes)) if i not in inside)
    return [
        sum(held[i] for i in node.group.nodes) if node.group is not None else held[next(single)] for node in graph.nodes
    ]
