"""Bytes held by each box of a graph, folded or not, and on which step of a scale each stands.

A step is a factor of two down from the largest, so that one huge node does not make all others look alike. Knows nothing
of colours.
"""

from __future__ import annotations

from typing import NamedTuple

from gradviz.graph import Graph
from gradviz.graph.amounts import held_bytes

STEPS = 5


class Heat(NamedTuple):
    """Bytes held for backward, by node id of the graph given. Every storage counts once, for whoever saved it first."""

    nbytes: tuple[int, ...]
    largest: int

    def step(self, node: int) -> int:
        """From 1 (least) to 5 (above half of the largest); 0 for a node that holds nothing."""
        nbytes = self.nbytes[node]
        return next((step for step in range(STEPS, 1, -1) if nbytes > self.above(step)), 1) if nbytes > 0 else 0

    def above(self, step: int) -> int:
        """The bytes that a step begins above."""
        return self.largest >> (STEPS + 1 - step) if step > 1 else 0


def heat(graph: Graph) -> Heat:
    """Bytes held by every node; a folded box holds what the nodes inside it do.

    >>> from gradviz.graph import Node, SavedTensor, Storage
    >>> slot = SavedTensor("result", None, 0, "activation", "live")
    >>> nodes = (Node(0, "ExpBackward0", saved=(slot,)), Node(1, "AddBackward0"))
    >>> heated = heat(Graph(nodes, storages=(Storage(0, 8, "activation"),)))
    >>> heated.nbytes, heated.step(0), heated.step(1)
    ((8, 0), 5, 0)
    """
    nbytes = held_bytes(graph.original or graph)
    if graph.original is not None:
        nbytes = [sum([nbytes[node] for node in nodes]) for nodes in graph.inside]
    return Heat(tuple(nbytes), max(nbytes, default=0))
