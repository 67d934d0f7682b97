"""Writes the log of a run and the rows of its optimizers. The one place that hooks
optimizers, schedulers, clipping and scalers.

Optimizers tell of their steps themselves: fused ones write past the version counter,
which shows all other changes. Some of torch's own functions are tapped while the code
runs. Tensors and optimizers are held weakly. Concludes nothing, and writes nothing of
the user's.
"""

from __future__ import annotations

import functools
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType, GeneratorType
from typing import Any

import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gradviz.checks.collect.identity import ByIdentity
from gradviz.checks.collect.lines import users_frame
from gradviz.checks.collect.numbers import optimized
from gradviz.checks.run import Event, Kind, OptimizerRow, TrainingRun
from gradviz.graph import SourceLine
from gradviz.packages import (
    UserCode,
    code_line,
    is_foundation,
    package_of,
    with_text,
)
from gradviz.variables.objects import is_a, parameters
from gradviz.walker.isolation import isolated
from gradviz.walker.signals import uninterrupted
from gradviz.walker.taps import Began, Ended, all_tapped

KEPT = 3000
"""Events that are logged; what an order is like shows in the first few."""
NOTES = 100
"""Lines of which something is said once."""
_INTERNALLY = re.compile(r"\s*\(Triggered internally at .*?\)", re.DOTALL)
"""What torch adds to what it says in C++."""


def _untraced(
    hook: Callable[..., None],
) -> Callable[..., None]:
    """A hook of steps that torch's compiler does not trace, as it would break the
    graph: `look` sees a compiled step.
    """

    @functools.wraps(hook)
    def called(*arguments: Any) -> None:
        if not torch.compiler.is_compiling():
            hook(*arguments)

    return called


