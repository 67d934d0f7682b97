"""What is written on the edges of a picture: which tensor goes along one, by name and
shape; and which edges are drawn as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from gradviz.draw import details
from gradviz.draw.options import Options
from gradviz.draw.summary import telling
from gradviz.fold.folding import Folding, taken
from gradviz.fold.order import is_view
from gradviz.graph import BackwardStep, Edge, Graph, Node, TensorInfo
from gradviz.graph.origins import module_path
from gradviz.report import labels
from gradviz.wording import plural, tensor_line

MOST = 3
"""Names on one edge; where there are more, none is written."""
# edges between the same two boxes that are still drawn one by one; more are one link
APART = 2
LABELLED = 2000  # boxes above which no edge says what it carries


class DrawnEdge(NamedTuple):
    """One line of a picture: an edge, or several that it stands for."""

    edge: Edge
    label: str


class EdgeWords:
    """Of one folding. `brief` leaves out of a text what goes without saying; `numbers` are
    the steps of backward by node, where they are drawn.
    """

    def __init__(
        self,
        folding: Folding,
        options: Options,
        brief: Callable[[str], str],
        numbers: Mapping[int, BackwardStep],
    ) -> None:
        self._folding, self._options = folding, options
        self._brief, self._numbers = brief, numbers
        self._bundles = _bundles(folding)
        self._arriving: dict[int, set[TensorInfo | None]] = {}

    def drawn(self, edge: Edge) -> DrawnEdge | None:
        """The line for an edge; None where another line stands for it."""
        own = _without_shared(self._folding, edge)
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
        (node, *others) = self._folding.inside[edge.consumer]
        step = None if others else self._numbers.get(node)
        # several gradients have no factor in common
        factor = details.factor_text(step, edge.position) if len(edges) == 1 else ""
        return " ".join(filter(None, (name, shape, factor)))

    def _carried(self, edges: Sequence[Edge]) -> tuple[str, str]:
        """The variables that hold what goes along edges of one box, and its shape where
        the box changed that: `q`, `(5, 8)`.
        """
        folding, maker = self._folding, edges[0].producer
        box = folding.boxes[maker]
        if self._options.details or maker in folding.leaf_in:
            return "", ""
        if folding.size > LABELLED:
            return "", ""
        tensors = [tensor for edge in edges for tensor in tensors_along(folding, edge)]
        if not tensors and len(folding.inside[maker]) > 1:
            return self._parameters(edges), ""
        if max(edge.output for edge in edges) >= len(box.outputs):
            return "", ""
        named = _named(folding, tensors)
        names = dict.fromkeys(name_of(folding.graph, *tensor) for tensor in named)
        words = self._joined(names, box.scope)
        tensor = kind_of_tensors(folding.graph, _as_made(box, folding.graph, tensors))
        # `e2` is no name with the shape of `e2.T`
        is_other = kind_of_tensors(folding.graph, named) != tensor
        if is_other and (words or self._is_called(edges)):
            tensor = None
        return words, self._shape_made(maker, tensor)

    def _shape_made(self, box: int, tensor: TensorInfo | None) -> str:
        """The shape of what leaves a box; "" where it came in so."""
        if box not in self._arriving:
            self._arriving[box] = self._inputs_of(box)
        is_same = tensor is None or tensor in self._arriving[box]
        return "" if is_same else self._shape(tensor)

    def _parameters(self, edges: Sequence[Edge]) -> str:
        """Parameters that are drawn inside a box, and that others take from there."""
        folding, graph = self._folding, self._folding.graph
        inside = graph.leaf_of.keys() & {*folding.inside[edges[0].producer]}
        taken_by = folding.inside[edges[0].consumer]
        leaves = dict.fromkeys(node for node, _ in taken(graph, taken_by, inside))
        names = [
            name.rpartition(".")[2]
            for node in leaves
            for name in graph.leaf_of[node].names[:1]
        ]
        return (
            ", ".join(names) if len(names) <= MOST else plural(len(names), "parameter")
        )

    def _is_called(self, edges: Sequence[Edge]) -> bool:
        """Whether what takes something is a call of torch that may view it before."""
        takers = (self._folding.inside[edge.consumer] for edge in edges)
        nodes = self._folding.graph.nodes
        return any(
            nodes[node].written.isidentifier() for taker in takers for node in taker
        )

    def _shape(self, tensor: TensorInfo | None) -> str:
        """Shape and dtype, as far as they do not go without saying."""
        lines = telling([tensor_line(tensor)], self._brief)
        return "".join(map(self._brief, lines)).strip()

    def _inputs_of(self, box: int) -> set[TensorInfo | None]:
        """The kinds of tensors that a box gets from others, leaves apart."""
        folding = self._folding
        edges = (e for e in folding.inputs(box) if e.producer not in folding.leaf_in)
        given = ((folding.boxes[edge.producer].outputs, edge.output) for edge in edges)
        return {outputs[output] for outputs, output in given if output < len(outputs)}

    def _passed_on(self, edge: Edge) -> str:
        """What goes round a loop, where that is a few variables: `h, c`."""
        folding, box = self._folding, self._folding.boxes[edge.consumer]
        group = box.folded
        # what the second turn takes from the first holds for all
        passed = _named(folding, group.passed) if group is not None else ()
        names = dict.fromkeys(name_of(folding.graph, *tensor) for tensor in passed)
        # the loop says its own, where the graph does not know whose a tensor is
        if group is not None and group.code and not all(names):
            written = group.code.split(", ")
            if len(written) == len(passed):
                names = dict.fromkeys(written)
        return self._joined(names, box.scope)

    def _joined(self, names: Collection[str], scope: int | None) -> str:
        """Names as the module says them whose frame is around the box; "" for more than a
        few, and where one tensor has none.
        """
        if self._options.names != "auto" or not all(names) or len(names) > MOST:
            return ""
        path = module_path(self._folding.graph.scopes, scope)
        return labels.relative(", ".join(names), path)


# -- the variables of the user's that hold a tensor ------------------------------------

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
    return taken(graph, users, inside)


def _as_made(box: Node, graph: Graph, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Those that are as a box gave them: none where an op writes into a view of one, which
    is what a module may have given.
    """
    is_base = any(
        graph.ops[edge.consumer] == "CopySlices" and edge.output == output
        for node, output in tensors
        for edge in graph.consumers(node)
    )
    return () if is_base and box.folded is not None else tensors


