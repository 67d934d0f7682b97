"""What autograd keeps for backward: how large it is, who holds it, what a checkpoint would save.

This module has the bytes held by each box of a graph, folded or not, and the scale by which boxes are compared. A step of it is a
factor down from the largest amount, so that one huge node does not make all others look alike. Knows nothing of colours.
"""

from __future__ import annotations

from typing import NamedTuple

from gradviz.graph import Graph
from gradviz.graph.amounts import held_bytes

STEPS = 5


class Heat(NamedTuple):
    """Amounts by node id, such as bytes held, and the `factor` that one step of their scale is.

    >>> heat = Heat((8, 0, 3), 8, factor=2)
    >>> [heat.step(node) for node in range(3)], heat.above(5)
    ([5, 0, 4], 4.0)
    """

    of: tuple[float, ...]
    largest: float
    factor: int

    def step(self, node: int) -> int:
        """From 1 (least) to 5 (above the largest divided by the factor); 0 for a node that has nothing."""
        amount = self.of[node]
        return next((step for step in range(STEPS, 1, -1) if amount > self.above(step)), 1) if amount > 0 else 0

    def above(self, step: int) -> float:
        """The amount that a step begins above."""
        return self.largest / self.factor ** (STEPS + 1 - step) if step > 1 else 0


def held_by_box(graph: Graph) -> tuple[int, ...]:
    """Bytes held for backward by every node; a folded box holds what the nodes inside it do.

    Every storage counts once, for whoever saved it first.

    >>> from gradviz.graph import Node, SavedTensor, Storage
    >>> slot = SavedTensor("result", None, 0, "activation", "live")
    >>> nodes = (Node(0, "ExpBackward0", saved=(slot,)), Node(1, "AddBackward0"))
    >>> held_by_box(Graph(nodes, storages=(Storage(0, 8, "activation"),)))
    (8, 0)
    """
    nbytes = held_bytes(graph.original or graph)
    if graph.original is not None:
        nbytes = [sum([nbytes[node] for node in nodes]) for nodes in graph.inside]
    return tuple(nbytes)
