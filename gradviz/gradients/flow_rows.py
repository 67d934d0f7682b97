"""Gradient flow as rows to read: by module call, leaf, backward function or edge. Plain data; imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from gradviz.errors import FormatError
from gradviz.graph import Graph
from gradviz.graph.amounts import forward_order

if TYPE_CHECKING:
    from gradviz.gradients.flow import GradientFlow, LeafFlow
    from gradviz.gradients.size import Size

By = Literal["module", "leaf", "node", "edge"]


class FlowRow(NamedTuple):
    """One row. `number` is the place in execution order, from 1, of the first function that the row stands for.

    The sizes are those of the gradient at what the row names; None where no gradient came. `parameters` is, for a module
    call, the norm of the gradient that this call gives to the leaves that it uses itself, else None.
    """

    number: int | None
    name: str
    type: str
    norm: float | None
    max: float | None
    zeros: float | None
    nonfinite: int | None
    parameters: float | None = None


def best_by(graph: Graph) -> By:
    """By module where module calls are known, else by leaf."""
    return "module" if graph.scopes else "leaf"


def rows(flow: GradientFlow, by: By | None = None) -> list[FlowRow]:
    """All rows. Modules and leaves come in the order of the forward pass, functions and edges in backward's.

    Raises FormatError for an unknown `by`, and for modules where none were recorded.
    """
    chosen = by or best_by(flow.graph)
    if chosen not in get_args(By):
        raise FormatError(f"by cannot be {by!r}. Valid are: {', '.join(get_args(By))}.")
    if chosen == "module" and not flow.graph.scopes:
        raise FormatError(
            "this graph has no modules: none were called, or none were recorded. Use by leaf, node or edge."
        )
    return {"module": _modules, "leaf": _leaves, "node": _nodes, "edge": _edges}[chosen](flow)


def _row(
    number: int | None, name: str, type: str, size: Size | LeafFlow | None, parameters: float | None = None
) -> FlowRow:
    if size is None:
        return FlowRow(number, name, type, None, None, None, None, parameters)
    return FlowRow(number, name, type, size.norm, size.max, size.zeros, size.nonfinite, parameters)


def _places(flow: GradientFlow) -> dict[int, int]:
    return {node: i for i, node in enumerate(flow.order, 1)}


def _nodes(flow: GradientFlow) -> list[FlowRow]:
    nodes = flow.graph.nodes
    return [
        _row(i, " = ".join(nodes[node].names), nodes[node].op, flow.incoming.get(node))
        for i, node in enumerate(flow.order, 1)
    ]


def _edges(flow: GradientFlow) -> list[FlowRow]:
    graph, place_of = flow.graph, _places(flow)
    edges = [
        _row(place_of.get(edge.consumer), f"{title(graph, edge.consumer)} -> {title(graph, edge.producer)}", "", size)
        for edge, size in flow.edges
    ]
    return sorted(edges, key=lambda row: row.number or math.inf)


def title(graph: Graph, node: int) -> str:
    """What to call a node in one word or two: the output's or the leaf's name, a variable's, else its op."""
    names = graph.nodes[node].names or tuple(root.name for root in graph.roots_of.get(node, ()))
    leaf = graph.leaf_of.get(node)
    if not names and leaf is not None:
        return f"an {leaf.kind}" if leaf.kind == "input" else f"a {leaf.kind}"
    return " = ".join(names) or graph.nodes[node].op


def _leaves(flow: GradientFlow) -> list[FlowRow]:
    """Leaves in the order in which the forward pass used them, those without a gradient too."""
    graph, place_of = flow.graph, _places(flow)
    sizes = {leaf.node: leaf for leaf in flow.leaves}
    ordered = dict.fromkeys(
        edge.producer for node in forward_order(graph) for edge in graph.inputs(node) if edge.producer in graph.leaf_of
    )
    return [_row(place_of.get(node), title(graph, node), graph.leaf_of[node].kind, sizes.get(node)) for node in ordered]


def _modules(flow: GradientFlow) -> list[FlowRow]:
    """Every module call that ran backward functions of its own, in forward order."""
    graph, place_of = flow.graph, _places(flow)
    members: dict[int, list[int]] = {}
    for node in forward_order(graph):
        scope = graph.nodes[node].scope
        if scope is not None and graph.nodes[node].sequence is not None:
            members.setdefault(scope, []).append(node)
    size_of = dict(flow.edges)
    calls = []
    for scope, inside in members.items():
        record = graph.scopes[scope]
        name = (record.path or "(outermost)") + (f" call {record.call}" if record.call > 1 else "")
        first = min((place_of[node] for node in inside if node in place_of), default=None)
        given = [size_of[edge] for node in inside for edge in graph.inputs(node) if edge.producer in graph.leaf_of]
        calls.append(_row(first, name, record.type, _at_output(flow, set(inside)), _together(given)))
    return calls


def _at_output(flow: GradientFlow, inside: set[int]) -> Size | None:
    """The largest gradient that comes into these nodes from elsewhere."""
    graph = flow.graph
    outer = [
        node
        for node in inside
        if node in graph.roots_of or any(edge.consumer not in inside for edge in graph.consumers(node))
    ]
    sizes = [flow.incoming[node] for node in outer if node in flow.incoming]
    return max(sizes, key=lambda size: (size.nonfinite, size.norm), default=None)


def _together(sizes: Iterable[Size | None]) -> float | None:
    """The norm of several gradients taken as one."""
    norms = [size.norm for size in sizes if size is not None]
    return math.sqrt(sum(norm * norm for norm in norms)) if norms else None


# -- bars --------------------------------------------------------------------------------------------------------------

_SMALLEST = 5e-324  # of the positive float64 numbers
_DECADES = 3.0  # a scale spans at least this much, so that alike gradients look alike


class Scale(NamedTuple):
    """A logarithmic scale from the smallest to the largest norm."""

    low: float
    high: float

    def part(self, norm: float | None) -> float | None:
        """Where a norm stands, 0 to 1; None where there is none, it is zero, or it is not finite."""
        if norm is None or not math.isfinite(norm) or norm <= 0:
            return None
        if self.high <= self.low:
            return 1.0
        return (math.log10(norm) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))


def scale(norms: Sequence[float | None]) -> Scale | None:
    """The scale of these norms, None where none of them is positive and finite."""
    known = [norm for norm in norms if norm is not None and math.isfinite(norm) and norm > 0]
    if not known:
        return None
    high = max(known)
    return Scale(max(min(min(known), high / 10**_DECADES), _SMALLEST), high)
