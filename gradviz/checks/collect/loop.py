"""Logs the calls of a training loop beside backward and step: resets, clipping,
scalers, schedules; and what torch warns of. Changes no filter and no message.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch.optim import lr_scheduler

from gradviz.checks.collect.lines import users_frame
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.packages import is_foundation, package_of
from gradviz.walker.taps import Began

_INTERNALLY = re.compile(r"\s*\(Triggered internally at .*?\)", re.DOTALL)
"""What torch adds to what it says in C++."""


class LoopWatch:
    """Of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        scaler, clips = torch.amp.GradScaler, torch.nn.utils.clip_grad
        yield torch.optim.Optimizer.zero_grad, self._logging(Kind.ZERO)
        yield torch.nn.Module.zero_grad, self._logging(Kind.ZERO)
        yield scaler.scale, self._scaled
        yield scaler.unscale_, self._logging(Kind.UNSCALE, 1)
        yield scaler.step, self._logging(Kind.SCALER_STEP, 1)
        yield scaler.update, self._logging(Kind.UPDATE)
        yield clips.clip_grad_norm_, self._clipped
        yield clips.clip_grad_value_, self._clipped
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
            self._recorder.log(kind, about, frame)

        return called

    def _scaled(
        self,
        frame: FrameType,
        scaler: Any,
        *_: Any,
    ) -> None:
        self._recorder.run.scaled |= scaler.is_enabled()
        self._recorder.log(Kind.SCALE, scaler, frame)

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
            about = options.get("parameters", about)
            self._recorder.log(Kind.CLIP, about, frame)

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
                self._recorder.log(Kind.SCHEDULE, optimizer, caller)

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
        # a deprecation says nothing of the training
        if not issubclass(shown.category, UserWarning):
            return

        # a warning from C++ comes from the user's own line: only its text tells
        torchs = _INTERNALLY.search(text) or is_foundation(caller.f_code.co_filename)
        if torchs and not package_of(users.f_code.co_filename):
            source = self._recorder.script_line(users)
            self._recorder.note(
                Kind.WARNING,
                source,
                _INTERNALLY.sub("", text),
            )
