"""Logs the calls of a training loop beside backward and step: resets, clipping,
scalers and schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch.nn.utils import stateless
from torch.optim import lr_scheduler

from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.walker.taps import Began


class LoopWatch:
    """Of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        scaler, clips = torch.amp.GradScaler, torch.nn.utils.clip_grad
        yield torch.optim.Optimizer.zero_grad, self._logging(Kind.ZERO)
        yield torch.nn.Module.zero_grad, self._logging(Kind.ZERO)
        yield scaler.scale, self._scaled
        yield scaler.unscale_, self._logging(Kind.UNSCALE)
        yield scaler.step, self._logging(Kind.SCALER_STEP)
        yield scaler.update, self._logging(Kind.UPDATE)
        yield clips.clip_grad_norm_, self._clipped
        yield clips.clip_grad_value_, self._clipped
        yield stateless._functional_call, self._replaces

        # a guard that only their step() makes
        guard: Any = lr_scheduler._enable_get_lr_call
        yield guard.__init__, self._scheduled

    def _logging(self, kind: Kind) -> Began:
        """What logs the calls of a function."""

        def called(frame: FrameType, *arguments: Any, **_: Any) -> None:
            self._recorder.log(kind, frame, *arguments)

        return called

    def _scaled(self, frame: FrameType, scaler: Any, *_: Any) -> None:
        self._recorder.run.scaled |= scaler.is_enabled()
        self._recorder.log(Kind.SCALE, frame)

    def _replaces(
        self, _: FrameType, module: torch.nn.Module, *__: Any, **___: Any
    ) -> None:
        """A module runs with other tensors in place of its parameters."""
        self._recorder.replaced.add(module)

    def _clipped(
        self,
        frame: FrameType,
        parameters: object = None,
        max_norm: Any = None,
        clip_value: Any = None,
        **_: Any,
    ) -> None:
        """An infinite limit only asks for the norm, and clips nothing."""
        limit = max_norm if max_norm is not None else clip_value
        if not isinstance(limit, float) or not math.isinf(limit):
            self._recorder.log(Kind.CLIP, frame)

    def _scheduled(self, frame: FrameType, _: Any, scheduler: Any) -> None:
        """A learning rate scheduler takes its step; that which torch makes when it is
        made is left out.
        """
        names, caller = set[str](), frame.f_back
        # it is used in a way of its own
        by_hand = caller is None or caller.f_locals.get("epoch") is not None
        while caller is not None and caller.f_code.co_filename == lr_scheduler.__file__:
            names.add(caller.f_code.co_name)
            caller = caller.f_back
        if by_hand or caller is None or "_initial_step" in names:
            return

        with suppress(Exception):  # a scheduler of the user's own may hold anything
            optimizer = scheduler.optimizer
            # a rate of 0 is left out on purpose
            if any(group["lr"] for group in optimizer.param_groups):
                self._recorder.log(Kind.SCHEDULE, caller, optimizer)
