"""What a health check needs to know beyond the graph: plain facts about the user's tensors, modules, optimizers and code.

Like `graph`, this holds no tensor and imports no torch, so every check can be tried on facts made by hand. Tensors are
related to the graph by node id and storage id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from gradviz.checks.words import Names
from gradviz.graph import Graph, SourceLine, TensorInfo

if TYPE_CHECKING:
    from gradviz.compiled.region import GraphBreak
    from gradviz.gradients.values import Values
    from gradviz.ranks.reporter import Together
    from gradviz.recording.record import ModuleRun
    from gradviz.source.provenance import DetachPoint, Provenance
    from gradviz.source.search import Change


class NamedTensor(NamedTuple):
    """A tensor that a variable of the user's holds. `node` made it, or is its AccumulateGrad, when it is in the graph."""

    names: Names
    node: int | None = None
    storage: int | None = None
    leaf: bool = True
    requires_grad: bool = False
    retains_grad: bool = False
    grad_read: SourceLine | None = None  # where the code around the call reads its `.grad`
    aliases: Names = ()  # other variables that hold it, such as "state[0]"


class Home(NamedTuple):
    """Where a module keeps what it does not list: `container` is what would register it, "" when it is a plain attribute."""

    attribute: str
    container: str
    line: SourceLine | None  # that makes it


class Dropped(NamedTuple):
    """How the result of a line of code is lost: by another value for `name` in line `by`, or because nothing reads it."""

    name: str  # "" when the line gives it no name
    by: SourceLine | None


class Parameter(NamedTuple):
    """A parameter of a model. `node` is its AccumulateGrad when the graph has it."""

    names: Names
    module: str  # path of the module that owns it, with the model's name in front
    type: str  # class of that module
    model: int  # which model, an index into `CheckContext.models`
    tensor: TensorInfo
    requires_grad: bool = True
    has_grad: bool = False
    node: int | None = None
    sharded: bool = False  # a DTensor or the like: the graph holds another tensor in its place
    gathered: bool = False  # and that other one is known
    compiled: int | None = None  # the leaf of one that a compiled function takes and gives no gradient
    run: ModuleRun | None = None  # None when nothing was recorded
    made: SourceLine | None = (
        None  # of an unused one: the line of the user's class that makes it, or the module around it
    )
    forward: SourceLine | None = None  # and where the forward() of that class begins
    dropped: Dropped | None = None  # how what its module made is lost
    replaced: SourceLine | None = None  # the functional_call that ran its module with another tensor in its place


class Model(NamedTuple):
    """A model that was given, or found among the variables. `certain` when the caller named it as the one that matters."""

    name: str
    type: str
    certain: bool = False
    called: SourceLine | None = None  # the line that called it last


class OptimizerTensor(NamedTuple):
    """A tensor that an optimizer updates. `parameter` is an index into `CheckContext.parameters`."""

    names: Names
    node: int | None = None
    parameter: int | None = None


class Optimizer(NamedTuple):
    """An optimizer that was given, or found among the variables."""

    name: str
    type: str
    tensors: tuple[OptimizerTensor, ...]
    source: SourceLine | None = None  # where it was made
    eps: float | None = None  # what it adds to a divisor, where it has one


class Given(NamedTuple):
    """What `kl_div`, which leaves no node of its own, was given as its input: the node that made it, and the line of the call."""

    node: int
    source: SourceLine


class LeafGradient(NamedTuple):
    """The gradient that a leaf would get."""

    node: int
    norm: float
    zeros: float
    nonfinite: int
    mixed: bool = False  # earlier calls have added to it: it shows only that this one is not zero


class Gradients(NamedTuple):
    """What backward would compute. `nonfinite` holds nodes whose incoming gradient is finite and outgoing is not."""

    leaves: tuple[LeafGradient, ...] = ()
    nonfinite: tuple[int, ...] = ()
    problem: str = ""  # why it could not be computed
    vanishing: float = 1e-5  # below this part of the largest gradient nearer to the output
    exploding: float = 1e4  # above this multiple of the gradient nearest to the output


class Copy(NamedTuple):
    """A value that is saved twice: `node` made the second tensor from the first. Bytes are those of each storage."""

    node: int
    second: int  # storage id
    first_saver: int
    second_saver: int


