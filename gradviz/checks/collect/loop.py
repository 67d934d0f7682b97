"""Logs the calls of a training loop beside backward and step: resets and schedules,
whether a loss was scaled, and what named losses are given, their shapes and which leaves
are behind a target that has a graph.

Reads no number, and keeps identities only.
"""

from __future__ import annotations

import gc
import inspect
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from types import FrameType, GeneratorType
from typing import Any

import torch
from torch.nn import functional, utils
from torch.nn.utils import stateless
from torch.optim import lr_scheduler

from gradviz.armour.isolation import isolated
from gradviz.armour.taps import Began
from gradviz.checks.collect.behind import leaves_behind
from gradviz.checks.collect.copies import loaded
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.ops import kind_of
from gradviz.checks.run import Kind, LossArguments
from gradviz.walker.tensors import grad_fn_of

LOOKED = 3
"""Calls of a loss in each line that are looked at."""
_LOSSES = (
    functional.mse_loss,
    functional.l1_loss,
    functional.smooth_l1_loss,
    functional.huber_loss,
    functional.kl_div,
    functional.cross_entropy,
    functional.binary_cross_entropy,
    functional.binary_cross_entropy_with_logits,
)


class LoopWatch:
    """Of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._losses = recorder, Counter[object]()
        self._clipped = 0  # the backward call whose gradients were clipped last

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        yield torch.optim.Optimizer.zero_grad, self._reset
        yield torch.nn.Module.zero_grad, self._reset
        yield torch.amp.GradScaler.scale, self._scaled
        yield stateless._functional_call, self._replaces
        yield torch.nn.Module.load_state_dict, self._loads
        # a guard that only the step() of a scheduler makes
        guard: Any = lr_scheduler._enable_get_lr_call
        yield guard.__init__, self._scheduled
        for function in _LOSSES:
            yield function, self._loss
        for clip in (utils.clip_grad_norm_, utils.clip_grad_value_):
            yield inspect.unwrap(clip), self._clips

    def _reset(self, frame: FrameType, holder: Any, *_: Any, **__: Any) -> None:
        self._recorder.log(Kind.ZERO, frame, holder)

    def _scaled(self, _: FrameType, scaler: Any, *__: Any) -> None:
        self._recorder.run.scaled |= scaler.is_enabled()

    def _replaces(self, _: FrameType, module: Any, *__: Any, **___: Any) -> None:
        """A module runs with other tensors in place of its parameters."""
        self._recorder.replaced.add(module)

    def _loads(self, frame: FrameType, module: Any, state: Any, *_: Any) -> None:
        loaded(self._recorder, frame, module, state)

    def _scheduled(self, frame: FrameType, _: Any, scheduler: Any) -> None:
        """A learning rate scheduler takes its step."""
        caller = frame.f_back
        while caller is not None and caller.f_code.co_filename == lr_scheduler.__file__:
            caller = caller.f_back
        with self._recorder.reading("learning rate schedules"):
            self._recorder.log(Kind.SCHEDULE, caller, scheduler.optimizer)

    def _clips(self, frame: FrameType, given: Any, *_: Any, **__: Any) -> None:
        number = self._recorder.number
        if not _is_used_up(given):
            self._clipped = number
        # others were clipped, and this is to measure them
        elif self._clipped != number and not self._recorder.paused:
            self._recorder.note(Kind.NO_CLIP, self._recorder.line(frame))

    def _loss(
        self, frame: FrameType, given: Any, target: Any, *_: Any, **__: Any
    ) -> None:
        tensors = type(given) is type(target) is torch.Tensor
        if not tensors or self._recorder.paused or not torch.is_grad_enabled():
            return
        source, function = self._recorder.line(frame), frame.f_code.co_name
        self._losses[source, function] += 1
        if source is None or self._losses[source, function] > LOOKED:
            return
        shapes = tuple(given.shape), tuple(target.shape)
        made_by = kind_of(type(grad_fn_of(given)).__name__)
        arguments = LossArguments(function, shapes, made_by=made_by)
        if target.requires_grad:
            with isolated():
                leaves = frozenset(leaves_behind([target]))
                inputs = frozenset(leaves_behind([given]))
                arguments = arguments._replace(leaves=leaves, input_leaves=inputs)
        self._recorder.run.loss_arguments[source, function] = arguments


def _is_used_up(given: object) -> bool:
    """Whether an iterator has nothing more to give, as far as it shows without being
    asked: iterators of C let go of what they went through.
    """
    if isinstance(given, GeneratorType):
        return given.gi_frame is None
    # as a map keeps its iterators
    if type(given) is tuple:
        return any(map(_is_used_up, given))
    if type(given) not in (filter, map, chain, type(iter([]))):
        return False
    # later versions of Python count the type among them
    inside = [one for one in gc.get_referents(given) if not isinstance(one, type)]
    return not inside or any(map(_is_used_up, inside))