class Recorder:
    """Of one run. `on_backward` is called before each backward call that fills
    gradients, `on_step` with the tensors that have one when a step begins.
    """

    def __init__(self, code: UserCode) -> None:
        self.run = TrainingRun()
        # that had a gradient at a step since a call reached them, by identity: whether
        # the learning rate was not 0
        self.stepped: dict[int, bool] = {}
        # parameters that were made after an optimizer: the line, and how many
        # optimizers were there
        self.births = ByIdentity[tuple[SourceLine, int]]()
        # changes when an optimizer is made, or a parameter behind one
        self.stage = 0
        self.on_backward: Callable[[], None] = lambda: None
        self.on_step: Callable[[set[int]], None] = lambda fed: None
        self._code, self._number = code, 0
        self._notes: dict[tuple[Kind, object], Event] = {}
        self._optimizers = ByIdentity[OptimizerRow]()
        self._sets: dict[frozenset[int], frozenset[int]] = {}
        # optimizers whose step() runs now: a closure may call backward inside
        self._stepping: list[int] = []
        self._line_of = functools.cache(
            lambda code, line: with_text(code_line(code, line))
        )

    @property
    def in_step(self) -> bool:
        """Whether the step() of an optimizer runs now, and has called a closure."""
        return bool(self._stepping)

    # -- the log -----------------------------------------------------------------------

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
        line = (source.file, source.line) if source is not None else about
        key = kind, line
        event = self._notes.get(key)

        if event is not None:
            event.times = max(event.times, times) if times else event.times + 1
            event.lines.update(lines)
        elif len(self._notes) < NOTES:
            event = Event(
                kind,
                self._number,
                tensors,
                source,
                about,
                times or 1,
            )
            event.lines.update(lines)
            self._notes[key] = event
            self.run.log.append(event)

    def script_line(self, frame: FrameType | None) -> SourceLine | None:
        """The script's own line; the library's where no script is running."""
        place = self._code.place(frame)
        return with_text(place.script_line or place.source) if place else None

    def line(self, frame: FrameType | None) -> SourceLine | None:
        """The nearest line outside torch."""
        frame = users_frame(frame)
        if frame is not None:
            return self._line_of(frame.f_code, frame.f_lineno)
        return None

    def _log(
        self,
        kind: Kind,
        about: object,
        frame: FrameType,
    ) -> None:
        if len(self.run.log) < KEPT and not self._stepping:
            tensors = tensors_of(about)
            if tensors is not None:  # one set for all calls about the same
                tensors = self._sets.setdefault(tensors, tensors)
            event = Event(kind, self._number, tensors, self.line(frame))
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
        self._number = number
        self._log(Kind.BACKWARD, None if fills else (), frame)
        if fills:
            self.run.calls += 1
            self.on_backward()

    def reaches(
        self, leaves: Iterable[int], number: int, frame: FrameType | None
    ) -> None:
        """The `number`-th backward call, which may not be logged yet, leads to these
        leaves.
        """
        if number != self._number and frame is not None:
            self.backward(number, frame)
        for event in self.run.log[-1:]:
            if (event.kind, event.number) == (Kind.BACKWARD, self._number):
                event.tensors = frozenset(leaves)

    # -- hooks -------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, everything is logged."""
        with ExitStack() as until:
            until.callback(register_optimizer_step_pre_hook(self._step_begins).remove)
            until.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            until.enter_context(all_tapped(self._listeners()))
            yield

    def _listeners(self) -> Iterator[tuple[Any, Began]]:
        scaler, clips = torch.amp.GradScaler, torch.nn.utils.clip_grad
        yield torch.optim.Optimizer.zero_grad, self._logging(Kind.ZERO)
        yield torch.nn.Module.zero_grad, self._logging(Kind.ZERO)
        yield scaler.scale, self._scaled
        yield scaler.unscale_, self._logging(Kind.UNSCALE, 1)
        yield scaler.step, self._logging(Kind.SCALER_STEP, 1)
        yield scaler.update, self._logging(Kind.UPDATE)
        yield clips.clip_grad_norm_, self._clipped
        yield clips.clip_grad_value_, self._clipped
        yield torch.optim.Optimizer.__init__, self._made
        yield torch.nn.Parameter.__new__, self._born
        yield warnings._showwarnmsg, self._warned  # type: ignore[attr-defined]

        if hasattr(lr_scheduler.LRScheduler, "_update_lr"):
            yield lr_scheduler.LRScheduler._update_lr, self._scheduled
        else:  # an older torch, as 2.6: the guard that only step() makes
            guard: Any = lr_scheduler._enable_get_lr_call

            def entered(frame: FrameType, _: Any, scheduler: Any) -> None:
                self._scheduled(frame, scheduler)

            yield guard.__init__, entered

    def _logging(self, kind: Kind, position: int = 0) -> Began:
        """What logs the calls of a function, which are about the argument there."""

        def called(
            frame: FrameType,
            *arguments: Any,
            **_: Any,
        ) -> None:
            about = next(iter(arguments[position:]), None)
            self._log(kind, about, frame)

        return called

    def _scaled(
        self,
        frame: FrameType,
        scaler: Any,
        *_: Any,
    ) -> None:
        self.run.scaled |= scaler.is_enabled()
        self._log(Kind.SCALE, scaler, frame)

    def _clipped(
        self,
        frame: FrameType,
        about: object = None,
        max_norm: Any = None,
        clip_value: Any = None,
        **options: Any,
    ) -> None:
        """An infinite limit only asks for the norm, and clips nothing."""
        limit = max_norm if max_norm is not None else clip_value
        if not isinstance(limit, float) or not math.isinf(limit):
            self._log(Kind.CLIP, options.get("parameters", about), frame)

    def _made(
        self,
        frame: FrameType,
        optimizer: Any,
        *_: Any,
        **__: Any,
    ) -> Ended:
        @uninterrupted
        def ended(returned: bool, result: object) -> None:
            if returned:
                self.row(optimizer, frame)

        return ended

    def _born(
        self,
        frame: FrameType,
        *_: Any,
        **__: Any,
    ) -> Ended | None:
        """A parameter is made: the optimizers that are there may be too early for it."""
        count = len(self.run.optimizers)
        if not count:
            return None

        @uninterrupted
        def ended(returned: bool, parameter: torch.Tensor) -> None:
            source = self.line(frame) if returned else None
            if source is not None:
                self.stage += 1
                self.births.put(parameter, (source, count))

        return ended

    def _warned(
        self,
        frame: FrameType,
        shown: Any,
        *_: Any,
    ) -> None:
        """A warning is shown: one of each line, unless a filter says otherwise."""
        text, caller, users = str(shown.message), frame.f_back, users_frame(frame)
        if caller is None or users is None:
            return
        if not issubclass(shown.category, UserWarning):
            return

        torchs = _INTERNALLY.search(text) or is_foundation(caller.f_code.co_filename)
        if torchs and not package_of(users.f_code.co_filename):
            text = _INTERNALLY.sub("", text)
            self.note(Kind.WARNING, self.script_line(users), text)

    def _scheduled(
        self,
        frame: FrameType,
        scheduler: Any,
        *_: Any,
    ) -> None:
        """A learning rate scheduler takes its step; that which torch makes when it is
        made is left out.

        What `step()` calls is what is seen: torch's warning about their order names the
        line that calls `step()` itself.
        """
        step = frame.f_back
        caller = step.f_back if step is not None else None
        if step is None or caller is None or caller.f_code.co_name == "_initial_step":
            return

        with suppress(Exception):  # a scheduler of the user's own may hold anything
            optimizer = scheduler.optimizer
            # it is used in a way of its own
            by_hand = step.f_locals.get("epoch") is not None
            # a rate of 0 is left out on purpose
            if not by_hand and any(group["lr"] for group in optimizer.param_groups):
                self._log(Kind.SCHEDULE, optimizer, caller)

    # -- optimizers --------------------------------------------------------------------

    def row(
        self, optimizer: torch.optim.Optimizer, frame: FrameType | None = None
    ) -> OptimizerRow:
        """The row of an optimizer, which a line of this frame has made, as far as that
        is known.
        """
        row = self._optimizers.of(optimizer)
        if row is None:
            number, source = len(self.run.optimizers), self.line(frame)
            row = OptimizerRow(type(optimizer).__name__, number, source)
            self.stage += 1
            self._optimizers.put(optimizer, row)
            self.run.optimizers.append(row)
        return row

    def look(self) -> None:
        """Bring up to date what optimizers hold, at a backward call."""
        for optimizer, row in self._optimizers.alive():
            # an optimizer of the user's own may hold anything
            with isolated(), suppress(Exception):
                row.held.update(map(id, optimized(optimizer)))

    @uninterrupted
    @_untraced
    def _step_begins(
        self,
        optimizer: torch.optim.Optimizer,
        *_: Any,
    ) -> None:
        self._log(Kind.STEP, optimizer, sys._getframe(1))
        self.run.updates += not self._stepping
        self._stepping.append(id(optimizer))

        # an optimizer of the user's own may hold anything
        with isolated(), suppress(Exception):
            row, tensors = self.row(optimizer), optimized(optimizer)
            row.steps += 1
            rates = [float(group.get("lr", 1.0)) for group in optimizer.param_groups]
            row.idle_rates += not any(rates)
            row.rate = max(row.rate, *rates)

            with_gradient = [t for t in tensors if t.is_leaf and t.grad is not None]
            frozen = [t for t in with_gradient if not t.requires_grad]
            fed = set(map(id, with_gradient))
            row.held.update(map(id, tensors))
            row.fed |= fed
            row.frozen.update(map(id, frozen))
            self.stepped |= dict.fromkeys(fed, bool(any(rates)))
            self.on_step(fed)

    @uninterrupted
    @_untraced
    def _step_ends(
        self,
        optimizer: torch.optim.Optimizer,
        *_: Any,
    ) -> None:
        with isolated(), suppress(Exception):
            self.row(optimizer).last_call = self._number
        if id(optimizer) in self._stepping:
            self._stepping.remove(id(optimizer))


def tensors_of(about: object) -> frozenset[int] | None:
    """Identities of the parameters that a call is about; None where it cannot be told
    without using something up.
    """
    if is_a(about, torch.optim.Optimizer):
        return frozenset(map(id, optimized(about)))
    if is_a(about, torch.nn.Module):
        return frozenset(map(id, parameters(about)))
    if is_a(about, torch.Tensor):
        return frozenset({id(about)})
    if is_a(about, list) or is_a(about, tuple):
        return frozenset(map(id, about))

    theirs = torch.nn.Module.parameters.__code__
    if type(about) is GeneratorType and about.gi_code is theirs and about.gi_frame:
        return frozenset(map(id, parameters(about.gi_frame.f_locals["self"])))
    return None