def kind_of_tensors(graph: Graph, tensors: Sequence[Tensor]) -> TensorInfo | None:
    """Shape and dtype of what goes along an edge; None where that is not one kind."""
    outputs = [(graph.nodes[node].outputs, output) for node, output in tensors]
    kinds = {
        several[output] if output < len(several) else None
        for several, output in outputs
    }
    return kinds.pop() if len(kinds) == 1 else None


def _named(folding: Folding, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The tensors whose names these have: in a folded graph, where an op is drawn with its
    views, also what they are views of.
    """
    if folding.opening is None:
        return tensors
    return [_behind_views(folding, *tensor) for tensor in tensors]


def _behind_views(folding: Folding, node: int, output: int) -> Tensor:
    """A tensor with a name, or the one that it is a view or a copy of and that has one;
    else the last that could be followed. A view with a box of its own makes another one,
    and so does one that a function or a module returns.
    """
    graph, members = folding.graph, folding.inside[folding.box_of[node]]
    if all(is_view(graph.nodes[member].op) for member in members):
        return node, output
    homes = {_home(graph.nodes[edge.consumer]) for edge in graph.consumers(node)}
    while is_view(graph.nodes[node].op) and homes == {_home(graph.nodes[node])}:
        inputs = graph.inputs(node)
        if name_of(graph, node, output) or len(inputs) != 1:
            break
        node, output = inputs[0].producer, inputs[0].output
    return node, output


def _home(node: Node) -> tuple[int | None, str]:
    """The call of a module and the function whose code made a node."""
    return node.scope, node.source.function if node.source is not None else ""


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
    return labels.names_text(name for name in names if name not in outputs)


# -- edges drawn as one: what runs from one box to another in three edges or more ------


def _bundles(folding: Folding) -> dict[tuple[int, int], list[Edge]]:
    """Edges by (producer, consumer), in their order."""
    ends = zip(folding.producers, folding.users)
    bundles: dict[tuple[int, int], list[Edge]] = {
        pair: []
        for pair, count in Counter(ends).items()
        if count > APART and pair[0] != pair[1]
    }

    for edge in folding.edges if bundles else ():
        bundle = bundles.get((edge.producer, edge.consumer))
        own = _without_shared(folding, edge) if bundle is not None else None
        if bundle is not None and own is not None:
            bundle.append(own)

    return {pair: edges for pair, edges in bundles.items() if len(edges) > APART}


def _without_shared(folding: Folding, edge: Edge) -> Edge | None:
    """The edge without its uses of parameters that are drawn with an earlier call, as
    the box says; None if that is all.
    """
    shared = folding.shared.get(edge[:3], 0)
    return edge._replace(count=edge.count - shared) if edge.count > shared else None
