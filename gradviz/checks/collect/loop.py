"""Watches a training loop: the order of its calls, and what it does with leaves from one backward call to the next.

Optimizers tell of their steps themselves: fused ones write past the version counter, which shows all other changes. Whether a
gradient was zeroed no counter tells for certain (`w.grad.data.zero_()`), so its numbers are looked at, if the leaf was updated.
Some of torch's own functions are tapped while the code runs. Tensors are held weakly between the calls. Concludes nothing.
"""

from __future__ import annotations

import functools
import math
import sys
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gradviz.checks.collect.lines import users_frame
from gradviz.checks.context import Event, EventKind, Handled, LeafGradient
from gradviz.gradients.values import is_zero, why_unreadable
from gradviz.graph import SourceLine
from gradviz.packages import code_line, with_text
from gradviz.source.statements import around
from gradviz.variables.objects import is_a, parameters
from gradviz.variables.scanner import Namespace
from gradviz.walker.isolation import isolated
from gradviz.walker.names import flatten
from gradviz.walker.signals import uninterrupted
from gradviz.walker.taps import tapped
from gradviz.walker.tensors import answers_itself, is_plain, version_of

TensorRef = weakref.ref[torch.Tensor]


def optimized(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The tensors that an optimizer holds."""
    return (tensor for group in optimizer.param_groups for tensor in group["params"])


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one plain block of numbers, which can be read."""
    return is_plain(tensor) and not tensor.is_nested and not why_unreadable(tensor)


class _Left(NamedTuple):
    """A leaf and its gradient as a backward call left them, and what was done with it before that call."""

    leaf: TensorRef
    version: int | None
    grad: TensorRef
    grad_version: int | None
    handled: tuple[Handled, ...]


class LeafWatch:
    """Of one run. `before` and `after` belong around each backward call that is read."""

    def __init__(self) -> None:
        self._left: dict[int, _Left] = {}  # by id of the leaf
        self._stepped: set[int] = set()  # ids of leaves that an optimizer has updated since a call reached them
        self._missed: set[int] = set()  # the same, of those that had no gradient any more
        self._reached: list[tuple[torch.Tensor, tuple[Handled, ...]]] = []  # by the call that runs now
        self._versions: dict[int, tuple[TensorRef, int | None]] = {}  # of all that calls have reached
        self._updated = False  # whether an optimizer has taken a step since `updated` was asked
        self.saw_updates = False  # whether `updated` was ever true

    @contextmanager
    def optimizers_watched(self) -> Iterator[None]:
        """Inside, the steps of all optimizers are noted."""

        def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if torch.compiler.is_compiling():
                return
            self._updated = True
            with isolated(), suppress(Exception):  # an optimizer of the user's own may hold anything
                for leaf in optimized(optimizer):
                    if leaf.is_leaf:  # reading `.grad` of others warns
                        (self._missed if leaf.grad is None else self._stepped).add(id(leaf))

        handle = register_optimizer_step_post_hook(stepped)
        try:
            yield
        finally:
            handle.remove()

    def before(self, leaves: Mapping[int, torch.Tensor]) -> dict[int, tuple[Handled, ...]]:
        """What was done with each of these leaves between the calls that reached it, by the same keys."""
        handled = {}
        leaves = {key: leaf for key, leaf in leaves.items() if leaf.is_leaf}
        for key, leaf in leaves.items():
            left = self._left.get(id(leaf))
            if left is not None and left.leaf() is leaf:
                handled[key] = (*left.handled, self._since(left, leaf))
        self._reached = [(leaf, handled.get(key, ())) for key, leaf in leaves.items()]
        return handled

    def updated(self) -> bool:
        """Whether an optimizer took a step, or a leaf was changed in place, since this was asked last. Ask after `before`."""
        known = [(leaf, version) for ref, version in self._versions.values() if (leaf := ref()) is not None]
        updated = self._updated or any(version_of(leaf) != version for leaf, version in known)
        leaves = [leaf for leaf, _ in [*known, *self._reached]]
        self._versions = {id(leaf): (weakref.ref(leaf), version_of(leaf)) for leaf in leaves}
        self._updated, self.saw_updates = False, self.saw_updates or updated
        return updated

    def after(self, filled: bool) -> None:
        """The call has run, and `filled` the gradients of its leaves, or not."""
        reached, self._reached = self._reached, []
        for leaf, handled in reached if filled else ():
            if leaf.grad is not None:
                versions = version_of(leaf), version_of(leaf.grad)
                self._left[id(leaf)] = _Left(
                    weakref.ref(leaf), versions[0], weakref.ref(leaf.grad), versions[1], handled
                )
                self._stepped.discard(id(leaf))
                self._missed.discard(id(leaf))

    def _since(self, left: _Left, leaf: torch.Tensor) -> Handled:
        stepped, missed = id(leaf) in self._stepped, id(leaf) in self._missed
        changed = version_of(leaf) != left.version
        grad = leaf.grad
        if grad is None or left.grad() is not grad:
            return Handled(stepped, missed, changed, reset=True)
        touched = stepped or changed or version_of(grad) != left.grad_version
        return Handled(stepped, missed, changed, reset=is_zero(grad) if touched else False)


# Reads the one number that backward begins at, where it is one.


def loss_of(outputs: object) -> float | None:
    """The number, when the outputs are a single real number that can be read; else None."""
    tensors = [tensor for _, tensor in flatten(outputs)]
    if len(tensors) != 1 or not isinstance(tensors[0], torch.Tensor):
        return None
    try:
        with isolated():
            loss = tensors[0]
            if loss.is_nested or answers_itself(loss) or why_unreadable(loss) or loss.numel() != 1:
                return None
            return float(loss.detach().item()) if loss.is_floating_point() else None
    except Exception:  # a class of tensors that refuses to tell
        return None


def is_broken(loss: float | None, variables: Iterable[Namespace] = (), scaled: bool = False) -> bool:
    """Whether a loss is NaN or infinite. Infinity is no fault where a GradScaler makes it: the step is then left out."""
    if loss is None or math.isfinite(loss):
        return False
    return math.isnan(loss) or not (scaled or is_scaled(variables))


def is_scaled(variables: Iterable[Namespace]) -> bool:
    """Whether a variable holds a GradScaler, which multiplies the loss and leaves out steps."""
    return any(type(value).__name__ == "GradScaler" for space in variables for value in list(space.values()))


def gradients_left(leaves: Mapping[int, torch.Tensor], fresh: Container[int]) -> tuple[LeafGradient, ...]:
    """The size of the `.grad` of each leaf that has one which can be read, by the same keys. `zeros` is 0 or 1.

    That of a leaf which is not `fresh` had something in it before the call.
    """
    grads = {key: grad for key, leaf in leaves.items() if (grad := _readable(leaf)) is not None}
    every, left = list(grads.values()), []
    for key, grad, most, norm in zip(grads, every, _norms(every, math.inf), _norms(every, 2)):
        bad = 0 if math.isfinite(most) else int(grad.numel() - torch.isfinite(grad.detach()).sum())
        size = norm if norm and (math.isfinite(norm) or bad) else most  # squares overflow and underflow
        left.append(LeafGradient(key, size, float(most == 0), bad if key in fresh else 0, key not in fresh))
    return tuple(left)


def largest_left(leaves: Iterable[torch.Tensor]) -> dict[int, float]:
    """The largest number in the `.grad` of each leaf that has one which can be read, by identity of the leaf."""
    grads = {id(leaf): grad for leaf in leaves if (grad := _readable(leaf)) is not None}
    return dict(zip(grads, _norms(list(grads.values()), math.inf)))


def _readable(leaf: torch.Tensor) -> torch.Tensor | None:
    with isolated():
        grad = leaf.grad if leaf.is_leaf else None
        if type(grad) is not torch.Tensor or not grad.numel() or not grad.dtype.is_floating_point:
            return None
        return grad if is_readable(grad) else None


def _norms(grads: list[torch.Tensor], order: float) -> list[float]:
    """One number for each. Small types are widened; gradients on one device are asked for at once."""
    with isolated(), torch.no_grad():
        wide = [
            grad.detach() if grad.dtype in (torch.float32, torch.float64) else grad.detach().float() for grad in grads
        ]
        norms = [torch.linalg.vector_norm(grad, order) for grad in wide]
        if len({(norm.device, norm.dtype) for norm in norms}) == 1:
            return list(map(float, torch.stack(norms).tolist()))
        return list(map(float, norms))


KEPT = 3000
"""Events that are noted; what an order is like shows in the first few."""


class OrderWatch:
    """The log of one run."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._sets: dict[frozenset[int], frozenset[int]] = {}
        self.scaled = False  # whether a GradScaler has scaled anything
        self.updates = 0  # steps of optimizers
        self._call = 0
        self._stepping: list[int] = []  # optimizers whose step() runs now: a closure may call backward inside
        self._line_of = functools.cache(code_line)

    @property
    def in_step(self) -> bool:
        """Whether the step() of an optimizer runs now, and has called a closure."""
        return bool(self._stepping)

    def result(self) -> tuple[Event, ...]:
        """All events, with what stands around their lines."""
        look = functools.cache(around)
        return tuple(
            event._replace(source=with_text(source), **look(source.file, source.line)._asdict())
            if (source := event.source) is not None
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
            until.callback(register_optimizer_step_pre_hook(self._step_begins).remove)
            until.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            scaler, clips = torch.amp.GradScaler, torch.nn.utils.clip_grad
            watched: list[tuple[Any, EventKind]] = [
                (torch.optim.Optimizer.zero_grad, "zero"),
                (torch.nn.Module.zero_grad, "zero"),
                (scaler.scale, "scale"),
                (scaler.unscale_, "unscale"),
                (scaler.step, "scaler_step"),
                (scaler.update, "update"),
                (clips.clip_grad_norm_, "clip"),
                (clips.clip_grad_value_, "clip"),
            ]
            for function, kind in watched:
                until.enter_context(tapped(function, self._noting(kind)))
            until.enter_context(self._schedulers_seen())
            yield

    @contextmanager
    def _schedulers_seen(self) -> Iterator[None]:
        """Inside, calls of `step()` of learning rate schedulers are noted, but the one that torch makes when they are made.

        What they call is what is seen: torch's warning about their order names the line that calls `step()` itself.
        """
        home = torch.optim.lr_scheduler.LRScheduler
        update = getattr(home, "_update_lr", None)
        if update is None:
            yield
            return

        def updates(frame: FrameType, scheduler: Any, epoch: Any = None) -> None:
            step = frame.f_back
            caller = step.f_back if step is not None else None
            if epoch is None and caller is not None and caller.f_code.co_name != "_initial_step":
                with suppress(Exception):  # a scheduler of the user's own may hold anything
                    if any(group["lr"] for group in scheduler.optimizer.param_groups):  # else 0 is left out on purpose
                        self._note("schedule", _tensors_of(scheduler.optimizer), caller)

        with tapped(update, updates):
            yield

    def _noting(self, kind: EventKind) -> Callable[..., None]:
        """What is told of the calls of one function."""

        def noted(frame: FrameType, *arguments: Any, **options: Any) -> None:
            first = arguments[1] if kind in ("unscale", "scaler_step") and len(arguments) > 1 else None
            about = first if first is not None else arguments[0] if arguments else None
            self.scaled = self.scaled or (kind == "scale" and about is not None and about.is_enabled())
            if kind != "clip" or not _only_measures(*arguments, **options):
                self._note(kind, _tensors_of(about), frame)

        return noted

    @uninterrupted
    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._note("step", _tensors_of(optimizer), sys._getframe(1))
        self.updates += not self._stepping
        self._stepping.append(id(optimizer))

    @uninterrupted
    def _step_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not torch.compiler.is_compiling() and id(optimizer) in self._stepping:
            self._stepping.remove(id(optimizer))

    def _note(self, kind: EventKind, tensors: frozenset[int] | None, frame: FrameType) -> None:
        if len(self.events) < KEPT and not self._stepping:
            if tensors is not None:  # one set for all events about the same
                tensors = self._sets.setdefault(tensors, tensors)
            self.events.append(Event(kind, self._call, tensors, self._line(frame)))

    def _line(self, frame: FrameType | None) -> SourceLine | None:
        """The nearest line outside torch."""
        frame = users_frame(frame)
        return self._line_of(frame.f_code, frame.f_lineno) if frame is not None else None


def _only_measures(parameters: object = None, max_norm: object = None, *_: object, **__: object) -> bool:
    """Whether a call of `clip_grad_norm_` with an infinite limit asks for the norm, and clips nothing."""
    return isinstance(max_norm, float) and math.isinf(max_norm)


def _tensors_of(about: object) -> frozenset[int] | None:
    """Identities of the parameters that a call is about; None where it cannot be told without using something up."""
    if is_a(about, torch.optim.Optimizer):
        return frozenset(map(id, optimized(about)))
    if is_a(about, torch.nn.Module):
        return frozenset(map(id, parameters(about)))
    if is_a(about, torch.Tensor):
        return frozenset({id(about)})
    return frozenset(map(id, about)) if is_a(about, list) or is_a(about, tuple) else None
