"""The row of a backward call that was read: its graph, and plain facts about the user's
tensors, modules, optimizers and code at that moment.

Like `graph`, this holds no tensor and imports no torch, so every check can be tried on
facts made by hand. Tensors are related to the graph by node id and storage id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gradviz.checks.run import Interval, OptimizerRow, TrainingRun
from gradviz.checks.words import Names
from gradviz.graph import Graph, SourceLine
from gradviz.source.cut import NO_ORIGIN, Cut, Origin
from gradviz.source.statements import NOWHERE, Body

if TYPE_CHECKING:
    from gradviz.cuts.answers import Answer
    from gradviz.gradients.values import Values
    from gradviz.recording.record import ModuleRun


class NamedTensor(NamedTuple):
    """A tensor that a variable of the user's holds. `node` made it, or is its
    AccumulateGrad, when it is in the graph.
    """

    names: Names
    node: int | None = None
    storage: int | None = None
    leaf: bool = True
    retains_grad: bool = False
    aliases: Names = ()  # other variables that hold it, such as "state[0]"


class Home(NamedTuple):
    """Where a module keeps what it does not list: `container` is what would register
    it, "" when it is a plain attribute. An object that is no module has no `attribute`.
    """

    attribute: str
    container: str
    line: SourceLine | None  # that makes it


class Parameter(NamedTuple):
    """A parameter of a model. `node` is its AccumulateGrad when the graph has it."""

    names: Names
    module: str  # path of the module that owns it, with the model's name in front
    type: str  # class of that module
    model: int  # which model, an index into `BackwardCall.models`
    # of that module, or of that around a list of parameters; with -1 calls where nothing
    # was recorded
    run: ModuleRun
    requires_grad: bool = True
    has_grad: bool = False
    node: int | None = None
    sharded: bool = False  # the graph holds another tensor in its place, unknown which
    # functional_call ran its module with another tensor in its place
    replaced: bool = False


class Model(NamedTuple):
    """A model that was given, or found among the variables. `certain` when the caller
    named it as the one that matters.
    """

    name: str
    type: str
    certain: bool = False
    training: bool = True


class Optimizer(NamedTuple):
    """An optimizer that was given, or found among the variables."""

    name: str
    tensors: tuple[NamedTensor, ...]
    row: OptimizerRow  # the same one over the run, which goes on behind the call


class LeafGradient(NamedTuple):
    """The gradient that a leaf would get, or has been left with. `nonfinite` of its
    elements are NaN or Inf. `is_zero`: so is the leaf itself, where the gradient is 0.
    """

    node: int
    norm: float  # 0 only where all elements are
    nonfinite: int
    is_zero: bool = False


class Gradients(NamedTuple):
    """What backward would compute. `nonfinite` holds nodes whose incoming gradient is
    finite and outgoing is not.
    """

    leaves: tuple[LeafGradient, ...] = ()
    nonfinite: tuple[int, ...] = ()
    problem: str = ""  # why it could not be computed


class Cycle(NamedTuple):
    """A custom Function, `of` that name, that keeps its output as `attribute` of ctx:
    neither is freed when the step is over.
    """

    attribute: str
    of: str
    source: SourceLine | None = None  # where the attribute is set


@dataclass(eq=False)
class BackwardCall:
    """What checks look at: the graph that a backward call runs through, and what is
    known around it. The defaults mean "nothing known". `collect/collector` fills it: from
    the walk, from live objects (`models`), the lines (`cuts/answers`) and `numbers`.

    Without a call, the graph is that of outputs that were given, or left in the end.
    """

    graph: Graph
    run: TrainingRun = field(default_factory=TrainingRun)
    # the graph with what was cut off, where that is to be drawn
    drawn: Graph | None = None
    call: int | None = None  # the backward call that is about to run through the graph
    after: bool = False  # it has run since: `has_grad` says what it left
    create_graph: bool = False  # it is a part of a step, and does not end one
    # the leaves whose gradient the code asked for, by node, if it named some
    asked: frozenset[int] = frozenset()
    # the engine had run, or failed, when this was read: what it has freed was not freed
    # before
    ran: bool = False
    # nobody named the outputs: they are the tensors that were left when the script
    # ended, or failed
    guessed: bool = False
    # sequence numbers at the last backward call of each step before, and at the call
    # before: what ran before has a lower one
    ends: Sequence[int] = ()
    before: int = 0

    # the code around the call
    grad_enabled: bool = True
    body: Body = NOWHERE  # of the function that makes the call
    backward: SourceLine | None = None  # the line that makes it
    # how outputs without a graph came about
    origin: Origin = NO_ORIGIN

    # what the variables hold
    models: tuple[Model, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    optimizers: tuple[Optimizer, ...] = ()
    named_tensors: tuple[NamedTensor, ...] = ()
    # of parameters that no module lists, by node
    homes: Mapping[int, Home] = field(default_factory=dict)
    # with the nodes that it made
    cycles: Mapping[Cycle, Sequence[int]] = field(default_factory=dict)
    # by node of the leaf
    intervals: Mapping[int, Interval] = field(default_factory=dict)

    # what was cut off elsewhere, by node; what lines before the call cut off; and why
    # leaves get no gradient, by name
    entered: Mapping[int, tuple[Cut, ...]] = field(default_factory=dict)
    cuts_before: tuple[Cut, ...] = ()
    answers: Mapping[str, Answer] = field(default_factory=dict)

    # numbers
    values: Values | None = None
    gradients: Gradients | None = None
    # nodes that modules with inplace=True made, where something was changed in place
    in_place: frozenset[int] = frozenset()
    # nodes that were given a number at which they have a pole
    poles: frozenset[int] = frozenset()
    # activations that have no slope at any element
    dead: frozenset[int] = frozenset()

    @property
    def shown(self) -> Graph:
        """What a picture shows: also what was cut off, where that is to be drawn."""
        if self.drawn is None:
            return self.graph
        return replace(self.drawn, process=self.graph.process)

    @property
    def is_last(self) -> bool:
        """Whether no later call of the run was read."""
        return not self.run.read or self.run.read[-1] is self

    @property
    def earlier(self) -> list[BackwardCall]:
        """The calls that were read before this one."""
        calls = self.run.read
        return calls[: calls.index(self)] if self in calls else []

    @property
    def previous(self) -> BackwardCall | None:
        """The last of these that ends a step."""
        before = [call for call in self.earlier if not call.create_graph]
        return before[-1] if before else None

    @property
    def since(self) -> int:
        """Nodes that this step has made have this sequence number or a higher one."""
        return self.ends[-1] if self.ends else 0

    @property
    def loss(self) -> float | None:
        """What backward begins at, when that is one number."""
        return dict(self.run.losses).get(self.call or 0)

    @property
    def losses(self) -> list[tuple[int, float]]:
        """The calls and losses before, as far as they were read."""
        number = self.call or 0
        return [(call, loss) for call, loss in self.run.losses if call < number]

    @property
    def is_broken(self) -> bool:
        """Whether it has left gradients that are not finite."""
        return any(leaf.nonfinite for leaf in self.leaf_gradients)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Where graphs were cut off from what takes part in this one all the same."""
        return tuple(dict.fromkeys(chain(*self.entered.values())))

    @property
    def at_work(self) -> list[Optimizer]:
        """The optimizers but for those that are known to take no step behind this call:
        they belong to what was before.
        """
        ended, number = self.run.ended, self.call or 0
        return [
            optimizer
            for optimizer in self.optimizers
            if not ended or optimizer.row.last_call >= number
        ]

    @property
    def optimized(self) -> set[int | None]:
        """The leaves of the graph that optimizers hold, by node."""
        return {
            tensor.node for optimizer in self.optimizers for tensor in optimizer.tensors
        } - {None}

    @property
    def leaf_gradients(self) -> tuple[LeafGradient, ...]:
        """Those that are known."""
        return self.gradients.leaves if self.gradients is not None else ()
