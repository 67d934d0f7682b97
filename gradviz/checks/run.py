"""The record of a run: a row for each leaf and each optimizer, the models as they were,
and one log of calls in order.

Plain data, like `context`: it holds no tensor and imports no torch. Leaves are known by
identity, so that rows that belong together are found. Invariants of a training run are
asked of it: what is held gets a gradient, what gets one is held, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from gradviz.checks.words import Names
from gradviz.graph import SourceLine, TensorInfo
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.source.cut import Cut


class Interval(NamedTuple):
    """What was done with a leaf since the last call that reached it: whether it was
    stepped with a gradient, changed in place, and whether that gradient was reset; and
    how often in a row either was done without.
    """

    stepped: bool = False
    changed: bool = False
    reset: bool = False
    steps: int = 0
    changes: int = 0


LETTERS = {
    **{
        "backward": "b",
        "zero": "z",
        "clip": "c",
        "scale": "S",
        "unscale": "u",
        "scaler_step": "x",
        "update": "U",
    },
    **{"step": "s", "schedule": "l"},
}
"""What the order of a training loop consists of, each as a letter of a pattern."""


class Event(NamedTuple):
    """One of those calls. `tensors` are identities of the parameters that it is about,
    None where that is not known.
    """

    letter: str
    number: int  # backward calls so far, this one included
    tensors: frozenset[int] | None = None
    source: SourceLine | None = None

    def about(self, other: Event) -> bool:
        """Whether both may be about the same parameters."""
        return (
            self.tensors is None
            or other.tensors is None
            or not self.tensors.isdisjoint(other.tensors)
        )


Log = Sequence[Event]


def letters(log: Log) -> str:
    """The order of calls as one word."""
    return "".join(call.letter for call in log)


def calls_in(log: Log, kinds: str) -> Log:
    """The calls of these letters."""
    return [call for call in log if call.letter in kinds]


def parts(log: Log, pattern: str) -> Iterator[Log]:
    """The parts of a log that a pattern over its letters matches, one after the other."""
    return (
        log[match.start() : match.end()] for match in re.finditer(pattern, letters(log))
    )


@dataclass(slots=True, eq=False)
class LeafRow:
    """A leaf that backward calls have reached, and what became of it over the run.

    `model` and `module` are the names of the model and of the module that own it, ""
    for what no module holds.
    """

    names: Names
    tensor: TensorInfo
    parameter: bool  # an nn.Parameter that a module lists
    node: int = 0  # in the graph of the last call that reached it
    call: int = 0  # that call
    first: int = 0  # and the first one
    reached: int = 0  # in how many calls
    model: str = ""
    module: str = ""
    type: str = ""  # class of that module
    holders: Names = ()  # names of the optimizers that hold it
    # whether it changed between the calls; None where that was not looked at
    moved: bool | None = None
    source: SourceLine | None = None  # where a module's own code makes it
    # the line that made it, when it is younger than an optimizer
    born: SourceLine | None = None
    after: int = 0  # how many optimizers were there then


@dataclass(slots=True, eq=False)
class OptimizerRow:
    """An optimizer over a run. Tensors are sets of identities."""

    type: str
    number: int = 0  # of the optimizers that were made before
    source: SourceLine | None = None  # where it was made
    name: str = ""
    steps: int = 0  # begun
    last_call: int = 0  # the backward call in front of its last step
    ended: bool = False  # as the run has: no other step follows
    idle_rates: int = 0  # steps in which every learning rate was 0
    held: set[int] = field(default_factory=set)
    fed: set[int] = field(default_factory=set)  # had a gradient when a step began
    # require no gradient, and were updated all the same
    frozen: set[int] = field(default_factory=set)
    reached: set[int] = field(default_factory=set)  # were in the graph of a call

    @property
    def title(self) -> str:
        """It in a sentence."""
        return f"{one_line(self.name)} ({self.type})" if self.name else self.type

    @property
    def subject(self) -> Names:
        """What a finding about it is about."""
        return (self.name or self.type,)

    def idle_after(self, call: int) -> bool:
        """Whether it is known that no step of it follows a backward call."""
        return self.ended and self.last_call < call


class Mistyped(NamedTuple):
    """An attribute that was meant to freeze something and does not: `require_grad` of
    parameters, `requires_grad` of a module.
    """

    names: Names
    attribute: str
    module: bool
    source: SourceLine | None = None


class ModelState(NamedTuple):
    """A model at the last backward call."""

    name: str
    type: str
    training: bool
    held: int = 0  # parameters that an optimizer holds
    sharded: bool = False


class Asleep(NamedTuple):
    """A model that a step was taken of while it was in eval() mode, with the parts of
    it that need the other one.
    """

    name: str
    type: str
    parts: Names
    source: SourceLine | None = None  # that switched it


class RetainedHistory(NamedTuple):
    """What reaches back behind an earlier backward call, through the outputs or through
    a variable.

    `nodes` were made before the previous call and are still held; `joints` are edges
    (consumer, position) of the graph that lead from new nodes to old ones.
    """

    name: str  # "" for the outputs themselves
    nodes: int
    nbytes: int | None = None
    source: SourceLine | None = None
    joints: tuple[tuple[int, int], ...] = ()
    # the line that puts it into the variable, when that is a container
    added: SourceLine | None = None
    newest: int = 0  # the number of the newest node that the variable leads to
    steps: int = 0  # whose graphs it holds, where that was seen later in the run
    # a joint whose two ends one line of code made, in this step and in an earlier one
    repeats: bool = False
    # steps that lead from the variable to tensors with a graph: two in `[3].h`
    depth: int = 0


class Misuse(NamedTuple):
    """A line that does something else than it looks like: of which kind, what it was
    given in words, and how often it ran.
    """

    kind: str
    source: SourceLine
    words: Names = ()
    times: int = 1
    tensors: frozenset[int] = frozenset()  # identities of parameters that it is about
    names: Names = ()  # of the tensors or Functions that it is about


class Unused(NamedTuple):
    """Calls of a model in eval() mode, in a row from one line, that recorded a graph
    which no backward call reached.
    """

    source: SourceLine
    type: str  # class of the model
    calls: int
    nodes: int


class Raised(NamedTuple):
    """The exception that ended the user's code. Names and shape are those of the
    backward call that it came from, if it did.
    """

    kind: str
    text: str
    source: SourceLine | None = None  # the innermost line of the user's
    outputs: Names = ()
    shape: tuple[int, ...] = ()
    backward: bool = False  # whether it came out of a backward call
    # inputs that the outputs do not depend on; or the tensor that was refused
    missing: Names = ()
    # the line of the custom Function that the message is about
    custom: SourceLine | None = None
    # the line that gave the tensor its value which was refused
    made: SourceLine | None = None
    # the constructor of a module of torch that it came out of: "MSELoss.__init__"
    within: str = ""


@dataclass
class TrainingRun:
    """What was seen of a whole run."""

    log: list[Event] = field(default_factory=list)
    leaves: dict[int, LeafRow] = field(default_factory=dict)  # by identity
    optimizers: list[OptimizerRow] = field(default_factory=list)
    # of all leaves and parameters, by identity
    names: dict[int, Names] = field(default_factory=dict)
    # at the last call whose gradients a step has used
    models: tuple[ModelState, ...] = ()
    calls: int = 0  # backward calls that fill gradients
    updates: int = 0  # steps of optimizers, but for those inside of others
    scaled: bool = False  # a GradScaler has scaled a loss
    scaler: bool = False  # a variable holds one, which decides whether steps are taken
    ended: bool = False  # the run ended by itself: nothing follows
    mistyped: tuple[Mistyped, ...] = ()
    raised: Raised | None = None  # how the script failed
    # graphs that variables hold, beside what the calls that were read show
    histories: tuple[RetainedHistory, ...] = ()
    evaluations: tuple[Unused, ...] = ()
    misuses: tuple[Misuse, ...] = ()
    asleep: tuple[Asleep, ...] = ()
    cuts: tuple[Cut, ...] = ()  # what the calls that were read show

    @property
    def rows(self) -> list[LeafRow]:
        """The leaves, in the order in which calls reached them."""
        return list(self.leaves.values())

    @property
    def stepped(self) -> bool:
        """Whether an optimizer took a step."""
        return any(optimizer.steps for optimizer in self.optimizers)

    def about(self, optimizer: OptimizerRow) -> Log:
        """The calls about what an optimizer holds; where several step, until it is not
        known whom some backward reaches.
        """
        log = [
            call
            for call in self.log
            if call.tensors is None or not optimizer.held.isdisjoint(call.tensors)
        ]
        if sum(row.steps > 0 for row in self.optimizers) < 2:
            return log
        known = (call.letter != "b" or call.tensors is not None for call in log)
        return [call for call, _ in takewhile(itemgetter(1), zip(log, known))]

    @property
    def holding(self) -> set[int]:
        """Identities of what optimizers hold."""
        return set[int]().union(*(row.held for row in self.optimizers))

    def named(self, keys: Iterable[int]) -> Names:
        """The first names of leaves, by identity, in the order in which they were met."""
        wanted = set(keys)
        return tuple(
            names[0] for key, names in self.names.items() if names and key in wanted
        )

    def model(self, name: str) -> ModelState | None:
        """The model of this name."""
        return next(
            (model for model in self.models if model.name == name),
            None,
        )
