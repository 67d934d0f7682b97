"""Watches what the user's code does with leaves from one backward call to the next: updating them, and resetting `.grad`.

Optimizers tell of their steps themselves: fused ones write past the version counter, which shows all other changes. Whether a
gradient was zeroed no counter tells for certain (`w.grad.data.zero_()`), so its numbers are looked at, if the leaf was updated.
Tensors are held weakly between the calls. Writes nothing.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from gradviz.checks.context import Handled
from gradviz.variables.scanner import Namespace
from gradviz.walker.outputs import flatten
from gradviz.walker.private import without_subclasses
from gradviz.walker.tensors import version_of
from gradviz.walker.values import is_zero, why_unreadable


class _Left(NamedTuple):
    """A leaf and its gradient as a backward call left them, and what was done with it before that call."""

    leaf: weakref.ref[torch.Tensor]
    version: int | None
    grad: weakref.ref[torch.Tensor]
    handled: tuple[Handled, ...]


class LeafWatch:
    """Of one run. `before` and `after` belong around each backward call that is read."""

    def __init__(self) -> None:
        self._left: dict[int, _Left] = {}  # by id of the leaf
        self._stepped: set[int] = set()  # ids of leaves that an optimizer has updated since a call reached them
        self._missed: set[int] = set()  # the same, of those that had no gradient any more
        self._reached: list[tuple[torch.Tensor, tuple[Handled, ...]]] = []  # by the call that runs now
        self._versions: dict[int, tuple[weakref.ref[torch.Tensor], int | None]] = {}  # of all that calls have reached
        self._updated = False  # whether an optimizer has taken a step since `updated` was asked
        self.saw_updates = False  # whether `updated` was ever true

    @contextmanager
    def optimizers_watched(self) -> Iterator[None]:
        """Inside, the steps of all optimizers are noted."""

        def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            self._updated = True
            with without_subclasses(), suppress(Exception):  # an optimizer of the user's own may hold anything
                for leaf in (tensor for group in optimizer.param_groups for tensor in group["params"]):
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
                self._left[id(leaf)] = _Left(weakref.ref(leaf), version_of(leaf), weakref.ref(leaf.grad), handled)
                self._stepped.discard(id(leaf))
                self._missed.discard(id(leaf))

    def _since(self, left: _Left, leaf: torch.Tensor) -> Handled:
        stepped, missed = id(leaf) in self._stepped, id(leaf) in self._missed
        changed = version_of(leaf) != left.version
        grad = leaf.grad
        if grad is None or left.grad() is not grad:
            return Handled(stepped, missed, changed, reset=True)
        return Handled(stepped, missed, changed, reset=is_zero(grad) if stepped or changed else False)


# Reads the one number that backward begins at, where it is one.


def loss_of(outputs: object) -> float | None:
    """The number, when the outputs are a single real number that can be read; else None."""
    tensors = [tensor for _, tensor in flatten(outputs)]
    if len(tensors) != 1 or not isinstance(tensors[0], torch.Tensor):
        return None
    try:
        with without_subclasses():
            loss = tensors[0].detach()
            if loss.is_nested or why_unreadable(tensors[0]) or loss.numel() != 1 or not loss.is_floating_point():
                return None
            return float(loss.item())
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
