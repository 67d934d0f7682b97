"""Names of forward ops in place of backward functions: `AddmmBackward0` becomes `addmm`.

Autograd names a backward function after the op of torch that it differentiates, in capitals, with `Backward` and a number for
the overload. This writes the op's own name again. A custom Function keeps the name of its class.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gradviz.graph import Graph, Node

_BACKWARD = re.compile(r"Backward\d*$")
_WORD_STARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_DIMENSIONS = re.compile(r"(\d)D")


def forward_name(node: Node) -> str:
    """The op that a node is the backward of.

    >>> forward_name(Node(0, "NativeLayerNormBackward0"))
    'native_layer_norm'
    >>> forward_name(Node(0, "MaxPool2DWithIndicesBackward0"))
    'max_pool2d_with_indices'
    """
    if node.function is not None:
        return node.function.name.rpartition(".")[2]
    if node.op == "CopySlices":
        return "copy_ into a view"
    name = _BACKWARD.sub("", node.op)
    if name == node.op:  # AccumulateGrad, and names that are not made by autograd's rule
        return node.op
    return _WORD_STARTS.sub("_", _DIMENSIONS.sub(r"\1d", name)).lower()


def with_forward_names(graph: Graph) -> Graph:
    """The graph with every op named as in the forward pass."""
    nodes = tuple(node._replace(op=forward_name(node)) for node in graph.nodes)
    return replace(graph, nodes=nodes)