class RetainedHistory(NamedTuple):
    """What reaches back behind an earlier backward call, through the outputs or through a variable.

    `nodes` were made before the previous call and are still held; `joints` are edges (consumer, position) of the graph
    that lead from new nodes to old ones.
    """

    name: str  # "" for the outputs themselves
    nodes: int
    nbytes: int | None = None
    source: SourceLine | None = None
    joints: tuple[tuple[int, int], ...] = ()
    added: SourceLine | None = None  # the line that puts it into the variable, when that is a container
    newest: int = 0  # the number of the newest node that the variable leads to
    update: str = ""  # the difference that the line gives the variable, where each call recorded the next one
    steps: int = 0  # whose graphs it holds, where that was seen later in the run
    repeats: bool = False  # a joint whose two ends one line of code made, in this step and in an earlier one
    parts: tuple[str, ...] = ()  # the steps that lead from the variable to tensors with a graph: `[3][1]`
    kept: str = ""  # what a function, made in the line `added`, calls the tensor that it keeps


class Cycle(NamedTuple):
    """A reference that leads from a node back to it, so that neither is freed when the step is over.

    A "function" keeps its output as `attribute` of ctx; a "hook" takes a tensor with it as `attribute`, a variable of the function
    around it. `of` is the name of the custom Function, or of the tensor that the hook is on.
    """

    kind: Literal["function", "hook"]
    attribute: str
    node: int
    of: str
    source: SourceLine | None = None  # where the attribute is set, or the hook begins


class ResultDropped(NamedTuple):
    """A line whose result nobody gets: `text` is its code, `of` what it was computed from, `mended` the line as it should be."""

    of: str
    source: SourceLine
    text: str
    mended: str = ""  # "" when that is unclear
    method: bool = False  # it is a method that is not called


class Unused(NamedTuple):
    """Calls of a model in eval() mode, in a row from one line, that recorded a graph which no backward call reached."""

    source: SourceLine
    type: str  # class of the model
    calls: int
    nodes: int
    loop: SourceLine | None = None  # the innermost loop around the line
    separate: bool = False  # the function that the line is in calls no backward
    holders: Names = ()  # variables that hold the graphs of several of the calls


class Earlier(NamedTuple):
    """What is kept of an earlier backward call of the same run. Every node made before it has a number below `boundary`."""

    call: int
    output: str
    boundary: int
    retained: tuple[RetainedHistory, ...]
    leaves: Names  # names of variables that were leaves of that graph
    step: int = 0  # calls between which nothing was updated belong to one step


class Handled(NamedTuple):
    """What the code did with a leaf and its gradient between two backward calls that reached it."""

    stepped: bool = False  # an optimizer that holds it took a step, and it had a gradient then
    missed: bool = False  # the same, when its gradient was gone already
    changed: bool = False  # it was changed in place
    reset: bool | None = False  # `.grad` was emptied, replaced or zeroed; None when its numbers cannot be read


EventKind = Literal["backward", "zero", "clip", "scale", "unscale", "scaler_step", "update", "step", "schedule"]
"""What the order of a training loop consists of."""


class Event(NamedTuple):
    """One of those calls. `tensors` are identities of the parameters that it is about, None where that is not known."""

    kind: EventKind
    call: int  # backward calls so far, this one included
    tensors: frozenset[int] | None = None
    source: SourceLine | None = None
    loops: tuple[int, ...] = ()  # first lines of the loops around the line, the outermost first
    tests: tuple[str, ...] = ()  # conditions of the `if`s around it


class Raised(NamedTuple):
    """The exception that ended the user's code. Names and shape are those of the backward call that it came from, if it did."""

    kind: str
    text: str
    source: SourceLine | None = None  # the innermost line of the user's
    outputs: Names = ()
    shape: tuple[int, ...] = ()
    missing: Names = ()  # inputs that the outputs do not depend on; or the tensor that was refused
    custom: SourceLine | None = None  # the line of the custom Function that the message is about
    made: SourceLine | None = None  # the line that gave the tensor its value which was refused


class Trained(NamedTuple):
    """A leaf that backward calls of a run have reached, and what became of it over the run.

    `model` and `module` are the names of the model and of the module that own it, "" for what no module holds.
    """

    names: Names
    tensor: TensorInfo
    node: int  # in the graph of the last call that reached it
    call: int  # that call
    reached: int = 1  # in how many calls
    parameter: bool = True  # an nn.Parameter that a module lists
    model: str = ""
    module: str = ""
    type: str = ""  # class of that module
    holders: Names = ()  # names of the optimizers that hold it
    updates: int = 0  # steps of these that found a gradient in it
    moved: bool | None = None  # whether it changed between the calls; None where that was not looked at
    source: SourceLine | None = None  # where a module's own code makes it
    zero: int = 0  # calls at which all its elements were 0, and all of its gradient afterwards
    born: SourceLine | None = None  # the line that made it, when it is younger than an optimizer
    after: int = 0  # how many optimizers were there then


