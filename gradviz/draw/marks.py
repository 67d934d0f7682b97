"""Which boxes and edges of a graph, folded or not, are marked. Read from `Graph.marks`,
which holds ids of the whole graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gradviz.graph import Graph, Mark


class Marked(NamedTuple):
    """Marks by node id of the graph given, by (consumer, producer) of its edges, and by
    name of outputs without a node.

    `all` is every mark, also those that mark nothing here.
    """

    nodes: Mapping[int, Sequence[Mark]]
    edges: Mapping[tuple[int, int], Sequence[Mark]]
    outputs: Mapping[str, Sequence[Mark]]
    all: tuple[Mark, ...]


def marked(graph: Graph) -> Marked:
    """The marks of every box and edge; a folded box has those of all nodes inside it.

    >>> from gradviz.graph import Mark, Node
    >>> found = marked(Graph((Node(0, "MulBackward0"),), marks=(Mark(1, "no-graph", "loss has no graph", (0,)),)))
    >>> [mark.number for mark in found.nodes[0]]
    [1]
    """
    original = graph.original if graph.original is not None else graph
    if not original.marks:
        return Marked({}, {}, {}, ())

    box_of = graph.box_of
    nodes: dict[int, list[Mark]] = {}
    edges: dict[tuple[int, int], list[Mark]] = {}
    outputs: dict[str, list[Mark]] = {}

    for mark in original.marks:
        # a folded box may hold several of its nodes, and shows the mark once
        for box in {box_of[node] for node in mark.nodes}:
            nodes.setdefault(box, []).append(mark)
        ends = {
            (box_of[edge.consumer], box_of[edge.producer])
            for consumer, position in mark.edges
            for edge in original.inputs(consumer)
            if edge.position == position
        }
        for pair in ends:
            edges.setdefault(pair, []).append(mark)
        for name in mark.outputs:
            outputs.setdefault(name, []).append(mark)

    return Marked(nodes, edges, outputs, original.marks)
