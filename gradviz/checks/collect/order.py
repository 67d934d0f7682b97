"""Notes in which order the user's code calls backward, zeroes, clips, unscales and steps, each with the line that did.

Watches torch's own functions by standing in for them while the code runs; a global hook of torch tells of optimizer steps.
Concludes nothing, and changes no argument and no result.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradviz.checks.context import Event, EventKind
from gradviz.graph import SourceLine
from gradviz.packages import code_line, is_foundation, with_text
from gradviz.source.statements import around
from gradviz.variables.objects import is_a

KEPT = 10_000
"""Events that are noted; what an order is like shows in the first few."""


class OrderWatch:
    """The log of one run."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.scaled = False  # whether a GradScaler has scaled anything
        self.updates = 0  # steps of optimizers
        self._call = 0
        self._stepping: list[int] = []  # optimizers whose step() runs now: a closure may call backward inside
        self._lines: dict[tuple[CodeType, int], SourceLine] = {}

    def told(self) -> tuple[Event, ...]:
        """All events, with what stands around their lines."""
        known = {
            source: around(source.file, source.line)
            for source in {event.source for event in self.events}
            if source is not None
        }
        return tuple(
            event._replace(
                source=with_text(event.source), loops=known[event.source].loops, tests=known[event.source].tests
            )
            if event.source is not None
            else event
            for event in self.events
        )

    def backward(self, number: int, frame: FrameType) -> None:
        """The code calls backward for the `number`-th time."""
        self._call = number
        self._note("backward", None, frame)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, everything is noted."""
        with ExitStack() as until:
            before = register_optimizer_step_pre_hook(self._step_begins)
            until.callback(before.remove)
            until.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            scaler = torch.amp.GradScaler
            for home, name, kind in (
                (torch.optim.Optimizer, "zero_grad", "zero"),
                (torch.nn.Module, "zero_grad", "zero"),
                (scaler, "scale", "scale"),
                (scaler, "unscale_", "unscale"),
                (scaler, "step", "scaler_step"),
                (scaler, "update", "update"),
            ):
                until.callback(self._stand_in([home], name, kind))  # type: ignore[arg-type]
            for name in ("clip_grad_norm_", "clip_grad_value_"):
                until.callback(self._stand_in([torch.nn.utils.clip_grad, torch.nn.utils], name, "clip"))
            yield

    def _stand_in(self, homes: Iterable[Any], name: str, kind: EventKind) -> Callable[[], None]:
        """Puts a function in the place of another that notes the call first. Returns what undoes it."""
        there = list(homes)
        original = getattr(there[0], name)

        @functools.wraps(original)
        def noted(*arguments: Any, **options: Any) -> Any:
            if not torch.compiler.is_compiling():
                first = arguments[1] if kind in ("unscale", "scaler_step") and len(arguments) > 1 else None
                about = first if first is not None else arguments[0] if arguments else None
                self.scaled = self.scaled or (kind == "scale" and about is not None and about.is_enabled())
                if kind != "clip" or not _only_measures(*arguments, **options):
                    self._note(kind, _tensors_of(about), sys._getframe(1))
            return original(*arguments, **options)

        for home in there:
            setattr(home, name, noted)

        def put_back() -> None:
            for home in there:
                if getattr(home, name) is noted:
                    setattr(home, name, original)

        return put_back

    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._note("step", _tensors_of(optimizer), sys._getframe(1))
        self.updates += not self._stepping
        self._stepping.append(id(optimizer))

    def _step_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not torch.compiler.is_compiling() and id(optimizer) in self._stepping:
            self._stepping.remove(id(optimizer))

    def _note(self, kind: EventKind, tensors: frozenset[int] | None, frame: FrameType) -> None:
        if len(self.events) < KEPT and not self._stepping:
            self.events.append(Event(kind, self._call, tensors, self._line(frame)))

    def _line(self, frame: FrameType | None) -> SourceLine | None:
        """The nearest line outside torch."""
        while frame is not None and is_foundation(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return None
        key = frame.f_code, frame.f_lineno
        if key not in self._lines:
            self._lines[key] = code_line(*key)
        return self._lines[key]


def _only_measures(parameters: object = None, max_norm: object = None, *_: object, **__: object) -> bool:
    """Whether a call of `clip_grad_norm_` with an infinite limit asks for the norm, and clips nothing."""
    return isinstance(max_norm, float) and math.isinf(max_norm)


def _tensors_of(about: object) -> frozenset[int] | None:
    """Identities of the parameters that a call is about; None where it cannot be told without using something up."""
    if is_a(about, torch.optim.Optimizer):
        return frozenset(id(tensor) for group in about.param_groups for tensor in group["params"])
    if is_a(about, torch.nn.Module):
        return frozenset(map(id, about.parameters()))
    if is_a(about, torch.Tensor):
        return frozenset({id(about)})
    return frozenset(map(id, about)) if is_a(about, list) or is_a(about, tuple) else None
