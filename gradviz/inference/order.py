"""A graph's operations in the order in which they ran."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.walks import makers
from gradviz.inference.layers import MASKED, stem_of

_OF_BACKWARD = re.compile(r"\w+Backward(Data)?Backward\d+")


class ForwardOrder:
    """The operations of forward passes at positions 0, 1, ... in the order of their
    sequence numbers. Leaves are none, nor is what differentiates a backward function:
    no forward ran it.
    """

    def __init__(self, graph: Graph) -> None:
        self.inputs = [makers(graph, node) for node in range(len(graph.nodes))]
        """By node id, of leaves too, the nodes that it takes its inputs from."""
        sequences, ops = (column(graph.nodes, name) for name in ("sequence", "op"))
        self.nodes = [
            node
            for node in forward_order(graph)
            if sequences[node] is not None and not _OF_BACKWARD.fullmatch(ops[node])
        ]
        """Node id by position."""
        self.stems = [stem_of(ops[node]) for node in self.nodes]
        """By position the name of the operation without "Backward0"."""
        self.kinds = [
            _kind(graph, stem, node, self.inputs[node], ops)
            for stem, node in zip(self.stems, self.nodes)
        ]
        """The same, where multiplication by a tensor without gradient has a name of its
        own.
        """
        outputs = column(graph.nodes, "outputs")
        self.shapes = [
            outputs[node][0].shape if outputs[node] and outputs[node][0] else None
            for node in self.nodes
        ]
        """Shape of the first output, where known."""

    def __len__(self) -> int:
        return len(self.nodes)


def _kind(
    graph: Graph, stem: str, node: int, inputs: Sequence[int], ops: Sequence[str]
) -> str:
    if stem != "Mul" or not _is_masked(graph, node):
        return stem
    # noise on the weights of `scaled_dot_product_attention` is no module's
    is_own = any(ops[source].startswith("SafeSoftmax") for source in inputs)
    return stem if is_own else MASKED


def _is_masked(graph: Graph, node: int) -> bool:
    record = graph.nodes[node]
    if len(graph.inputs(node)) != 1 or not record.none_inputs:
        return False
    return any(
        slot.kind not in ("number", "parameter") and slot.tensor and slot.tensor.shape
        for slot in record.saved
    )