class Tie(NamedTuple):
    """Two parameters of a model that began with the same numbers, an embedding's and a linear layer's, or that share memory."""

    names: tuple[str, str]
    shared: bool  # they share memory
    apart: bool  # their numbers differ by now
    source: SourceLine | None = None  # where the code assigns the second


class Mistyped(NamedTuple):
    """An attribute that was meant to freeze something and does not: `require_grad` of parameters, `requires_grad` of a module."""

    names: Names
    attribute: str
    module: bool
    source: SourceLine | None = None


class Thawed(NamedTuple):
    """Parameters that one line froze, and that another one made trainable again, with others, before anything was computed."""

    names: Names
    frozen: SourceLine
    thawed: SourceLine


class Mixed(NamedTuple):
    """A step that found gradients of two calls: of that in line `left`, for which the optimizer `other` stepped, and of `added`."""

    other: str
    left: SourceLine | None
    added: SourceLine | None


class Stepping(NamedTuple):
    """An optimizer over a run. Names of tensors are those that models and variables give them."""

    name: str
    type: str
    source: SourceLine | None = None  # where it was made
    steps: int = 0  # begun
    tensors: int = 0
    fed: int = 0  # tensors that had a gradient when a step began
    reached: int = 0  # tensors that the graph of a call had
    idle_rates: int = 0  # steps in which every learning rate was 0
    factor: SourceLine | None = None  # the line that returns what a scheduler multiplies its learning rate by
    frozen: Names = ()  # that require no gradient and were updated all the same
    held: Names = ()  # the names of its tensors
    emptied: int = 0  # calls before which its gradients had been reset while it had not stepped
    mixed: tuple[Mixed, ...] = ()
    number: int = 0  # of the optimizers that were made before


class Mode(NamedTuple):
    """A model at the last backward call: which parts were in training mode, and which were frozen."""

    name: str
    type: str
    training: bool
    parameters: int = 0
    held: int = 0  # parameters that an optimizer holds
    sleeping: Names = ()  # dropout and batch normalization in eval() mode
    norms: Names = ()  # batch normalization whose parameters are frozen and whose statistics moved
    sharded: bool = False
    switched: SourceLine | None = None  # where the code calls train() or eval(), whichever it is in
    only_eval: SourceLine | None = (
        None  # where the code calls eval() of it, when it is in that mode and nobody calls train()
    )


class Ledger(NamedTuple):
    """Who updates what: what was seen of leaves, optimizers and models over a whole run."""

    calls: int = 0  # backward calls that filled gradients
    leaves: tuple[Trained, ...] = ()
    optimizers: tuple[Stepping, ...] = ()
    models: tuple[Mode, ...] = ()
    ended: bool = False  # the run ended by itself: nothing follows
    scaled: bool = False  # a GradScaler decides whether steps are taken
    ties: tuple[Tie, ...] = ()
    mistyped: tuple[Mistyped, ...] = ()
    thawed: tuple[Thawed, ...] = ()
    flat: int = 0  # of the first calls, those that left nothing but zeros in the gradients of all parameters

    @property
    def stepped(self) -> bool:
        """Whether an optimizer took a step."""
        return any(optimizer.steps for optimizer in self.optimizers)

    @property
    def held(self) -> set[str]:
        """The names of what optimizers hold."""
        return {name for optimizer in self.optimizers for name in optimizer.held}

    @property
    def updated(self) -> set[str]:
        """The names of what optimizers have updated."""
        return {name for leaf in self.leaves if leaf.updates for name in leaf.names}

    def model(self, name: str) -> Mode | None:
        """The model of this name."""
        return next((mode for mode in self.models if mode.name == name), None)


def all_frozen(parameters: Sequence[Parameter]) -> bool:
    """Whether there are parameters, and none of them requires grad."""
    return bool(parameters) and not any(parameter.requires_grad for parameter in parameters)


