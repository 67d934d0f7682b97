"""The dimension that a softmax runs over, against that in which the classes are picked."""

from __future__ import annotations

from math import prod

from gradviz.checks.ops import kind, shape
from gradviz.checks.registry import Diagnosis
from gradviz.checks.words import title_and_code, where as place
from gradviz.graph import Graph

_ELEMENTWISE = ("Log", "Add", "Mul", "Div", "Clamp", "ClampMin", "ClampMax", "Neg", "Clone", "Alias", "ToCopy")


def across(graph: Graph, loss: int) -> Diagnosis | None:
    """A softmax over another dimension than the one that a loss, or a gather for each row, picks its classes in.

    The dimension is followed through changes of shape. Where the two have one size, nothing is said: a matrix of similarities is
    compared in both directions.
    """
    edge = next(iter(graph.inputs(loss)), None)
    sizes = shape(graph, edge.producer, edge.output) if edge is not None else None
    picked = _picked(graph, loss, sizes) if sizes is not None and len(sizes) > 1 else None
    while picked is not None and edge is not None and sizes is not None:
        node, inputs = edge.producer, graph.inputs(edge.producer)
        if kind(graph, node) in ("LogSoftmax", "Softmax"):
            dim = dimension(graph.nodes[node].attributes.get("dim"), len(sizes))
            wrong = dim is not None and dim != picked and sizes[dim] != sizes[picked] != 1
            return _wrong(graph, (loss, node), sizes, (dim, picked)) if wrong and dim is not None else None
        edge = inputs[0] if len(inputs) == 1 else None
        before = shape(graph, edge.producer, edge.output) if edge is not None else None
        picked, sizes = _same(graph, node, picked, before or (), sizes), before
    return None


def _picked(graph: Graph, loss: int, sizes: tuple[int, ...]) -> int | None:
    """The dimension of its input in which an operation picks one class for each row, or adds them up; None for all others."""
    op, attributes = kind(graph, loss), graph.nodes[loss].attributes
    if op == "Gather":
        chosen = dimension(attributes.get("dim"), len(sizes))
        rows = chosen is not None and shape(graph, loss) == (*sizes[:chosen], 1, *sizes[chosen + 1 :])
        return chosen if rows else None
    dims = attributes.get("dim")
    soft = op == "Sum" and len(sizes) == 2 and isinstance(dims, tuple) and [dimension(dim, 2) for dim in dims] == [1]
    return 1 if op == "NllLoss" or soft else None  # a sum over the classes: soft targets


def _same(graph: Graph, node: int, dim: int, before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """Which dimension of what a node was given became this one of what it made; None where that is not known."""
    op, attributes = kind(graph, node), graph.nodes[node].attributes
    if op in _ELEMENTWISE:
        return dim if before == after else None
    if op in ("T", "Transpose"):
        names = ("dim0", "dim1") if op == "Transpose" else ()
        pair = [dimension(attributes.get(name), len(before)) for name in names] or [0, 1]
        return None if None in pair else pair[1 - pair.index(dim)] if dim in pair else dim
    if op in ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze"):
        alike = (i for i, size in enumerate(before) if size == after[dim] > 1)
        return next((i for i in alike if prod(before[:i]) == prod(after[:dim])), None)
    return None


def dimension(value: object, count: int) -> int | None:
    """A dimension as autograd keeps it, counted from the first one."""
    if not isinstance(value, int):
        return None
    value = value - 2**64 if value >= 2**63 else value
    return value % count if -count <= value < count else None


def _wrong(graph: Graph, nodes: tuple[int, int], sizes: tuple[int, ...], dims: tuple[int, int]) -> Diagnosis:
    (loss, node), (dim, picked) = nodes, dims
    name = "softmax" if kind(graph, node) == "Softmax" else "log_softmax"
    what = "the batch" if dim == 0 else f"dimension {dim}"
    return Diagnosis(
        f"{name} is taken over {what}, and the classes are picked in dimension {picked}",
        (),
        f"{title_and_code(graph, node)} runs over dimension {dim} of {sizes}, so the probabilities of one sample do not add up to "
        f"1; {title_and_code(graph, loss)} picks one of the {sizes[picked]} in dimension {picked} for each",
        f"Take it over the classes: dim={picked} in place of dim={dim}.",
        (node, loss),
        where=place(graph, node),
        follows=("mixed-samples",),
    )
