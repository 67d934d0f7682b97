"""The graph model: what one walk over an autograd graph found, as plain immutable
records.

A `Graph` is a snapshot. It holds no tensor, no `grad_fn` and no reference to anything
of the user's, so keeping one keeps no memory alive and reading one can disturb nothing.
Nothing here imports torch. Records are `NamedTuple`s: immutable, comparable, and cheap
enough to make by the million (a frozen dataclass costs about five times as much to
build).

Direction. An edge runs from the *consumer* (nearer to the root) to the *producer*
(nearer to the leaves), as `next_functions` does. Data flowed the other way in the
forward pass.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gradviz.features import load
from gradviz.wording import clip, plural

if TYPE_CHECKING:
    from rich.console import RenderableType

Shape = tuple[int | str, ...]
"""Sizes of a tensor. A symbolic or ragged size is text, such as `"s93"` or `"j1"`."""

NodeFlag = Literal[
    "custom",
    "hooks",
    "freed",
    "modified",
    "packed",
    "checkpoint",
    "compiled",
    "hidden",
    "cut",
]
"""What is special about a node: a custom `autograd.Function`; user hooks registered;
saved tensors freed by backward; a saved tensor modified in place since; a saved tensor
packed by a hook; recomputation hidden behind a reentrant checkpoint; hidden behind a
compiled function; other state that Python cannot read (C++ nodes); cut off, so that no
gradient passes.
"""

LeafKind = Literal["parameter", "buffer", "input"]
StorageKind = Literal["parameter", "buffer", "input", "activation", "output", "number"]
"""Who owns a storage. `output`: an activation that the caller also holds. `number`: a
Python number that autograd wrapped into a 0-dim tensor.
"""

SavedState = Literal["live", "freed", "packed", "modified", "unknown"]
"""State of one saved slot. `packed`: a saved-tensor hook has it. A slot that holds
nothing is an attribute that is None.
"""

Packing = Literal["", "recompute", "offload", "hook"]
"""What packed a saved slot: a checkpoint that computes the tensor again, `save_on_cpu`,
or any other hook. Empty where nothing packed it, or nobody knows what.
"""

MarkKind = Literal["finding", "added", "changed"]
"""Whether a mark is a finding, or what some of several graphs have alone, or have
otherwise.
"""

GroupKind = Literal["module", "repeat", "alike", "loop", "chain", "more", "op"]
"""What a folded node is. "op": one op with the views of what it uses and makes, which
is drawn as that op.
"""

NO_ATTRIBUTES: Mapping[str, Any] = {}


class TensorInfo(NamedTuple):
    """Facts of one tensor. `shape` is None where a tensor has no single shape (a
    strided nested tensor).
    """

    shape: Shape | None
    dtype: str
    device: str
    layout: str = "strided"  # "sparse_coo", "sparse_csr", "nested", "jagged", ...


class Storage(NamedTuple):
    """One block of memory. `nbytes` is None where the tensor has no storage that can be
    asked; `names` are those of an input.
    """

    id: int
    nbytes: int | None
    kind: StorageKind
    names: tuple[str, ...] = ()


class SavedTensor(NamedTuple):
    """One slot that a node saved for backward."""

    slot: str  # "self", "weight", "indices[0]", "saved_tensors[1]"
    tensor: TensorInfo | None
    storage: int | None  # id of the Storage
    kind: StorageKind | None
    state: SavedState
    # bytes of the tensor's own elements; its storage may be larger, or smaller when
    # expanded
    nbytes: int | None = None
    view: bool = False
    # id of the AccumulateGrad node when this slot holds a leaf of the graph
    leaf: int | None = None
    version: int | None = None  # the tensor's version counter when it was read
    # hook and packed type, or why the state is unknown: words for a reader, never read
    # by a program
    note: str = ""
    packing: Packing = ""
    # ids of the storages of a tensor that is made of several, `storage` among them
    parts: tuple[int, ...] = ()

    @property
    def storages(self) -> tuple[int, ...]:
        """Ids of all storages that this slot holds. A sparse tensor has several;
        `storage` is that of its values, and first.
        """
        if self.storage is not None:
            return tuple(dict.fromkeys((self.storage, *self.parts)))
        return ()


class Scope(NamedTuple):
    """One call of one `nn.Module`. `parent` is the id of the scope around it."""

    path: str
    type: str
    call: int
    parent: int | None
    # elements of the module's own and its children's parameters
    parameters: int | None = None
    output: TensorInfo | None = None
    # seconds of the call, with the calls inside it, where they were measured
    forward: float | None = None
    backward: float | None = None  # the same of its backward functions


class SourceLine(NamedTuple):
    """A line of code outside torch. `package` is the import name of the installed
    package that holds the file, such as "transformers", and "" for the script's own
    code.
    """

    file: str
    line: int
    function: str = ""
    text: str = ""
    package: str = ""


class FunctionCall(NamedTuple):
    """One call of one function of the user's, as it was seen: `nodes` and `scopes` are
    what it made and called itself, directly inside `scope`. `parent` is the call around
    it there.

    `source` is where the function begins; of what the engine of torch made for a
    gradient of a gradient, the line that asked for it, and `gradient` is true.
    """

    source: SourceLine
    parent: int | None
    scope: int | None
    nodes: tuple[int, ...] = ()
    scopes: tuple[int, ...] = ()
    gradient: bool = False


class Function(NamedTuple):
    """The class behind a custom `autograd.Function` node, and where its backward is
    defined (None: no source).
    """

    name: str
    definition: SourceLine | None


class Uses(NamedTuple):
    """How many of the edges from an output of `node` to a group are uses of parameters
    that are drawn there, or are that node.
    """

    node: int
    output: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs


class Group(NamedTuple):
    """What a folded node stands for: node ids of the graph it was folded from, and what
    to call it.
    """

    kind: GroupKind
    title: str
    nodes: tuple[int, ...]
    count: int = 1  # type: ignore[assignment]  # calls, alike siblings or loop turns
    ops: int = 0  # backward functions inside, leaves not counted
    parameters: int = 0
    nbytes: int | None = None
    # the call of the same module, by number, that its parameters are drawn with
    same_as: int | None = None
    shared: tuple[Uses, ...] = ()  # the edges that stand for uses of those


class Node(NamedTuple):
    """One recorded backward function."""

    id: int
    op: str  # "AddmmBackward0"
    outputs: tuple[TensorInfo | None, ...] = ()
    # None for AccumulateGrad, which autograd numbers after everything else
    sequence: int | None = None
    scope: int | None = None
    source: SourceLine | None = None
    attributes: Mapping[str, Any] = NO_ATTRIBUTES
    saved: tuple[SavedTensor, ...] = ()
    flags: tuple[NodeFlag, ...] = ()
    names: tuple[str, ...] = ()
    none_inputs: int = 0  # entries of next_functions that need no gradient
    function: Function | None = None
    group: Group | None = None
    # where `source` is a library's: the script's own innermost line at the time
    script_line: SourceLine | None = None
    # the variable that the line assigns, of the last op that it made
    assigned: str = ""

    @property
    def folded(self) -> Group | None:
        """The group that the node is drawn as; None for a single op, with or without
        views.
        """
        if self.group is not None and self.group.kind != "op":
            return self.group
        return None


class Edge(NamedTuple):
    """One entry of `consumer.next_functions`. `count` is above 1 only between folded
    groups.
    """

    consumer: int
    producer: int
    output: int  # which output of the producer
    position: int  # place in the consumer's next_functions
    count: int = 1  # type: ignore[assignment]  # hides tuple.count, which no edge needs


class Base(NamedTuple):
    """The tensor that a view looks into. `node` is the node that made it, or its
    AccumulateGrad, when in the graph.
    """

    tensor: TensorInfo
    node: int | None
    output: int = 0
    names: tuple[str, ...] = ()


class Leaf(NamedTuple):
    """A tensor behind an AccumulateGrad node: gradients end here."""

    node: int
    names: tuple[str, ...]
    tensor: TensorInfo
    kind: LeafKind = "input"
    has_grad: bool = False
    hooks: int = 0
    storage: int | None = None
    base: Base | None = None


class Data(NamedTuple):
    """A tensor without gradient that the user's code gave to ops: inputs, targets,
    indices, a mask.

    `nodes` are those that saved it, or a view of it. Ops that save nothing of what they
    take tell nothing of it. One that is `inner` was made inside a module, and is called
    as the parameter or the slot that took it.
    """

    names: tuple[str, ...]
    tensor: TensorInfo
    nodes: tuple[int, ...]
    storage: int | None = None
    inner: bool = False


class Root(NamedTuple):
    """An output the walk began at. `node` is None when it has no graph, and `why` then
    says so.
    """

    node: int | None
    output: int
    name: str
    tensor: TensorInfo
    base: Base | None = None
    why: str = ""


class BackwardStep(NamedTuple):
    """One function that backward calls. `norm` is that of the gradient that arrives,
    the largest one of several; None when none does, infinite when an entry is not
    finite. Not `measured`: a custom Function that was not called lies before it.

    Of small tensors, when they were asked for: the elements of the gradient that
    `arrived`, of the `value` that the op computed or the leaf has, and of what was
    `sent` to each input, by position; nothing where they are not known.
    """

    node: int
    norm: float | None = None
    measured: bool = True
    arrived: tuple[float, ...] = ()
    value: tuple[float, ...] = ()
    sent: tuple[tuple[float, ...], ...] = ()


class RankMemory(NamedTuple):
    """Bytes that one process holds, as sharded there; None where nothing was read."""

    # for backward, each storage once, without parameters and buffers
    saved: int | None = None
    parameters: int | None = None
    gradients: int | None = None
    optimizer: int | None = None


class RankShare(NamedTuple):
    """What some ranks hold, each of them as much, in a graph that was merged from
    several.
    """

    ranks: tuple[int, ...]
    memory: RankMemory
    host: str = ""  # their machine, where the ranks are of several

    @property
    def total(self) -> int:
        """All that is known of, in bytes."""
        return sum(nbytes or 0 for nbytes in self.memory)


class Process(NamedTuple):
    """The process that recorded a graph, when it was one of several."""

    rank: int
    world: int
    host: str = ""
    memory: RankMemory = RankMemory()
    # names of those that its models hold, in the graph or not
    parameters: tuple[str, ...] = ()
    wrapped: str = ""  # what shares the work: "DistributedDataParallel", "FSDP2", ...
    stage: int | None = None  # of a pipeline


class Mark(NamedTuple):
    """A finding to be drawn: boxes and edges with the number, and a line of words under
    the picture.
    """

    number: int
    id: str  # of the check
    words: str
    nodes: tuple[int, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()  # consumer and position
    outputs: tuple[str, ...] = ()  # names of outputs that have no node
    kind: MarkKind = "finding"


class Absent(NamedTuple):
    """A tensor that could get a gradient and gets none, since the graph does not lead
    to it: `reason` says why, `source` where.
    """

    names: tuple[str, ...]
    tensor: TensorInfo
    reason: str
    source: SourceLine | None = None


@dataclass(frozen=True)
class Graph:
    """A detached snapshot of an autograd graph.

    `nodes` is indexed by id; `edges` are sorted by consumer, then position. `storages`
    and `scopes` are indexed by id. `nodes`, `edges` and `storages` are tuples, or
    `gradviz.graph.columns` in a graph of more than 50,000 nodes: sequences that are
    equal to those tuples, and make each record when it is read.

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
    # calls of functions, as far as they were seen, outer ones first
    functions: tuple[FunctionCall, ...] = ()
    # of a graph that was merged from those of several ranks
    by_rank: tuple[RankShare, ...] = ()
    # to be drawn; a graph file keeps no findings
    marks: tuple[Mark, ...] = field(
        default=(),
        compare=False,
        repr=False,
    )
    # of the running program; no file keeps them
    absent: tuple[Absent, ...] = field(
        default=(),
        compare=False,
        repr=False,
    )
    # what a folded graph was folded from
    original: Graph | None = field(
        default=None,
        compare=False,
        repr=False,
    )
    # and which of its groups are open, as `fold` has it
    opening: Any = field(default=None, compare=False, repr=False)

    # -- reading -----------------------------------------------------------------------

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
    def ops(self) -> Sequence[str]:
        """The name of each backward function, by node id: no record of a large graph is
        made to read one.
        """
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
    def producers(self) -> Sequence[int]:
        """Where each edge leads, by its place in `edges`."""
        return column(self.edges, "producer")

    @cached_property
    def leaf_of(self) -> Mapping[int, Leaf]:
        """Leaf by the id of its AccumulateGrad node."""
        return {leaf.node: leaf for leaf in self.leaves}

    @cached_property
    def inside(self) -> Sequence[Sequence[int]]:
        """What each node stands for: ids in `original` of the nodes in a folded box;
        its own id where nothing was folded.

        Nodes that were not folded keep their order, so the n-th of them is the n-th of
        the original's that is in no group.
        """
        if self.original is None:
            return [(node,) for node in range(len(self.nodes))]

        groups = column(self.nodes, "group")
        grouped = {
            node for group in groups if group is not None for node in group.nodes
        }
        single = (
            node for node in range(len(self.original.nodes)) if node not in grouped
        )

        return [
            group.nodes if group is not None else (next(single),) for group in groups
        ]

    @cached_property
    def box_of(self) -> Mapping[int, int]:
        """The node that each node of `original` is in: `inside` the other way round."""
        return {node: box for box, nodes in enumerate(self.inside) for node in nodes}

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """What the folded nodes stand for, in order of the nodes; ops with their views
        are none.
        """
        return tuple(
            [
                group
                for group in column(self.nodes, "group")
                if group is not None and group.kind != "op"
            ]
        )

    @cached_property
    def views(self) -> int:
        """How many ops that only change a shape or a layout are drawn with another op."""
        return sum(
            group.ops - 1
            for group in column(self.nodes, "group")
            if group is not None and group.kind == "op"
        )

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

        for consumer, producer in zip(column(self.edges, "consumer"), producers):
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

    @cached_property
    def _first_edge(self) -> Sequence[int]:
        """Where the edges of each consumer begin, with one entry more for the end of
        the last.
        """
        return _starts(len(self.nodes), column(self.edges, "consumer"))

    @cached_property
    def _by_producer(self) -> tuple[Sequence[int], Sequence[int]]:
        """Places of edges by producer, and where those of each producer begin, with one
        entry more for the end.
        """
        producers = self.producers
        start = _starts(len(self.nodes), producers)
        free = array("q", start)
        places = array("q", bytes(8 * len(self.edges)))
        for i, producer in enumerate(producers):
            places[free[producer]] = i
            free[producer] += 1
        return places, start

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

    def tree(self, **options: Any) -> RenderableType:
        """The graph as a terminal tree, a rich renderable. Options:
        `gradviz.draw.options.Options`.
        """
        checked = load("gradviz.draw.options:Options").of(options)
        return load("gradviz.draw.tree:tree")(self, checked)  # type: ignore[no-any-return]

    def __getitem__(self, path: str) -> Graph:
        """One module as a Graph of its own: `graph["encoder.layer.0"]`. See
        `gradviz.graph.part.part`.
        """
        return load("gradviz.graph.part:part")(self, path)  # type: ignore[no-any-return]

    def to_svg(self, **options: Any) -> str:
        """The picture as text, as `save` writes it to an SVG file. Options are those of
        `save`.
        """
        checked = load("gradviz.draw.options:Options").of(options)
        return str(load("gradviz.draw.output:render")(self, "svg", checked))

    def save(self, path: str, **options: Any) -> str:
        """Write the graph to `path`; the suffix picks the format. Returns the path
        written.

        Options are the command line's, by the same names.

        Raises
        ------
        FormatError
            the suffix or an option is unknown.
        OutputError
            the file cannot be written; one that was there before is left as it was.
        """
        return load("gradviz.draw.output:save")(self, path, **options)  # type: ignore[no-any-return]

    def fold(self, **options: Any) -> Graph:
        """A smaller Graph whose group nodes stand for many: see
        `gradviz.fold.fold.fold`.
        """
        return load("gradviz.fold.fold:fold")(self, **options)  # type: ignore[no-any-return]

    def _repr_mimebundle_(
        self, include: Any = None, exclude: Any = None
    ) -> dict[str, str]:
        return load("gradviz.notebook:mimebundle")(self)  # type: ignore[no-any-return]


def column(
    records: Sequence[Any],
    name: str,
) -> Sequence[Any]:
    """One field of all records, read without making the records where a large graph
    keeps columns.

    >>> list(column(Graph(edges=(Edge(0, 1, 0, 0), Edge(1, 2, 0, 0))).edges, "producer"))
    [1, 2]
    """
    read: Callable[[str], Sequence[Any]] | None = getattr(records, "column", None)
    if read is not None:
        return read(name)
    return [getattr(record, name) for record in records]


def _starts(
    count: int,
    keys: Iterable[int],
) -> array[int]:
    """Where each of the keys 0 to `count` - 1 begins when the keys are sorted, and the
    end. 8 bytes an entry.
    """
    start = array("q", bytes(8 * (count + 1)))
    for key in keys:
        start[key + 1] += 1
    for i in range(count):
        start[i + 1] += start[i]
    return start
