"""Keeps the record of a run. The one place that hooks optimizers, schedulers, clipping
and scalers.

Optimizers tell of their steps themselves: fused ones write past the version counter,
which shows all other changes. Some of torch's own functions are tapped while the code
runs. Tensors and optimizers are held weakly between the calls, and at some steps a few
elements of parameters are compared before and after. Concludes nothing, and writes
nothing.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gradviz.checks.collect.lines import users_frame
from gradviz.checks.collect.loop import Births, limit, tensors_of
from gradviz.checks.collect.modes import SleepWatch
from gradviz.checks.collect.numbers import optimized
from gradviz.checks.run import LETTERS, Event, OptimizerRow, TrainingRun
from gradviz.graph import SourceLine
from gradviz.packages import code_line, with_text
from gradviz.walker.isolation import isolated
from gradviz.walker.signals import uninterrupted
from gradviz.walker.taps import Ended, all_tapped

KEPT = 3000
"""Calls that are noted; what an order is like shows in the first few."""


class _Watching(NamedTuple):
    """An optimizer."""

    ref: weakref.ref[torch.optim.Optimizer]
    row: OptimizerRow


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


class RunRecorder:
    """Of one run."""

    def __init__(self) -> None:
        self.record = TrainingRun()
        # that had a gradient at a step since a call reached them, by identity
        self.stepped: set[int] = set()
        self.modes = SleepWatch()
        self.births = Births(self.record, self._line)
        self._optimizers: dict[int, _Watching] = {}
        self._sets: dict[frozenset[int], frozenset[int]] = {}
        self._call = 0
        # optimizers whose step() runs now: a closure may call backward inside
        self._stepping: list[int] = []
        self._line_of = functools.cache(
            lambda code, line: with_text(code_line(code, line))
        )

    @property
    def stage(self) -> int:
        """Changes when an optimizer is made, or a parameter behind one."""
        return len(self.record.optimizers) + self.births.count

    @property
    def in_step(self) -> bool:
        """Whether the step() of an optimizer runs now, and has called a closure."""
        return bool(self._stepping)

    def backward(
        self,
        number: int,
        frame: FrameType,
        fills: bool = True,
    ) -> None:
        """The code calls backward for the `number`-th time. `fills`: gradients go to
        `.grad`.
        """
        self._call = number
        self._note("backward", None if fills else (), frame)
        if fills:
            self.record.calls += 1
            self.modes.backward()

    def reaches(
        self, leaves: Iterable[int], number: int, frame: FrameType | None
    ) -> None:
        """The `number`-th backward call, which may not be noted yet, leads to these
        leaves.
        """
        log = self.record.log
        if number != self._call and frame is not None:
            self.backward(number, frame)
        if log and (log[-1].letter, log[-1].number) == ("b", self._call):
            log[-1] = log[-1]._replace(tensors=frozenset(leaves))

    def result(self, ended: bool) -> TrainingRun:
        """All that is known. `ended`: the script has come to its end."""
        record = self.record
        for row in record.optimizers:
            row.ended = ended

        for key, leaf in record.leaves.items():
            leaf.holders = tuple(
                row.name or row.type for row in record.optimizers if key in row.held
            )

        record.ended, record.asleep = ended, tuple(self.modes.found)
        return record

    # -- hooks -------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, everything is noted."""
        scaler, clips, home = (
            torch.amp.GradScaler,
            torch.nn.utils.clip_grad,
            torch.optim.lr_scheduler.LRScheduler,
        )
        listeners: list[Any] = [
            (torch.optim.Optimizer.zero_grad, self._noting("zero")),
            (torch.nn.Module.zero_grad, self._noting("zero")),
            (scaler.scale, self._noting("scale")),
            (scaler.unscale_, self._noting("unscale")),
            (scaler.step, self._noting("scaler_step")),
            (scaler.update, self._noting("update")),
            (clips.clip_grad_norm_, self._noting("clip")),
            (clips.clip_grad_value_, self._noting("clip")),
            (torch.optim.Optimizer.__init__, self._made),
            (torch.nn.Parameter.__new__, self.births.born),
            (
                torch.nn.Module.train,
                lambda frame, module, *_, **__: self.modes.line(
                    frame, module, self._line(frame)
                ),
            ),
        ]

        if hasattr(home, "_update_lr"):
            listeners.append((home._update_lr, self._scheduled))
        else:  # an older torch, as 2.6: the guard that only step() makes
            guard = torch.optim.lr_scheduler._enable_get_lr_call
            listeners.append(
                (
                    guard.__init__,
                    lambda frame, _, scheduler: self._scheduled(frame, scheduler),
                )
            )

        with ExitStack() as until:
            until.callback(register_optimizer_step_pre_hook(self._step_begins).remove)
            until.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            until.enter_context(all_tapped(listeners))
            yield

    def _made(
        self,
        frame: FrameType,
        optimizer: torch.optim.Optimizer,
        *_: Any,
        **__: Any,
    ) -> Ended:
        @uninterrupted
        def ended(returned: bool, result: object) -> None:
            if returned:
                self.row(optimizer, frame)

        return ended

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
            # it is used in a way of its own
            given = step.f_locals.get("epoch") is not None
            if not given and any(
                group["lr"] for group in scheduler.optimizer.param_groups
            ):
                # else 0 is left out on purpose
                self._note("schedule", scheduler.optimizer, caller)

    def row(
        self, optimizer: torch.optim.Optimizer, frame: FrameType | None = None
    ) -> OptimizerRow:
        """The row of an optimizer, which a line of this frame has made, as far as that
        is known.
        """
        known = self._optimizers.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            row = OptimizerRow(
                type(optimizer).__name__,
                len(self.record.optimizers),
                self._line(frame),
            )
            known = self._optimizers[id(optimizer)] = _Watching(
                weakref.ref(optimizer), row
            )
            self.record.optimizers.append(row)

        return known.row

    def look(self) -> None:
        """Bring up to date what optimizers hold, at a backward call."""
        for known in self._optimizers.values():
            live = known.ref()
            # an optimizer of the user's own may hold anything
            with isolated(), suppress(Exception):
                known.row.held.update(map(id, optimized(live) if live else ()))

    # -- a step of an optimizer --------------------------------------------------------

    @uninterrupted
    @_untraced
    def _step_begins(
        self,
        optimizer: torch.optim.Optimizer,
        *_: Any,
    ) -> None:
        self._note("step", optimizer, sys._getframe(1))
        self.record.updates += not self._stepping
        self._stepping.append(id(optimizer))

        # an optimizer of the user's own may hold anything
        with isolated(), suppress(Exception):
            row = self.row(optimizer)
            row.steps += 1
            rates = [float(group.get("lr", 1.0)) for group in optimizer.param_groups]
            row.idle_rates += not any(rates)
            tensors = optimized(optimizer)
            fed = [t for t in tensors if t.is_leaf and t.grad is not None]
            ids = set(map(id, fed))
            row.held.update(map(id, tensors))
            row.fed |= ids
            self.stepped |= ids
            row.frozen.update(id(leaf) for leaf in fed if not leaf.requires_grad)
            self.modes.stepped(ids)

    @uninterrupted
    @_untraced
    def _step_ends(
        self,
        optimizer: torch.optim.Optimizer,
        *_: Any,
    ) -> None:
        with isolated(), suppress(Exception):
            row = self.row(optimizer)
            row.last_call = self._call
        if id(optimizer) in self._stepping:
            self._stepping.remove(id(optimizer))

    # -- the log -----------------------------------------------------------------------

    def _noting(self, kind: str) -> Callable[..., None]:
        """What is told of the calls of one function."""
        begin = 1 if kind in ("unscale", "scaler_step") else 0  # behind the scaler

        def noted(
            frame: FrameType,
            *arguments: Any,
            **options: Any,
        ) -> None:
            about = next(iter(arguments[begin:]), None)
            if kind == "scale" and about is not None and about.is_enabled():
                self.record.scaled = True
            if kind != "clip" or limit(*arguments, **options) < math.inf:
                self._note(kind, about, frame)

        return noted

    def _note(
        self,
        kind: str,
        about: object,
        frame: FrameType,
    ) -> None:
        if len(self.record.log) < KEPT and not self._stepping:
            tensors = tensors_of(about)
            if tensors is not None:  # one set for all calls about the same
                tensors = self._sets.setdefault(tensors, tensors)
            self.record.log.append(
                Event(
                    LETTERS[kind],
                    self._call,
                    tensors,
                    self._line(frame),
                )
            )

    def _line(self, frame: FrameType | None) -> SourceLine | None:
        """The nearest line outside torch."""
        frame = users_frame(frame)
        if frame is not None:
            return self._line_of(frame.f_code, frame.f_lineno)
        return None
