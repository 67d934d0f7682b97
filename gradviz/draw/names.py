"""The variables of the user's that hold what goes along an edge of a picture."""

from __future__ import annotations

from gradviz.graph import Edge, Graph
from gradviz.report.labels import names_text

MOST = 3
"""Names on one edge; where there are more, none is written."""


def held_names(graph: Graph, edge: Edge) -> str:
    """`q`, or `box, cls` where several ops of a folded box make what goes along the
    edge; "" where one has no name.
    """
    whole = graph.original
    if whole is None:
        return name_of(graph, edge.producer)

    inside = set(graph.inside[edge.producer])
    users = graph.inside[edge.consumer]
    makers = {
        use.producer
        for user in users
        for use in whole.inputs(user)
        if use.producer in inside
    }
    names = {maker: name_of(whole, maker) for maker in sorted(makers)}
    if len(names) > MOST or not all(names.values()):
        return ""
    return ", ".join(dict.fromkeys(names.values()))


def name_of(graph: Graph, node: int) -> str:
    """The variable that the line assigns, else those that hold the tensor. An output
    has a box with its name.
    """
    record = graph.nodes[node]
    if len(record.outputs) > 1:
        return ""  # nobody knows which of them it is

    outputs = {root.name for root in graph.roots_of.get(node, ())}
    names = (record.assigned,) if record.assigned else record.names
    return names_text(name for name in names if name not in outputs)
