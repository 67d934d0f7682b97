"""One run of the user's code, as plain data: one log of events in their order, a row
for each leaf and each optimizer, and a row for each backward call that was read.

Who writes what (all in `collect/`): `recorder` owns the log, steps and losses, and what
variables hold, which `held` finds; `ledger` the rows of leaves and optimizers;
`collector`, `loop`, `modes`, `misuse`, `copies`, `functions` and `watch` say what
happened, and the recorder notes it; `failures` reads the exception. Rules only read.

It holds no tensor and imports no torch. Tensors are known by identity, so that events
and rows that belong together are found.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from gradviz.checks.words import Names
from gradviz.graph import SourceLine
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.checks.call import BackwardCall


NOTHING = 1e-6
"""Of the first learning rate: a step with less changes nothing."""
HABIT = 2
"""Times, calls or steps from which something is a habit of the code. Once may be on
purpose, as in training against each other.
"""
LOSSES = 1000
"""Losses that are kept."""


class Kind(Enum):
    """What an event is. Its letter stands for it in patterns over the log."""

    BACKWARD = "b"
    ZERO = "z"
    STEP = "s"
    SCHEDULE = "l"
    EVALUATED = "v"  # in training mode where nothing is recorded; about the model
    ASLEEP = "e"  # a step of a model in eval() mode; about it and its parts
    AWAKE = "a"  # dropout in eval() mode, by a function; about the model and that
    DROPPING = "D"  # so does attention; about the model, and its `dropout_p`
    TEACHER = "t"  # what nothing trains runs as in training; about it
    RETAINED = "r"  # a graph that no later call met
    UNUSED = "p"  # passes in eval() mode whose graph no call reached
    NO_HOOK = "h"  # a module with hooks whose forward() is called; about it
    NO_APPLY = "A"  # forward() of a custom Function is called; about it
    NO_FUNCTION = "B"  # a module has a backward() of its own; about its class
    NO_EFFECT = "n"  # a line drops what it computes; about its code and what to do
    UNSEEN = "u"  # a line changes what was saved; about that, the saver, what to do
    OVERWRITTEN = "o"  # a line adds to elements, and keeps one of several
    DRAWN = (
        "d"  # a function draws what a loss expects anew; about that and the function
    )
    SQUARED = "q"  # a row and a column make data; about both, the operation, how long
    ONE_MODULE = "1"  # at several places; about how many, and the code of several
    NO_SWITCH = "m"  # requires_grad = False of modules, about them: it freezes nothing
    # of a custom Function: about its name
    OTHER_SLOPE = "f"
    SECOND_SLOPE = "F"
    SAME_SIGN = "R"
    NO_CHAIN = "g"  # its result is one number, and no loss
    HOOKED = "k"  # one hook, several times; about the tensor and how often
    NO_NEGATIVE = "-"  # a hook lets no negative gradient through; about the tensor
    AVERAGED = "G"  # a network is averaged, and trained; about that and the other one
    NO_CLIP = "c"  # of an iterator that is used up
    LATE = "L"  # hooks of a loop share a variable of it; about that and how many


@dataclass(slots=True, eq=False)
class Event:
    """Something that happened at a line. `tensors` are identities of the parameters
    that it is about, None where that is not known.
    """

    kind: Kind
    tensors: frozenset[int] | None = None
    source: SourceLine | None = None
    about: Names = ()
    times: int = 1
    call: int = 0  # the backward call before it
    lines: set[tuple[str, int]] = field(default_factory=set)  # that led there

    def concerns(self, optimizer: OptimizerRow) -> bool:
        """Whether it is about what an optimizer holds, as far as that is known."""
        return self.tensors is None or not optimizer.held.isdisjoint(self.tensors)


Log = Sequence[Event]


def letters(log: Log) -> str:
    """The order of events as one word."""
    return "".join(event.kind.value for event in log)


class Interval(NamedTuple):
    """What was done with a leaf since the last call that reached it: whether it was
    updated; and in how many intervals since its gradient was reset an optimizer stepped
    it with a gradient, or it changed in any way; and whether its gradient is `kept`.
    """

    updated: bool = False
    steps: int = 0
    changes: int = 0
    kept: bool = False


@dataclass(slots=True, eq=False)
class LeafRow:
    """A leaf that backward calls have reached, and what became of it over the run."""

    names: Names
    model: str | None = None  # whose parameters() lists it
    module: str = ""  # that owns it then
    node: int = 0  # in the graph of the last call that reached it
    call: int = 0  # that call
    reached: int = 0  # in how many calls
    first: int = 0  # the first one of these
    # whether it changed between the calls; None where that was not looked at
    moved: bool | None = None
    elements: object = None  # a few of them, and its version, at the first call


@dataclass(slots=True, eq=False)
class OptimizerRow:
    """An optimizer over a run. Tensors are sets of identities."""

    type: str
    source: SourceLine | None = None  # where it was made
    name: str = ""
    steps: int = 0  # begun
    passed: int = 0  # that nobody watched
    remembers: bool = False  # a step leaves something for the next one
    first_call: int = 0  # the backward call in front of its first step
    last_call: int = 0  # and of its last one
    held: set[int] = field(default_factory=set)
    # what it held last, and what of it had a gradient when a step began
    current: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    # its learning rate: the last one and the first, and the last step that moved much
    lr: float = 1
    usual: float = 0
    rated: int = 0
    # require no gradient, and were updated all the same
    frozen: set[int] = field(default_factory=set)
    reached: bool = False  # one of them was in the graph of a call
    # steps with all of it frozen, after a call that reached nothing of any optimizer,
    # and the line of the last one
    starved: int = 0
    starved_at: SourceLine | None = None

    def rate(self, rate: float) -> None:
        """A step begins, with this learning rate."""
        self.lr, self.usual = rate, self.usual or rate
        if rate > NOTHING * self.usual:
            self.rated = self.steps

    @property
    def title(self) -> str:
        """It in a sentence."""
        return f"{one_line(self.name)} ({self.type})" if self.name else self.type

    @property
    def subject(self) -> Names:
        """What a finding about it is about."""
        return (self.name or self.type,)


class LossArguments(NamedTuple):
    """What a loss function of torch was given: the shapes of both; and the leaves behind
    a target that has a graph, and behind the input then, by identity.
    """

    function: str
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    leaves: frozenset[int] = frozenset()
    input_leaves: frozenset[int] = frozenset()
    made_by: str = ""  # the operation that made the input


class RetainedHistory(NamedTuple):
    """A variable that holds the graphs of several steps: `nodes` of earlier ones. `source`
    made the newest, and `added` puts it into the variable, when that is a `container`.
    """

    name: str
    nodes: int
    steps: int
    source: SourceLine | None = None
    added: SourceLine | None = None
    container: bool = False


def steps_of(numbers: Iterable[int], ends: Sequence[int]) -> int:
    """Of how many steps the nodes with these sequence numbers are, which ended there.

    >>> steps_of([1, 12, 13], [10, 20])
    2
    """
    return len({bisect_right(ends, number) for number in numbers})


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
    missing: Names = ()  # inputs that the outputs do not depend on
    # the line of the custom Function that the message is about
    custom: SourceLine | None = None
    # of where it came out, a fact a line: "MSELoss.__init__", or "copied: net.cache"
    within: str = ""


@dataclass(eq=False)
class TrainingRun:
    """What was seen of a run of the user's code."""

    log: list[Event] = field(default_factory=list)
    leaves: dict[int, LeafRow] = field(default_factory=dict)  # by identity
    optimizers: list[OptimizerRow] = field(default_factory=list)
    # the backward calls that were read
    read: list[BackwardCall] = field(default_factory=list)
    # of all leaves and parameters, by identity
    names: dict[int, Names] = field(default_factory=dict)
    calls: int = 0  # backward calls that fill gradients
    differentiated: bool = False  # a call had create_graph=True
    # a GradScaler has scaled a loss: it decides whether steps are taken
    scaled: bool = False
    ended: bool = False  # the run ended by itself: nothing follows
    raised: Raised | None = None  # how the script failed
    # calls and losses, of the last calls
    losses: deque[tuple[int, float]] = field(
        default_factory=lambda: deque(maxlen=LOSSES)
    )
    looked: list[int] = field(default_factory=list)  # calls whose gradients are known
    # by name of a leaf: the last call that gave it a gradient which is not all zero
    nonzero: dict[str, int] = field(default_factory=dict)
    # variables that hold the graphs of several steps, by the end of their name
    held: dict[str, RetainedHistory] = field(default_factory=dict)
    # of losses of torch, by line and function
    loss_arguments: dict[tuple[SourceLine, str], LossArguments] = field(
        default_factory=dict
    )
    used: set[str] = field(default_factory=set)  # names of what takes part in a call
    # names of parameters that no call has reached, and that change all the same
    by_hand: set[str] = field(default_factory=set)
    # leaves behind the inputs of `autograd.grad`, by identity
    differentiated_by: set[int] = field(default_factory=set)
    # lines that graphs of backward calls were computed from
    trained_with: set[tuple[str, int]] = field(default_factory=set)

    @property
    def stepped(self) -> bool:
        """Whether an optimizer took a step."""
        return any(optimizer.steps for optimizer in self.optimizers)

    def events(self, *kinds: Kind) -> Log:
        """Those of these kinds."""
        return [event for event in self.log if event.kind in kinds]

    def about(self, optimizer: OptimizerRow) -> Log:
        """The events about what an optimizer holds; where several step, until it is not
        known whom some backward reaches.
        """
        log = [event for event in self.log if event.concerns(optimizer)]
        if sum(row.steps > 0 for row in self.optimizers) < 2:
            return log

        def is_clear(event: Event) -> bool:
            return event.kind is not Kind.BACKWARD or event.tensors is not None

        return list(takewhile(is_clear, log))

    def calls_of(self, optimizer: OptimizerRow) -> set[int]:
        """The backward calls in front of its steps and behind any other, as far as these
        are logged.
        """
        number, found, since = 0, set[int](), set[int]()
        for event in self.log:
            if event.kind is Kind.BACKWARD:
                number += 1
                since.add(number)
            elif event.kind is Kind.STEP:
                found |= since if event.concerns(optimizer) else set()
                since.clear()
        return found

    def rest(self, event: Event) -> bool:
        """Whether no optimizer that holds what an event is about has stepped since."""
        tensors = event.tensors or frozenset()
        return all(
            row.held.isdisjoint(tensors) or row.last_call <= event.call
            for row in self.optimizers
        )

    @property
    def holding(self) -> set[int]:
        """Identities of what optimizers hold."""
        return set[int]().union(*(row.held for row in self.optimizers))

    @property
    def given(self) -> set[int]:
        """Identities of what backward reached, or has had a gradient at a step."""
        return set(self.leaves).union(*(row.given for row in self.optimizers))

    def named(self, keys: Iterable[int]) -> Names:
        """The first names of leaves, by identity, in the order in which they were met."""
        wanted = set(keys)
        return tuple(
            names[0] for key, names in self.names.items() if names and key in wanted
        )
