"""Nodes as operations: of which kind one is, what it made, and what comes before and
after it, also behind changes of shape.
"""

from __future__ import annotations

from gradviz.graph import Graph, TensorInfo
from gradviz.graph.kinds import kind as kind, kind_of as kind_of
from gradviz.graph.walks import (
    behind as behind,
    makers as makers,
    spread as spread,
    users as users,
)

RESHAPES = frozenset(
    [
        "View",
        "UnsafeView",
        "Squeeze",
        "Unsqueeze",
        "Permute",
        "Transpose",
        "T",
        "ToCopy",
        "Slice",
        "Clone",
        "Alias",
        "Reshape",
        "Expand",
    ]
)
"""Kinds that give the same numbers another shape, dtype or place."""
PRODUCTS = frozenset(("Addmm", "Mm", "Convolution"))
"""Kinds that a layer with weights consists of."""

Sizes = tuple[int, ...] | None
"""The shape of a tensor in numbers; None where it is not known."""


def made(graph: Graph, node: int, output: int = 0) -> TensorInfo | None:
    """What an operation made, where that is known."""
    outputs = graph.outputs[node]
    return outputs[output] if output < len(outputs) else None


def shape(graph: Graph, node: int) -> Sizes:
    """The shape of what an operation made, where that is known in numbers."""
    tensor = made(graph, node)
    if tensor is None or tensor.shape is None:
        return None
    sizes = tuple(size for size in tensor.shape if isinstance(size, int))
    return sizes if sizes == tensor.shape else None
