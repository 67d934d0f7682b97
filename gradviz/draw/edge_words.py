"""What is written on the edges of a picture: which tensor goes along one, by name, shape
and how often it is used; and which edges are drawn as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
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
from gradviz.report import labels
from gradviz.wording import plural, tensor_line

# edges between the same two boxes that are still drawn one by one; more are one link
APART = 2
LABELLED = 2000  # boxes above which no edge says what it carries


class DrawnEdge(NamedTuple):
    """One line of a picture: an edge, or several that it stands for."""

    edge: Edge
    label: str
    short: str = ""  # the label without a shape, where that leaves something


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
        self._several = {edge.producer for edge in graph.edges if edge.output}
        self._arriving: dict[int, set[TensorInfo | None]] = {}

    def drawn(self, edge: Edge) -> DrawnEdge | None:
        """The line for an edge; None where another line stands for it."""
        own = _without_shared(self._graph, edge)
        if own is None:
            return None

        bundle = self._bundles.get((own.producer, own.consumer))
        if bundle is None:
            label, short = self._texts(own)
            return DrawnEdge(own, label, short)
        # the first edge is drawn for all of them
        if own != bundle[0]:
            return None

        uses = sum(edge.count for edge in bundle)
        return DrawnEdge(own, _tensors_text(len(bundle), uses))

    def which(self, node: int, output: int) -> str:
        """Which output of several a line comes from: a folded box lists its kinds of
        tensors, which have no number of their own.

        Nothing where there is one output only.
        """
        record = self._graph.nodes[node]
        as_one = record.group is not None and record.group.kind in ("chain", "op")
        if node not in self._several and (len(record.outputs) < 2 or as_one):
            return ""
        if record.group is None or output >= len(record.outputs):
            return f"output {output}"
        return self._shape(record.outputs[output])

    def _texts(self, edge: Edge) -> tuple[str, str]:
        """What is said of an edge, and the same without its shape, where there is
        one.
        """
        if edge.producer == edge.consumer:
            return self._passed_on(edge), ""

        which = self.which(edge.producer, edge.output)
        name, shape = self._carried(edge)
        if name or (shape and self._graph.nodes[edge.producer].group is not None):
            which = ""  # both are the tensor

        step = self._numbers.get(edge.consumer)
        before = _joined(which, name)
        after = (
            details.factor_text(step, edge.position),
            self._uses(edge, name),
        )
        label = _joined(before, shape, *after)
        return label, _joined(before, *after) if shape else ""

    def _carried(self, edge: Edge) -> tuple[str, str]:
        """The variable that holds what goes along an edge, and its shape where the box
        changed that: `q`, `(5, 8)`.
        """
        graph, node = self._graph, edge.producer
        record = graph.nodes[node]
        if (
            len(graph.nodes) > LABELLED
            or self._options.details
            or node in graph.leaf_of
            or edge.output >= len(record.outputs)
        ):
            return "", ""

        tensors = tensors_along(graph, edge)
        tensor = kind_of_tensors(graph, tensors)
        if node not in self._arriving:
            self._arriving[node] = self._inputs_of(node)

        shape = ""
        if tensor is not None and tensor not in self._arriving[node]:
            shape = self._shape(tensor)
        names = held_names(graph, tensors) if self._options.names == "auto" else ""
        whole = graph.original
        if names and whole is not None:
            named = [named_behind_views(whole, *one) for one in tensors]
            # `e2` is no name with the shape of `e2.T`
            shape = shape if kind_of_tensors(graph, named) == tensor else ""
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
        """What goes round a loop: `h, c to the next of 11`."""
        record = self._graph.nodes[edge.consumer]
        names = passed_on(self._graph, edge)
        if not names or record.folded is None:
            return ""

        text = plural(len(names), "tensor")
        if all(names) and len(names) <= MOST and self._options.names == "auto":
            text = self._relative(", ".join(dict.fromkeys(names)), record.scope)
        return f"{text} to the next of {record.folded.count:,}"

    def _uses(self, edge: Edge, name: str) -> str:
        """How many tensors an edge stands for, and how often they are used, where either
        is more than one and its names do not say it.
        """
        # as many names as uses: each tensor is used once
        if edge.count == 1 or edge.count == name.count(",") + 1:
            return ""
        tensors = len(tensors_along(self._graph, edge))
        if tensors > 1:
            return _tensors_text(tensors, edge.count)
        return f"used {edge.count:,} times"

    def _relative(self, names: str, scope: int | None) -> str:
        """Names as the module says them whose frame is around the box."""
        path = "" if scope is None else self._graph.scopes[scope].path
        return labels.relative(names, path)


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


def _joined(*words: str) -> str:
    return " ".join(filter(None, words))


def _tensors_text(tensors: int, uses: int) -> str:
    """`11 tensors`; with the number of uses where one is used more often:
    `11 tensors, 55 uses`.
    """
    text = plural(tensors, "tensor")
    return text if uses <= tensors else f"{text}, {plural(uses, 'use')}"
