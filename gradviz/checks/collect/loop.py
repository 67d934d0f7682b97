"""Logs the calls of a training loop beside backward and step: resets and schedules; and
whether a loss was scaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch.nn.utils import stateless
from torch.optim import lr_scheduler

from gradviz.armour.taps import Began
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind


class LoopWatch:
    """Of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        yield torch.optim.Optimizer.zero_grad, self._reset
        yield torch.nn.Module.zero_grad, self._reset
        yield torch.amp.GradScaler.scale, self._scaled
        yield stateless._functional_call, self._replaces

        # a guard that only their step() makes
        guard: Any = lr_scheduler._enable_get_lr_call
        yield guard.__init__, self._scheduled

    def _reset(self, frame: FrameType, holder: Any, *_: Any, **__: Any) -> None:
        self._recorder.log(Kind.ZERO, frame, holder)

    def _scaled(self, _: FrameType, scaler: Any, *__: Any) -> None:
        self._recorder.run.scaled |= scaler.is_enabled()

    def _replaces(
        self, _: FrameType, module: torch.nn.Module, *__: Any, **___: Any
    ) -> None:
        """A module runs with other tensors in place of its parameters."""
        self._recorder.replaced.add(module)

    def _scheduled(self, frame: FrameType, _: Any, scheduler: Any) -> None:
        """A learning rate scheduler takes its step."""
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename == lr_scheduler.__file__:
            caller = caller.f_back
        with suppress(Exception):  # a scheduler of the user's own may hold anything
            self._recorder.log(Kind.SCHEDULE, caller, scheduler.optimizer)
