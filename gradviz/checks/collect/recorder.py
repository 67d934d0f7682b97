"""The one log of a run: which events came at which line, about which tensors; which
backward calls belong to one step; and what holds the graphs of earlier ones.

Whatever is seen is written here, into `TrainingRun`, which the rules read. Concludes
nothing, and keeps nothing of the user's alive.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any
from weakref import WeakSet

import torch

from gradviz.armour.signals import signalled
from gradviz.checks.call import LeafGradient
from gradviz.checks.collect.behind import Variables
from gradviz.checks.collect.held import held_since
from gradviz.checks.run import Event, Kind, TrainingRun
from gradviz.explanation import optimized
from gradviz.graph import SourceLine
from gradviz.packages import UserCode, with_text
from gradviz.run.engine import EngineCall
from gradviz.run.outputs import LiveOutputs
from gradviz.variables.objects import is_a, parameters
from gradviz.walker.private import peek_sequence

KEPT = 1000
"""Events that are logged; what an order is like shows in the first few."""
NOTES = 100
"""Lines of which something is said once."""


Note = tuple[Any, ...]
"""What `Recorder.note` takes: the kind, the line, and what it is about."""


class Recorder:
    """Of one run, whose `number`-th backward call came last.

    `ends` are the sequence numbers at the last call of each step that is over, `before`
    is that at the call before the last one, `turn` that at the last call before of the
    same line: two losses may go on with what one line computed.
    """

    def __init__(self) -> None:
        self.run, self.number = TrainingRun(), 0
        self.ends, self.before, self._last = array("Q"), 0, 0
        self.turn, self._calls_at = 0, dict[SourceLine | None, int]()
        self.zeros = False  # the last call left a gradient of 0
        self.updated = False  # an optimizer has taken a step since the last call
        self._backward: Event | None = None  # where that is logged
        # nobody watches the steps that run now, see `Pause`; and whether that ever was so:
        # the log has gaps from there on, so that it says nothing of an order any more
        self.paused = self.was_paused = False
        # what runs around each step() of an optimizer
        self.step_code: CodeType | None = None
        # how many of one hook a tensor had when it was met first
        self.hooks: dict[tuple[str, CodeType], int] = {}
        # modules that `functional_call` ran with other tensors
        self.replaced = WeakSet[torch.nn.Module]()
        # parts that could not be read, and why
        self.dropped: dict[str, str] = {}
        self._code = UserCode()
        self._notes: dict[tuple[Kind, object], Event] = {}
        self._sets: dict[frozenset[int], frozenset[int]] = {}

    def script_line(self, frame: FrameType | None) -> SourceLine | None:
        """The script's own line; the library's where no script is running."""
        place = self._code.place(frame)
        return place.own_line if place else None

    def line(self, frame: FrameType | None) -> SourceLine | None:
        """The nearest line outside torch."""
        place = self._code.place(frame)
        return with_text(place.source) if place else None

    def in_step(self, frame: FrameType | None) -> bool:
        """Whether an optimizer's step() runs around a frame: a closure may call backward
        in it. Asked of the frames, as a step that raised has not told of its end.
        """
        if self.step_code is None:
            return False
        while frame is not None and frame.f_code is not self.step_code:
            frame = frame.f_back
        return frame is not None

    @contextmanager
    def reading(self, part: str) -> Iterator[None]:
        """Reads one part of what is known at the last call. It is left out where it cannot be
        read, and the report says so: the user's script is to run on.
        """
        try:
            yield
        except Exception as error:
            if signalled(error):
                raise
            number = f" at call {self.number}" if self.number else ""
            reason = f"could not be read{number}: {type(error).__name__}"
            self.dropped.setdefault(part, reason)

    # -- events ------------------------------------------------------------------------

    def log(
        self,
        kind: Kind,
        frame: FrameType | None,
        about: object = None,
        tensors: frozenset[int] | None = None,
    ) -> Event | None:
        """A call of a training loop, which is about these tensors, or a module or an
        optimizer. None where it is not logged.
        """
        if len(self.run.log) >= KEPT or self.was_paused:
            return None
        # what an optimizer calls in its step is its own affair
        if self.in_step(frame):
            return None
        if is_a(about, torch.optim.Optimizer):
            tensors = frozenset(map(id, optimized(about)))
        elif is_a(about, torch.nn.Module):
            tensors = frozenset(map(id, parameters(about)))
        if tensors is not None:  # one set for all calls about the same
            tensors = self._sets.setdefault(tensors, tensors)
        event = Event(kind, tensors, self.line(frame), call=self.number)
        self.run.log.append(event)
        return event

    def note(
        self,
        kind: Kind,
        source: SourceLine | None,
        *about: str,
        tensors: frozenset[int] | None = None,
        lines: Iterable[tuple[str, int]] = (),
        times: int = 1,
    ) -> None:
        """Something that is one event, however often its line does it; or at most so
        many `times` in a row.
        """
        key = kind, source if source is not None else about
        event = self._notes.get(key)
        if event is None and len(self._notes) < NOTES:
            event = Event(kind, tensors, source, about, call=self.number)
            self._notes[key] = event
            self.run.log.append(event)
        if event is not None:
            event.times = max(event.times, times)
            event.lines.update(lines)

    # -- backward calls and steps ------------------------------------------------------

    def backward(
        self, number: int, call: EngineCall | LiveOutputs, loss: float | None
    ) -> None:
        """The code calls backward for the `number`-th time. Calls between which no
        optimizer took a step belong to one step; where the code has none, nobody sees
        its updates, and each call is a step.
        """
        self.number, fills, run = number, call.accumulates, self.run
        reached = None if fills else frozenset[int]()
        self._backward = self.log(Kind.BACKWARD, call.frame, tensors=reached)
        run.calls += fills
        run.differentiated |= call.create_graph
        # a call with create_graph is a part of a step, and does not end one
        if not call.create_graph:
            if self._last and (self.updated or not run.optimizers):
                self.ends.append(self._last)
            self.before, self._last = self._last, peek_sequence()
            self.updated = False
        line = self.script_line(call.frame)
        self.turn = self._calls_at.get(line, 0)
        self._calls_at[line] = peek_sequence()
        if loss is not None:
            run.losses.append((number, loss))

    def reaches(self, leaves: Iterable[int]) -> None:
        """The backward call that came last leads to these leaves."""
        if self._backward is not None:
            self._backward.tensors = frozenset(leaves)

    @property
    def reached_last(self) -> frozenset[int]:
        """The leaves that the last call led to, as far as that is known."""
        reached = self._backward.tensors if self._backward is not None else None
        return reached or frozenset()

    def left(
        self, gradients: Sequence[LeafGradient], leaves: Mapping[int, torch.Tensor]
    ) -> None:
        """The backward call that came last has left these gradients, of leaves with the
        same keys.
        """
        self.zeros = not all(gradient.norm for gradient in gradients)
        for gradient in gradients:
            if gradient.norm and gradient.node in leaves:
                names = self.run.names.get(id(leaves[gradient.node]), ())
                self.run.nonzero |= dict.fromkeys(names, self.number)

    def look(self, variables: Variables) -> None:
        """Note the variables that hold the graphs of several steps."""
        for history in held_since(variables, self.ends) if self.ends else ():
            # code elsewhere calls it by another name: `self.total` of `trainer.total`
            name = history.name.rpartition(".")[2]
            before = self.run.held.get(name)
            # nobody may have watched the steps that it holds now
            if before is not None and history.source is None:
                history = history._replace(source=before.source, added=before.added)
            self.run.held[name] = history
