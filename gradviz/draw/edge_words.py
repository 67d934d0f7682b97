"""What is written on the edges of a picture: which tensor goes along one, by name and
shape; and which edges are drawn as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gradviz.draw import details
from gradviz.draw.names import (
    MOST,
    held_names,
    kind_of_tensors,
    named_behind_views,
    passed_on,
    tensors_along,
)
from gradviz.draw.options import Options
from gradviz.graph import BackwardStep, Edge, Graph, TensorInfo, column
from gradviz.graph.origins import module_path
from gradviz.report import labels
from gradviz.wording import tensor_line

# edges between the same two boxes that are still drawn one by one; more are one link
APART = 2
LABELLED = 2000  # boxes above which no edge says what it carries


class DrawnEdge(NamedTuple):
    """One line of a picture: an edge, or several that it stands for."""

    edge: Edge
    label: str


class EdgeWords:
    """Of one graph. `brief` leaves out of a text what goes without saying; `numbers` are
    the steps of backward by box, where they are drawn.
    """

    def __init__(
        self,
        graph: Graph,
        options: Options,
        brief: Callable[[str], str],
        numbers: Mapping[int, BackwardStep],
    ) -> None:
        self._graph, self._options = graph, options
        self._brief, self._numbers = brief, numbers
        self._bundles = _bundles(graph)
        self._arriving: dict[int, set[TensorInfo | None]] = {}

    def drawn(self, edge: Edge) -> DrawnEdge | None:
        """The line for an edge; None where another line stands for it."""
        own = _without_shared(self._graph, edge)
        if own is None:
            return None

        ends = own.producer, own.consumer
        bundle = self._bundles.get(ends, [own])
        # the first edge is drawn for all of them
        if own != bundle[0]:
            return None
        return DrawnEdge(own, self._text(bundle))

    def _text(self, edges: Sequence[Edge]) -> str:
        """What is said of edges that are drawn as one."""
        edge = edges[0]
        if edge.producer == edge.consumer:
            return self._passed_on(edge)

        name, shape = self._carried(edges)
        step = self._numbers.get(edge.consumer)
        # several gradients have no factor in common
        factor = details.factor_text(step, edge.position) if len(edges) == 1 else ""
        return " ".join(filter(None, (name, shape, factor)))

    def _carried(self, edges: Sequence[Edge]) -> tuple[str, str]:
        """The variables that hold what goes along edges of one box, and its shape where
        the box changed that: `q`, `(5, 8)`.
        """
        graph, node = self._graph, edges[0].producer
        record = graph.nodes[node]
        if self._options.details or node in graph.leaf_of:
            return "", ""
        last = max(edge.output for edge in edges)
        if len(graph.nodes) > LABELLED or last >= len(record.outputs):
            return "", ""

        tensors = [tensor for edge in edges for tensor in tensors_along(graph, edge)]
        tensor = kind_of_tensors(graph, tensors)
        if node not in self._arriving:
            self._arriving[node] = self._inputs_of(node)

        names = held_names(graph, tensors) if self._options.names == "auto" else ""
        if tensor is None or tensor in self._arriving[node]:
            shape = ""
        elif names and kind_of_tensors(graph, _named(graph, tensors)) != tensor:
            shape = ""  # `e2` is no name with the shape of `e2.T`
        else:
            shape = self._shape(tensor)
        return self._relative(names, record.scope), shape

    def _shape(self, tensor: TensorInfo | None) -> str:
        """Shape and dtype, as far as they do not go without saying."""
        text = self._brief(tensor_line(tensor)).strip()
        return "" if text == "()" else text

    def _inputs_of(self, node: int) -> set[TensorInfo | None]:
        """The kinds of tensors that a box gets from others, leaves apart."""
        graph = self._graph
        return {
            graph.nodes[edge.producer].outputs[edge.output]
            for edge in graph.inputs(node)
            if edge.producer not in graph.leaf_of
            and edge.output < len(graph.nodes[edge.producer].outputs)
        }

    def _passed_on(self, edge: Edge) -> str:
        """What goes round a loop, where that is a few variables: `h, c`."""
        names = dict.fromkeys(passed_on(self._graph, edge))
        group = self._graph.nodes[edge.consumer].folded
        # the loop says its own, where the graph does not know whose a tensor is
        if group is not None and group.code and not all(names):
            written = group.code.split(", ")
            if len(written) == len(passed_on(self._graph, edge)):
                names = dict.fromkeys(written)
        if self._options.names != "auto" or not all(names) or len(names) > MOST:
            return ""
        box = self._graph.nodes[edge.consumer]
        return self._relative(", ".join(names), box.scope)

    def _relative(self, names: str, scope: int | None) -> str:
        """Names as the module says them whose frame is around the box."""
        return labels.relative(names, module_path(self._graph.scopes, scope))


Tensors = Sequence[tuple[int, int]]


def _named(graph: Graph, tensors: Tensors) -> Tensors:
    """The tensors whose names these have."""
    whole = graph.original
    if whole is None:
        return tensors
    return [named_behind_views(whole, *tensor) for tensor in tensors]


# -- edges drawn as one: what runs from one box to another in three edges or more ------


def _bundles(graph: Graph) -> dict[tuple[int, int], list[Edge]]:
    """Edges by (producer, consumer), in the order of the graph."""
    ends = zip(column(graph.edges, "producer"), column(graph.edges, "consumer"))
    bundles: dict[tuple[int, int], list[Edge]] = {
        pair: []
        for pair, count in Counter(ends).items()
        if count > APART and pair[0] != pair[1]
    }

    for edge in graph.edges if bundles else ():
        bundle = bundles.get((edge.producer, edge.consumer))
        own = _without_shared(graph, edge) if bundle is not None else None
        if bundle is not None and own is not None:
            bundle.append(own)

    return {pair: edges for pair, edges in bundles.items() if len(edges) > APART}


def _without_shared(graph: Graph, edge: Edge) -> Edge | None:
    """The edge without its uses of parameters that are drawn with an earlier call, as
    the box says; None if that is all.
    """
    group = graph.nodes[edge.consumer].group
    if group is None or not group.shared:
        return edge
    shared = sum(
        uses.count for uses in group.shared if uses[:2] == (edge.producer, edge.output)
    )
    return edge._replace(count=edge.count - shared) if edge.count > shared else None
