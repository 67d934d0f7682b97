"""Fills the rows of optimizers: what each holds, when it steps, and what has a gradient
then. The one place that hooks them.

Optimizers tell of their steps themselves: fused ones write past the version counter,
which shows all other changes. They and their tensors are held weakly.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gradviz.armour.isolation import isolated
from gradviz.armour.signals import uninterrupted
from gradviz.armour.taps import Ended, all_tapped
from gradviz.checks.collect.modes import ModeWatch
from gradviz.checks.collect.numbers import optimized
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind, OptimizerRow

CLOSELY, APART = 100, 16
"""Steps of an optimizer at each of which its tensors are looked at; later at some."""


class OptimizerWatch:
    """Of one run."""

    def __init__(self, recorder: Recorder, modes: ModeWatch) -> None:
        self._recorder, self._run, self._modes = recorder, recorder.run, modes
        self._rows = WeakKeyDictionary[torch.optim.Optimizer, OptimizerRow]()
        # that had a gradient at a step since a call reached them, by identity
        self.stepped = set[int]()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, optimizers and their steps are seen."""
        listeners = [(torch.optim.Optimizer.__init__, self._made)]
        with ExitStack() as until:
            until.callback(register_optimizer_step_pre_hook(self._step_begins).remove)
            until.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            until.enter_context(all_tapped(listeners))
            yield

    def _made(self, frame: FrameType, optimizer: Any, *_: Any, **__: Any) -> Ended:
        @uninterrupted
        def ended(returned: bool, result: object) -> None:
            if returned:
                self.row(optimizer, frame)

        return ended

    def row(
        self, optimizer: torch.optim.Optimizer, frame: FrameType | None = None
    ) -> OptimizerRow:
        """The row of an optimizer, which a line of this frame has made, as far as that
        is known.
        """
        row = self._rows.get(optimizer)
        if row is None:
            row = OptimizerRow(type(optimizer).__name__, self._recorder.line(frame))
            self._rows[optimizer] = row
            self._run.optimizers.append(row)
        return row

    def look(self) -> None:
        """Bring up to date what optimizers hold, at a backward call."""
        for optimizer, row in list(self._rows.items()):
            # an optimizer of the user's own may hold anything
            with suppress(Exception):
                row.held.update(map(id, optimized(optimizer)))

    @uninterrupted
    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        # torch's compiler would trace this and break the graph: `look` sees such a step
        if torch.compiler.is_compiling():
            return
        recorder = self._recorder
        recorder.steps.updated |= not recorder.stepping
        if recorder.rests:
            return
        recorder.log(Kind.STEP, sys._getframe(1), optimizer)
        recorder.stepping.append(id(optimizer))

        # an optimizer of the user's own may hold anything
        with isolated(), suppress(Exception):
            row = self.row(optimizer)
            row.steps += 1
            row.first_call = row.first_call or recorder.number
            if row.steps < CLOSELY or row.steps % APART == 0:
                self._look_at(optimizer, row)

    def _look_at(self, optimizer: torch.optim.Optimizer, row: OptimizerRow) -> None:
        """A step begins: what has a gradient is updated."""
        tensors = optimized(optimizer)
        updated = [t for t in tensors if t.is_leaf and t.grad is not None]
        fed = set(map(id, updated))
        row.current = set(map(id, tensors))
        row.held |= row.current
        row.looked += 1
        row.given.update(fed)
        # one of the user's own may have none
        rates = [float(group.get("lr", 1)) for group in optimizer.param_groups]
        row.rate(max(rates, default=0.0))
        row.fed |= bool(fed)
        row.frozen.update(id(t) for t in updated if not t.requires_grad)
        self.stepped |= fed
        self._modes.stepped(fed)

    @uninterrupted
    def _step_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        stepping = self._recorder.stepping
        if torch.compiler.is_compiling() or id(optimizer) not in stepping:
            return
        stepping.remove(id(optimizer))
        with isolated(), suppress(Exception):
            self.row(optimizer).last_call = self._recorder.number
