"""Watches what the user's code does with leaves from one backward call to the next: updating them, and resetting `.grad`.

An update shows in the version counter, or in the `step()` of an optimizer that holds the leaf: a fused one writes past the counter.
Tensors are held weakly between the calls. Writes nothing, and reads numbers only when asked to.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from gradviz.capture.private import without_subclasses
from gradviz.capture.tensors import version_of
from gradviz.capture.values import is_zero
from gradviz.evidence import Handled


class _Left(NamedTuple):
    """A leaf and its gradient as a backward call left them, and what was done with it before that call."""

    leaf: weakref.ref[torch.Tensor]
    version: int | None
    grad: weakref.ref[torch.Tensor]
    grad_version: int | None
    handled: tuple[Handled, ...]


class LeafWatch:
    """Of one run. `before` and `after` belong around each backward call that is read."""

    def __init__(self, *, values: bool) -> None:
        self._values = values
        self._left: dict[int, _Left] = {}  # by id of the leaf
        self._stepped: set[int] = set()  # ids of leaves that an optimizer has updated since a call reached them
        self._reached: list[tuple[torch.Tensor, tuple[Handled, ...]]] = []  # by the call that runs now

    @contextmanager
    def optimizers_watched(self) -> Iterator[None]:
        """Inside, the steps of all optimizers are noted."""

        def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            with without_subclasses():
                held = [one for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
            self._stepped.update(map(id, held))

        handle = register_optimizer_step_post_hook(stepped)
        try:
            yield
        finally:
            handle.remove()

    def before(self, leaves: Mapping[int, torch.Tensor]) -> dict[int, tuple[Handled, ...]]:
        """What was done with each of these leaves between the calls that reached it, by the same keys."""
        handled = {}
        for key, leaf in leaves.items():
            left = self._left.get(id(leaf))
            if left is not None and left.leaf() is leaf:
                handled[key] = (*left.handled, self._since(left, leaf))
        self._reached = [(leaf, handled.get(key, ())) for key, leaf in leaves.items()]
        return handled

    def after(self, filled: bool) -> None:
        """The call has run, and `filled` the gradients of its leaves, or not."""
        reached, self._reached = self._reached, []
        for leaf, handled in reached if filled else ():
            if leaf.grad is not None:
                left = _Left(
                    weakref.ref(leaf), version_of(leaf), weakref.ref(leaf.grad), version_of(leaf.grad), handled
                )
                self._left[id(leaf)] = left
                self._stepped.discard(id(leaf))

    def _since(self, left: _Left, leaf: torch.Tensor) -> Handled:
        updated = id(leaf) in self._stepped or version_of(leaf) != left.version
        grad = leaf.grad
        if grad is None or left.grad() is not grad:
            return Handled(updated, reset=True)
        if version_of(grad) == left.grad_version:
            return Handled(updated, reset=False)
        return Handled(updated, reset=is_zero(grad) if self._values else None)
