"""The graph model: what one walk over an autograd graph found, as plain immutable
records.

A `Graph` is a snapshot. It holds no tensor, no `grad_fn` and no reference to anything
of the user's, so keeping one keeps no memory alive and reading one can disturb nothing.
Nothing here imports torch.

Direction. An edge runs from the *consumer* (nearer to the root) to the *producer*
(nearer to the leaves), as `next_functions` does. Data flowed the other way in the
forward pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from gradviz.errors import missing_attribute
from gradviz.features import load
from gradviz.graph.records import (
    Absent,
    BackwardStep,
    Construct,
    Data,
    Edge,
    FunctionCall,
    Group,
    Leaf,
    Mark,
    Node,
    NodeFlag,
    Process,
    RankShare,
    Root,
    Scope,
    Storage,
    TensorInfo,
)
from gradviz.graph.written import functions_of
from gradviz.wording import clip, plural

if TYPE_CHECKING:
    from rich.console import RenderableType
    from typing_extensions import Unpack

    from gradviz.draw.typed import DrawOptions, SaveOptions, ShowOptions

T = TypeVar("T")


class Wired:
    """What edges join, by number: the nodes of a graph, or the boxes of a folding. There are
    `size` of them; `edges` are sorted by consumer, then position.
    """

    edges: Sequence[Edge]

    @property
    def size(self) -> int:
        """How many edges may join."""
        raise NotImplementedError

    def inputs(self, node: int) -> Sequence[Edge]:
        """Edges from `node` to the producers of its inputs, by position."""
        places = self.input_places(node)
        return self.edges[places.start : places.stop]

    def consumers(self, node: int) -> tuple[Edge, ...]:
        """Edges that end at `node`: who uses its outputs."""
        return tuple([self.edges[i] for i in self.consumer_places(node)])

    def input_places(self, node: int) -> range:
        """Where the edges of `inputs` are in `edges`."""
        start = self._first_edge
        return range(start[node], start[node + 1])

    def consumer_places(self, node: int) -> Sequence[int]:
        """Where the edges of `consumers` are in `edges`."""
        places, start = self._by_producer
        return places[start[node] : start[node + 1]]

    @cached_property
    def producers(self) -> Sequence[int]:
        """Where each edge leads, by its place in `edges`."""
        return column(self.edges, "producer")

    @cached_property
    def users(self) -> Sequence[int]:
        """The consumer of each edge, by its place in `edges`."""
        return column(self.edges, "consumer")

    @cached_property
    def _first_edge(self) -> Sequence[int]:
        """Where the edges of each consumer begin, with one entry more for the end of
        the last.
        """
        return _starts(self.size, self.users)

    @cached_property
    def _by_producer(self) -> tuple[Sequence[int], Sequence[int]]:
        """Places of edges by producer, and where those of each producer begin, with one
        entry more for the end.
        """
        producers = self.producers
        start = _starts(self.size, producers)
        free = start.tolist()
        places = array("q", bytes(8 * len(self.edges)))
        for i, producer in enumerate(producers):
            places[free[producer]] = i
            free[producer] += 1
        return places, start


@dataclass(frozen=True)
class Graph(Wired):
    """A detached snapshot of an autograd graph.

    `nodes` is indexed by id; `edges` are sorted by consumer, then position. `storages`
    and `scopes` are indexed by id.

    Examples
    --------
    >>> from gradviz.graph import Graph, Node, Edge
    >>> graph = Graph(nodes=(Node(0, "AddBackward0"), Node(1, "AccumulateGrad")), edges=(Edge(0, 1, 0, 0),))
    >>> graph.inputs(0)
    (Edge(consumer=0, producer=1, output=0, position=0, count=1),)
    """

    nodes: Sequence[Node] = ()
    edges: Sequence[Edge] = ()
    leaves: tuple[Leaf, ...] = ()
    roots: tuple[Root, ...] = ()
    scopes: tuple[Scope, ...] = ()
    storages: Sequence[Storage] = ()
    title: str = ""  # what was walked: "train.py:loss"
    torch: str = ""  # version of torch that recorded the graph
    attribution: Literal["", "recorded", "inferred"] = ""  # where scopes come from
    # what a reader must know: anything cut, ambiguous or unreadable
    notes: tuple[str, ...] = ()
    # in the order of execution; empty when nobody measured gradients
    backward: tuple[BackwardStep, ...] = ()
    process: Process | None = None  # which of several processes recorded it
    # tensors without gradient that ops were given, as far as they are known
    data: tuple[Data, ...] = ()
    # the program as it was written, as far as it was seen, outer ones first
    program: tuple[Construct, ...] = ()
    # of a graph that was merged from those of several ranks
    by_rank: tuple[RankShare, ...] = ()
    # to be drawn; a graph file keeps no findings
    marks: tuple[Mark, ...] = field(default=(), compare=False, repr=False)
    # of the running program; no file keeps them
    absent: tuple[Absent, ...] = field(default=(), compare=False, repr=False)
    # of a folded graph, how that was done (`gradviz.fold.folding.Folding`)
    folding: Any = field(default=None, compare=False, repr=False)

    # -- reading -----------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @cached_property
    def ops(self) -> Sequence[str]:
        """The name of each backward function, by node id."""
        return column(self.nodes, "op")

    @cached_property
    def flags(self) -> Sequence[tuple[NodeFlag, ...]]:
        """What is known of each node, by node id."""
        return column(self.nodes, "flags")

    @cached_property
    def outputs(self) -> Sequence[tuple[TensorInfo | None, ...]]:
        """What each node made, by node id."""
        return column(self.nodes, "outputs")

    @cached_property
    def held(self) -> Sequence[int]:
        """Bytes that each node holds for backward, by node id."""
        held: Sequence[int] = load("gradviz.graph.amounts:held_bytes")(self)
        return held

    @cached_property
    def leaf_of(self) -> Mapping[int, Leaf]:
        """Leaf by the id of its AccumulateGrad node."""
        return {leaf.node: leaf for leaf in self.leaves}

    @property
    def whole(self) -> Graph:
        """The graph that was folded; the graph itself where none was."""
        graph: Graph = self if self.folding is None else self.folding.recorded
        return graph

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """What the folded nodes stand for, in order of the nodes; ops with their views
        are none.
        """
        nodes = (node.folded for node in self.nodes)
        return tuple([group for group in nodes if group is not None])

    @cached_property
    def roots_of(self) -> Mapping[int, tuple[Root, ...]]:
        """Roots by the id of the node that made them."""
        roots: dict[int, tuple[Root, ...]] = {}
        for root in self.roots:
            if root.node is not None:
                roots[root.node] = (*roots.get(root.node, ()), root)
        return roots

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Node ids so that every consumer comes before its producers (backward's
        order), deterministic.

        Raises ValueError when the edges form a cycle, which no autograd graph does. The
        box of a loop may lead to itself.
        """
        waiting = [0] * len(self.nodes)
        producers = self.producers

        for consumer, producer in zip(self.users, producers):
            waiting[producer] += (
                producer != consumer or self.nodes[producer].group is None
            )

        ready = [node for node, count in enumerate(waiting) if not count]
        for node in ready:  # grows while it is read
            for i in self.input_places(node):
                producer = producers[i]
                if producer != node:
                    waiting[producer] -= 1
                    if not waiting[producer]:
                        ready.append(producer)

        if len(ready) < len(self.nodes):
            raise ValueError(
                "the edges of this graph form a cycle, so it is not an autograd graph"
            )

        return tuple(ready)

    def with_root_names(self, names: Sequence[str]) -> Graph:
        """The same with these names for its outputs, in order; unchanged when there are
        none.

        >>> graph = Graph(roots=(Root(None, 0, "output", TensorInfo((), "float32", "cpu")),))
        >>> graph.with_root_names(["loss"]).roots[0].name
        'loss'
        """
        if not names:
            return self
        return replace(
            self,
            roots=tuple(
                [root._replace(name=name) for root, name in zip(self.roots, names)]
            ),
        )

    @cached_property
    def functions(self) -> tuple[FunctionCall, ...]:
        """The calls of functions in `program`, each with all that it made itself."""
        return functions_of(self.program)

    def fact(self, find: Callable[[Graph], T]) -> T:
        """What a function finds out about the graph, asked once. Nobody changes it."""
        if find not in self._facts:
            self._facts[find] = find(self)
        return self._facts[find]  # type: ignore[no-any-return]

    @cached_property
    def _facts(self) -> dict[Callable[[Graph], Any], Any]:
        return {}

    def with_scopes(self, scopes: tuple[Scope, ...], nodes: Sequence[Node]) -> Graph:
        """The same with other scopes for its nodes; what is known of its edges holds."""
        other = replace(self, scopes=scopes, nodes=nodes)
        vars(other).update(_first_edge=self._first_edge, _by_producer=self._by_producer)
        return other

    # -- doors to the rest of gradviz, by name: nothing of it is imported here ---------

    def __repr__(self) -> str:
        of = f" of {clip(self.title)}" if self.title else ""
        counts = (
            (len(self.nodes), "node"),
            (len(self.edges), "edge"),
            (len(self.roots), "output"),
        )
        return f"<Graph{of}: {', '.join(plural(*count) for count in counts)}>"

    def __str__(self) -> str:
        return str(load("gradviz.draw.summary:summary")(self))

    def tree(self, **options: Unpack[DrawOptions]) -> RenderableType:
        """The graph as a terminal tree, a rich renderable. Options:
        `gradviz.draw.options.Options`.
        """
        checked = load("gradviz.draw.options:Options").of(options)
        return load("gradviz.draw.tree:tree")(self, checked)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise missing_attribute(name, "'Graph' object")

    def to_svg(self, **options: Unpack[DrawOptions]) -> str:
        """The picture as text, as `save` writes it to an SVG file. Options are those of
        `save`.
        """
        checked = load("gradviz.draw.options:Options").of(options)
        return str(load("gradviz.draw.output:render")(self, "svg", checked))

    def to_png(self, **options: Unpack[DrawOptions]) -> bytes:
        """The same as the bytes of a PNG file."""
        checked = load("gradviz.draw.options:Options").of(options)
        return bytes(load("gradviz.draw.output:render")(self, "png", checked))

    def to_html(self, **options: Unpack[DrawOptions]) -> str:
        """The interactive page as text."""
        checked = load("gradviz.draw.options:Options").of(options)
        return str(load("gradviz.draw.output:render")(self, "html", checked))

    def to_networkx(self) -> Any:
        """The graph as a `networkx.MultiDiGraph`; docs/networkx.md lists its attributes.

        A node is the id of a `Node`. An edge runs from consumer to producer, as in
        `edges`, and its key is its index there; `reverse()` gives the direction of the
        data.
        """
        return load("gradviz.graphml:to_networkx")(self)

    def show(self, **options: Unpack[ShowOptions]) -> Any:
        """Show the interactive page: see `gradviz.show`."""
        return load("gradviz.notebook:show")(self, **options)

    def save(self, path: str, **options: Unpack[SaveOptions]) -> str:
        """Write the graph to `path`; the suffix picks the format. Returns the path
        written.

        Options are the command line's, by the same names; `force=True` replaces a file
        that gradviz did not write.

        Raises
        ------
        FormatError
            the suffix or an option is unknown.
        OutputError
            the file cannot be written, or must not be replaced; one that was there
            before is left as it was.
        """
        return load("gradviz.draw.output:save")(self, path, **options)  # type: ignore[no-any-return]

    def fold(self, **options: Any) -> Graph:
        """A smaller Graph whose group nodes stand for many: see
        `gradviz.fold.fold.opened`.
        """
        return load("gradviz.fold.export:fold")(self, **options)  # type: ignore[no-any-return]

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> dict[str, str]:
        return load("gradviz.notebook:mimebundle")(self)  # type: ignore[no-any-return]


def column(records: Sequence[Any], name: str) -> list[Any]:
    """One field of all records.

    >>> column(Graph(edges=(Edge(0, 1, 0, 0), Edge(1, 2, 0, 0))).edges, "producer")
    [1, 2]
    """
    return list(map(attrgetter(name), records))


def _starts(count: int, keys: Iterable[int]) -> array[int]:
    """Where each of the keys 0 to `count` - 1 begins when the keys are sorted, and the
    end. 8 bytes an entry.
    """
    sizes = [0] * count
    for key in keys:
        sizes[key] += 1
    return array("q", accumulate(sizes, initial=0))
