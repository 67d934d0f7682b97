"""Floating-point operations of a forward pass, by torch's own formulas on the shapes
that a graph has: two a multiply-add.

Source: https://docs.pytorch.org/docs/stable/generated/torch.utils.flop_counter.FlopCounterMode.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from gradviz.fold.order import is_view
from gradviz.graph import Graph, Node
from gradviz.graph.origins import op_text

_OPERANDS = {
    "mm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "bmm": ("self", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "convolution": ("input", "weight"),
    "scaled_dot_product": ("query", "key", "value"),
}
"""What an op multiplies, by the names that autograd saves it under."""

Shape = tuple[Any, ...]
Shapes = list[Shape | None]


class Flops(NamedTuple):
    """Operations by node id, and how many ops of a kind no formula is known of."""

    of_node: Mapping[int, int]
    unknown: Mapping[str, int]


def flops(graph: Graph) -> Flops:
    """Count the operations of every node whose shapes are known."""
    counts: dict[int, int] = {}
    unknown: Counter[str] = Counter()
    for node in graph.nodes:
        if node.id in graph.leaf_of or is_view(node.op):
            continue
        count = _count(graph, node)
        if count is None:
            unknown[op_text(node)] += 1
        else:
            counts[node.id] = count
    return Flops(counts, unknown)


def _count(graph: Graph, node: Node) -> int | None:
    name = _kind(node.op)
    output = node.outputs[0] if node.outputs else None
    if not name or output is None or output.shape is None:
        return None
    shapes = [_shape(graph, node, slot) for slot in _OPERANDS[name]]
    out = output.shape
    if name.endswith("mm"):
        shapes = _both(shapes, out)
    if None in shapes:
        return None

    import torch
    from torch.utils.flop_counter import flop_registry

    arguments: list[Any] = list(shapes)
    if name in ("addmm", "baddbmm"):
        arguments.insert(0, out)
    elif name == "convolution":
        transposed = node.attributes.get("transposed", False)
        arguments += [None, (), (), (), transposed]
    elif name == "scaled_dot_product":
        name = "_scaled_dot_product_flash_attention"
    formula = flop_registry[getattr(torch.ops.aten, name)]
    return int(formula(*arguments, out_val=out))


def _kind(op: str) -> str:
    """The row of `_OPERANDS` for a backward function, "" where there is none."""
    name = op.partition("Backward")[0].lower()
    if name.startswith("scaleddotproduct"):
        return "scaled_dot_product"
    return name if name in _OPERANDS else ""


def _shape(graph: Graph, node: Node, slot: str) -> Shape | None:
    sizes = node.attributes.get(f"{slot}_sym_sizes")
    if isinstance(sizes, tuple) and sizes:
        return sizes
    for saved in node.saved:
        if saved.slot == slot and saved.tensor is not None:
            return saved.tensor.shape
    return None


def _both(shapes: Shapes, out: Shape) -> Shapes:
    """The factors of a matrix product, of which one need not be known."""
    left, right = shapes
    if left is None and right is not None:
        left = (*out[:-1], right[-2])
    if right is None and left is not None:
        right = (*left[:-2], left[-1], out[-1])
    return [left, right]