@dataclass(frozen=True)
class CheckContext:
    """Everything that checks look at. The defaults mean "nothing known", and a check then says nothing or says so."""

    graph: Graph
    call: int | None = None  # the backward call that is about to run through the graph
    after: bool = False  # backward() has run: `has_grad` says what it left
    guessed: bool = False  # nobody named the outputs: they are the tensors that were left when the script ended
    unfinished: bool = False  # the script failed in a forward pass, and this is what it had computed by then
    grad_enabled: bool = True
    frozen_at: SourceLine | None = None  # the line that froze the parameters, when all are frozen
    backward: SourceLine | None = None  # the line that makes the call
    in_step: bool = False  # the call is made inside the step() of an optimizer, by a closure
    reads_grad: bool = False  # whether the function that makes the call reads a `.grad`
    step: int = 0  # of the run, counted from 0: calls between which nothing was updated belong to one step
    since: int = 0  # sequence number at the last backward call of the step before: what ran before has a lower one
    models: tuple[Model, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    named_tensors: tuple[NamedTensor, ...] = ()
    homes: Mapping[int, Home] = field(default_factory=dict)  # of parameters that no module lists, by node
    born: Mapping[int, SourceLine] = field(
        default_factory=dict
    )  # of leaves younger than an optimizer: the line, by node
    provenances: Mapping[str, Provenance] = field(default_factory=dict)  # by name of the output
    changes: tuple[Change, ...] = ()
    copies: tuple[Copy, ...] = ()
    retained: tuple[RetainedHistory, ...] = ()
    cycles: tuple[Cycle, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()  # of everything that was compiled in this process
    earlier: tuple[Earlier, ...] = ()
    handled: Mapping[int, tuple[Handled, ...]] = field(default_factory=dict)  # by node of the leaf, the last time last
    used_later: frozenset[str] = frozenset()  # names of parameters that other backward calls of the run use
    nonzero_after: frozenset[str] = frozenset()  # the same at calls that came later
    looked_after: int = 0  # calls that came later, of which the gradients were looked at
    nonzero_later: frozenset[str] = frozenset()  # names of leaves with a gradient that is not all zero at other calls
    values: Values | None = None
    gradients: Gradients | None = None
    poles: Mapping[int, bool] = field(
        default_factory=dict
    )  # nodes given a number at which they have a pole: whether below zero
    broken_data: tuple[SourceLine, ...] = ()  # lines that made NaN or Inf of finite numbers, without a graph
    loss: float | None = None  # what backward begins at, when that is one number
    before: Graph | None = None  # the graph of the call that was looked at before this one
    loss_before: float | None = None
    ranks: Together | None = None  # all ranks of a launch: then `graph` is theirs as one
    raised: Raised | None = None  # how the script failed; known to its last context only
    entered: Mapping[int, tuple[DetachPoint, ...]] = field(default_factory=dict)  # what was cut off elsewhere, by node
    filled: Mapping[str, SourceLine] = field(default_factory=dict)  # the lines that filled parameters last, by name
    saturated: tuple[int, ...] = ()  # tanh and sigmoid that are flat for most of their inputs, at the first call
    given: tuple[Given, ...] = ()  # to losses that the graph does not show
    numbers: tuple[DetachPoint, ...] = ()  # Python numbers that this step made of tensors with a graph
    ledger: Ledger = field(default_factory=Ledger)  # of the whole run; known to its last context only
    scaled: bool = False  # a GradScaler multiplies losses: gradients may overflow, and the step is then left out
    broken_before: bool = False  # an earlier call has left gradients that are not finite
    ran: bool = False  # the engine had run, or failed, when this was read: what it has freed was not freed before
    zero_at_first: frozenset[str] = frozenset()  # leaves with a gradient of zeros at the first call
    losses: tuple[tuple[int, float], ...] = ()  # the calls and losses before, as far as they were read
    held: tuple[RetainedHistory, ...] = ()  # beside `retained`, of the whole run; known to its last context only
    lost: tuple[ResultDropped, ...] = ()  # of the whole run; known to its last context only
    evaluations: tuple[Unused, ...] = ()  # of the whole run; known to its last context only
    events: tuple[Event, ...] = ()  # in which order backward, zero_grad, step, ... came; known to the last context only

    @property
    def cuts(self) -> tuple[DetachPoint, ...]:
        """Where graphs were cut off from what takes part in this one all the same."""
        return tuple(dict.fromkeys(cut for cuts in self.entered.values() for cut in cuts))

    @property
    def optimized(self) -> set[int | None]:
        """The leaves of the graph that optimizers hold, by node."""
        return {tensor.node for optimizer in self.optimizers for tensor in optimizer.tensors} - {None}

    @property
    def leaf_gradients(self) -> tuple[LeafGradient, ...]:
        """Those that are known."""
        return self.gradients.leaves if self.gradients is not None else ()
