"""Writes the log of a run: which events came at which line, about which tensors.

Concludes nothing, and keeps nothing of the user's alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FrameType
from weakref import WeakSet

import torch

from gradviz.checks.collect.numbers import optimized
from gradviz.checks.run import Event, Kind, TrainingRun
from gradviz.graph import SourceLine
from gradviz.packages import UserCode, with_text
from gradviz.variables.objects import is_a, parameters

KEPT = 1000
"""Events that are logged; what an order is like shows in the first few."""
NOTES = 100
"""Lines of which something is said once."""


class Recorder:
    """Of one run, whose `number`-th backward call came last."""

    def __init__(self, code: UserCode) -> None:
        self.run, self.number = TrainingRun(), 0
        # nobody watches the steps that run now, or some did before: see `Rest`
        self.rests = self.rested = False
        # optimizers whose step() runs now: a closure may call backward inside
        self.stepping: list[int] = []
        # modules that `functional_call` ran with other tensors
        self.replaced = WeakSet[torch.nn.Module]()
        self._code = code
        self._notes: dict[tuple[Kind, object], Event] = {}
        self._sets: dict[frozenset[int], frozenset[int]] = {}

    def script_line(self, frame: FrameType | None) -> SourceLine | None:
        """The script's own line; the library's where no script is running."""
        place = self._code.place(frame)
        return with_text(place.script_line or place.source) if place else None

    def line(self, frame: FrameType | None) -> SourceLine | None:
        """The nearest line outside torch."""
        place = self._code.place(frame)
        return with_text(place.source) if place else None

    def log(
        self,
        kind: Kind,
        about: object,
        frame: FrameType,
        tensors: frozenset[int] | None = None,
    ) -> None:
        """A call of a training loop, which is about a module, an optimizer or these
        tensors.
        """
        # what an optimizer calls in its step is its own affair
        if len(self.run.log) < KEPT and not (self.stepping or self.rested):
            if is_a(about, torch.optim.Optimizer):
                tensors = frozenset(map(id, optimized(about)))
            elif is_a(about, torch.nn.Module):
                tensors = frozenset(map(id, parameters(about)))
            if tensors is not None:  # one set for all calls about the same
                tensors = self._sets.setdefault(tensors, tensors)
            event = Event(kind, self.number, tensors, self.line(frame))
            self.run.log.append(event)

    def note(
        self,
        kind: Kind,
        source: SourceLine | None,
        *about: str,
        tensors: frozenset[int] | None = None,
        lines: Iterable[tuple[str, int]] = (),
        times: int = 0,
    ) -> None:
        """Something that is one event, however often its line does it; or at most so
        many `times` in a row.
        """
        key = kind, source if source is not None else about
        event = self._notes.get(key)

        if event is not None:
            event.times = max(event.times, times) if times else event.times + 1
            event.lines.update(lines)
        elif len(self._notes) < NOTES:
            event = Event(
                kind,
                self.number,
                tensors,
                source,
                about,
                times or 1,
            )
            event.lines.update(lines)
            self._notes[key] = event
            self.run.log.append(event)

    def backward(
        self,
        number: int,
        frame: FrameType,
        fills: bool = True,
    ) -> None:
        """The code calls backward for the `number`-th time. `fills`: gradients go to
        `.grad`.
        """
        self.number = number
        self.log(Kind.BACKWARD, None, frame, None if fills else frozenset())
        self.run.calls += fills

    def reaches(self, leaves: Iterable[int]) -> None:
        """The backward call that came last leads to these leaves."""
        # no such call is logged when the log is full, or inside an optimizer's step
        for event in self.run.log[-1:]:
            if (event.kind, event.number) == (Kind.BACKWARD, self.number):
                event.tensors = frozenset(leaves)
