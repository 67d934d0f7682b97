"""The variables of the user's that hold what goes along an edge of a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradviz.fold.order import is_view
from gradviz.graph import Edge, Graph, TensorInfo, column
from gradviz.report.labels import names_text

MOST = 3
"""Names on one edge; where there are more, none is written."""


def tensors_along(graph: Graph, edge: Edge) -> list[tuple[int, int]]:
    """The tensors that go along an edge, as nodes of the whole graph and numbers of
    their outputs: between folded boxes those that ops of one take from ops of the other.
    """
    whole = graph.original
    if whole is None:
        return [(edge.producer, edge.output)]

    inside = set(graph.inside[edge.producer])
    # a parameter that is drawn inside a box, and that the other box uses again, is no
    # data that goes from one to the other
    inside = inside.difference(whole.leaf_of) or inside
    makers: dict[tuple[int, int], None] = {}
    for user in _in_order(whole, graph.inside[edge.consumer]):
        for use in whole.inputs(user):
            if use.producer in inside:
                makers[use.producer, use.output] = None
    return list(makers)


def _in_order(graph: Graph, nodes: Iterable[int]) -> list[int]:
    """Nodes as their ops ran."""
    sequence = column(graph.nodes, "sequence")
    return sorted(nodes, key=lambda node: sequence[node] or 0)


def held_names(graph: Graph, tensors: Sequence[tuple[int, int]]) -> str:
    """`q`, or `box, cls` for what goes along an edge; "" where one has no name."""
    whole, name = graph.original, name_behind_views
    if whole is None:
        whole, name = graph, name_of
    names = {name(whole, *tensor): None for tensor in tensors}
    return ", ".join(names) if len(names) <= MOST and all(names) else ""


def kind_of_tensors(
    graph: Graph, tensors: Sequence[tuple[int, int]]
) -> TensorInfo | None:
    """Shape and dtype of what goes along an edge; None where that is not one kind."""
    whole = graph.original or graph
    outputs = [(whole.nodes[node].outputs, output) for node, output in tensors]
    kinds = {
        several[output] if output < len(several) else None
        for several, output in outputs
    }
    return kinds.pop() if len(kinds) == 1 else None


def passed_on(graph: Graph, edge: Edge) -> list[str]:
    """The names of the tensors that one turn of a folded box hands to the next, "" for
    one without; none where the second takes nothing from the first.
    """
    group, whole = graph.nodes[edge.consumer].folded, graph.original or graph
    # what the second turn takes from the first holds for all
    passed = group.passed if group is not None else ()
    return [name_behind_views(whole, *tensor) for tensor in passed]


def name_behind_views(graph: Graph, node: int, output: int = 0) -> str:
    """The name of a tensor, or of the one that it is a view or a copy of."""
    return name_of(graph, *named_behind_views(graph, node, output))


def named_behind_views(graph: Graph, node: int, output: int = 0) -> tuple[int, int]:
    """A tensor with a name, or the one that it is a view or a copy of and that has one;
    else the last that could be followed.
    """
    while is_view(graph.nodes[node].op):
        inputs = graph.inputs(node)
        if name_of(graph, node, output) or len(inputs) != 1:
            break
        node, output = inputs[0].producer, inputs[0].output
    return node, output


def name_of(graph: Graph, node: int, output: int = 0) -> str:
    """The variable that the line assigns, else those that hold the tensor. An output
    has a box with its name.
    """
    record = graph.nodes[node]
    if len(record.outputs) > 1:
        # `q, k, v = x.chunk(3)` names each of them, or nobody knows which it is
        names: Sequence[str] = record.assigned.split(", ")
        return names[output] if len(names) == len(record.outputs) else ""

    outputs = {root.name for root in graph.roots_of.get(node, ())}
    names = (record.assigned,) if record.assigned else record.names
    return names_text(name for name in names if name not in outputs)
