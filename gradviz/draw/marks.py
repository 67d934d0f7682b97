"""Which boxes and edges of a folding are marked. Read from `Graph.marks`, which has the
numbers of nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gradviz.fold.folding import Folding
from gradviz.graph import Mark


class Marked(NamedTuple):
    """Marks by box, by (consumer, producer) of edges between boxes, and by name of outputs
    without a node.

    `all` is every mark, also those that mark nothing here.
    """

    boxes: Mapping[int, Sequence[Mark]]
    edges: Mapping[tuple[int, int], Sequence[Mark]]
    outputs: Mapping[str, Sequence[Mark]]
    all: tuple[Mark, ...]


def marked(folding: Folding) -> Marked:
    """The marks of every box and edge; a closed box has those of all nodes inside it.

    >>> from gradviz.fold.folding import unfolded
    >>> from gradviz.graph import Graph, Mark, Node
    >>> graph = Graph((Node(0, "MulBackward0"),), marks=(Mark(1, "no-graph", "loss has no graph", (0,)),))
    >>> [mark.number for mark in marked(unfolded(graph)).boxes[0]]
    [1]
    """
    graph = folding.graph
    if not graph.marks:
        return Marked({}, {}, {}, ())

    box_of = folding.box_of
    boxes: dict[int, list[Mark]] = {}
    edges: dict[tuple[int, int], list[Mark]] = {}
    outputs: dict[str, list[Mark]] = {}

    for mark in graph.marks:
        # a closed box may hold several of its nodes, and shows the mark once
        for box in {box_of[node] for node in mark.nodes}:
            boxes.setdefault(box, []).append(mark)
        ends = {
            (box_of[edge.consumer], box_of[edge.producer])
            for consumer, position in mark.edges
            for edge in graph.inputs(consumer)
            if edge.position == position
        }
        for pair in ends:
            edges.setdefault(pair, []).append(mark)
        for name in mark.outputs:
            outputs.setdefault(name, []).append(mark)

    return Marked(boxes, edges, outputs, graph.marks)
