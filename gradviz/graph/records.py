"""The records of a graph: what one walk found of each node, edge, tensor and module
call.

Records are `NamedTuple`s: immutable, comparable, and cheap enough to make by the
million (a frozen dataclass costs about five times as much to build). Nothing here
imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

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
    "outside",
]
"""What is special about a node: a custom `autograd.Function`; user hooks registered;
saved tensors freed by backward; a saved tensor modified in place since; a saved tensor
packed by a hook; recomputation hidden behind a reentrant checkpoint; hidden behind a
compiled function; other state that Python cannot read (C++ nodes); cut off, so that no
gradient passes; outside of the module that is drawn alone.
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

GroupKind = Literal[
    "module", "repeat", "alike", "loop", "chain", "more", "op", "statement", "call"
]
"""What a folded node is. "op": one op with the views of what it uses and makes, which
is drawn as that op. "module" is a call of a module, or of a function of the user's;
"call" one of torch or of a library.
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


ScopeKind = Literal[
    "module", "function", "gradient", "loop", "turn", "statement", "call"
]


class Scope(NamedTuple):
    """One call of one `nn.Module`. `parent` is the id of the scope around it. A folded
    graph has one for what the program wrote, too, of another `kind`.
    """

    path: str
    type: str
    call: int
    parent: int | None
    # elements of the module's own and its children's parameters
    parameters: int | None = None
    output: TensorInfo | None = None
    kind: ScopeKind = "module"
    turns: int = 0  # of a loop, where that is certain
    frozen: int = 0  # of the parameters' elements, those that require no gradient

    @property
    def is_frozen(self) -> bool:
        """Whether it has parameters, and none of them requires a gradient."""
        return 0 < self.frozen == self.parameters


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


ConstructKind = Literal["function", "gradient", "loop", "turn", "statement", "call"]
"""A call of a function of the user's; what the engine of torch made for a gradient of a
gradient; a loop, and one turn of it; a statement; a call of torch, or of a library.
"""


class Construct(NamedTuple):
    """A piece of the program that ran: `nodes` and `scopes` are what it made and called
    itself, directly inside `scope`. `parent` is the construct around it there.

    `text` is the name of a function, or of what is called; the head of a loop; what a
    statement assigns, whose `code` computes it; the `code` of a loop has the variables
    that one turn hands to the next. `source` is where that is written; of a
    function, where it begins; of a gradient, the line that asked for it. `turn` is the
    number of a turn, from 1, and of a loop how many there were, 0 where that is not
    certain.
    """

    kind: ConstructKind
    text: str = ""
    source: SourceLine | None = None
    parent: int | None = None
    scope: int | None = None
    nodes: tuple[int, ...] = ()
    scopes: tuple[int, ...] = ()
    turn: int = 0
    code: str = ""  # "" where the line of the source has it


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
    nbytes: int | None = None  # held for backward
    # the call of the same module, by number, that has the same parameters, which are
    # drawn there
    same_as: int | None = None
    shared: tuple[Uses, ...] = ()  # the edges that stand for uses of those
    # what the second turn takes from the first, as node ids and numbers of outputs
    passed: tuple[tuple[int, int], ...] = ()
    # that computes it, of a statement; what its turns hand on, of a loop
    code: str = ""
    # whether its parameters are those of what the title names
    owns: bool = True
    frozen: bool = False  # it has parameters, and none of them requires a gradient
    # elements of parameters of a module call that others use, too, and are drawn outside
    outside: int = 0
    # what it has some parameters in common with, which are drawn there: `call 1`
    shares: str = ""


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
    # what the code calls it, where that is not the op: `dropout`, `* 1.00001`, `[0, i]`
    written: str = ""
    numbers: int = 0  # of `none_inputs`, those that the code says are no tensors

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

    `nodes` are those that take it, `position` the entries of their `next_functions`
    where it would be, None where autograd has none. `text` is what the code gave, "" if
    that is not known; one that is `inner` was made inside a function, in the code of the
    module call `scope` (-1: of no module, None: not known), by the call `function` of
    `Graph.program`, where all that it is computed from is known. `of` are the data that
    it is computed from, by their place in `Graph.data`.
    """

    names: tuple[str, ...]
    tensor: TensorInfo
    nodes: tuple[int, ...]
    storage: int | None = None
    inner: bool = False
    text: str = ""
    position: tuple[int | None, ...] = ()
    of: tuple[int, ...] = ()
    scope: int | None = None
    function: int | None = None


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
    `sent` to each input, by position; nothing where they are not known. Of a larger
    value that somebody held at that time, the `spread`: least, mean, largest. `freed`:
    they were asked for, and nobody held it any more.
    """

    node: int
    norm: float | None = None
    measured: bool = True
    arrived: tuple[float, ...] = ()
    value: tuple[float, ...] = ()
    sent: tuple[tuple[float, ...], ...] = ()
    spread: tuple[float, ...] = ()
    freed: bool = False


class RankShare(NamedTuple):
    """Some of the ranks of a graph that was merged from several."""

    ranks: tuple[int, ...]


class Process(NamedTuple):
    """The process that recorded a graph, when it was one of several."""

    rank: int
    world: int


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
