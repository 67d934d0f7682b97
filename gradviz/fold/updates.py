"""The inner updates of meta-learning: what backward made of one gradient, with the
parameters that are computed from it.

`w - lr * grad` after `torch.autograd.grad(..., create_graph=True)`. An update of what
an update computed is the next step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradviz.graph import Graph

_ARITHMETIC = re.compile(
    r"(Mul|Sub|Rsub|Add|Neg|Div|Addcmul|Addcdiv|Sqrt|Pow|ForeachSub|ForeachAdd)Backward\d+"
)
_COPY = re.compile(r"(Clone|View|Alias)Backward\d+")


class Updates:
    """`step[node]` is the update that made new values of a parameter, from 1; 0 for the
    parameter itself and copies of it.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.step = {leaf.node: 0 for leaf in graph.leaves if leaf.kind == "parameter"}

    def pass_by(self, nodes: Sequence[int]) -> None:
        """Note which of these are copies of parameters."""
        for node in nodes:
            inputs = self._inputs(node)
            if (
                len(inputs) == 1
                and inputs[0] in self.step
                and _COPY.match(self._graph.nodes[node].op)
            ):
                self.step[node] = self.step[inputs[0]]

    def after(
        self, gradients: Sequence[int], following: Sequence[int]
    ) -> tuple[int, int]:
        """Which update these gradients are of, and how many of the ops that follow
        belong to it; twice 0 when it is none.

        These are arithmetic, each with a gradient or with what was computed from one,
        and some change a parameter.
        """
        computed, count = set(gradients), 0
        updated: dict[int, int] = {}

        for node in following:
            inputs = self._inputs(node)
            if computed.isdisjoint(inputs) or not _ARITHMETIC.match(
                self._graph.nodes[node].op
            ):
                break
            count += 1
            computed.add(node)
            updated.update(
                (node, self.step[other] + 1) for other in inputs if other in self.step
            )

        self.step.update(updated)
        return (max(updated.values()), count) if updated else (0, 0)

    def _inputs(self, node: int) -> list[int]:
        return [edge.producer for edge in self._graph.inputs(node)]
