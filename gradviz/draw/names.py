"""The variables of the user's that hold what goes along an edge of a picture."""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.fold.folding import Folding
from gradviz.fold.order import is_view
from gradviz.graph import Edge, Graph, TensorInfo
from gradviz.report.labels import names_text

MOST = 3
"""Names on one edge; where there are more, none is written."""


Tensor = tuple[int, int]
"""A node of the graph, and which of its outputs."""


def tensors_along(folding: Folding, edge: Edge) -> list[Tensor]:
    """The tensors that go along an edge: between closed boxes those that ops of one take
    from ops of the other.
    """
    makers, users = folding.inside[edge.producer], folding.inside[edge.consumer]
    if len(makers) == len(users) == 1:
        return [(makers[0], edge.output)]

    graph = folding.graph
    # a parameter that is drawn inside a box, and that the other box uses again, is no
    # data that goes from one to the other
    inside = set(makers).difference(graph.leaf_of) or set(makers)
    in_order = sorted(users, key=lambda node: graph.nodes[node].sequence or 0)
    uses = (use for user in in_order for use in graph.inputs(user))
    taken = ((use.producer, use.output) for use in uses if use.producer in inside)
    return list(dict.fromkeys(taken))


def held_names(folding: Folding, tensors: Sequence[Tensor]) -> str:
    """`q`, or `box, cls` for what goes along an edge; "" where one has no name."""
    name = name_of if folding.opening is None else name_behind_views
    names = {name(folding.graph, *tensor): None for tensor in tensors}
    return ", ".join(names) if len(names) <= MOST and all(names) else ""


def kind_of_tensors(graph: Graph, tensors: Sequence[Tensor]) -> TensorInfo | None:
    """Shape and dtype of what goes along an edge; None where that is not one kind."""
    outputs = [(graph.nodes[node].outputs, output) for node, output in tensors]
    kinds = {
        several[output] if output < len(several) else None
        for several, output in outputs
    }
    return kinds.pop() if len(kinds) == 1 else None


def passed_on(folding: Folding, box: int) -> list[str]:
    """The names of the tensors that one turn of a closed loop hands to the next, "" for
    one without; none where the second takes nothing from the first.
    """
    group = folding.boxes[box].folded
    # what the second turn takes from the first holds for all
    passed = group.passed if group is not None else ()
    return [name_behind_views(folding.graph, *tensor) for tensor in passed]


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
