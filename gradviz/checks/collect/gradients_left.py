"""Reads what a backward call has left in `.grad`: how large each gradient is, and whether all are finite. Writes nothing."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping

import torch

from gradviz.checks.context import LeafGradient
from gradviz.walker.private import without_subclasses
from gradviz.walker.values import why_unreadable


def gradients_left(leaves: Mapping[int, torch.Tensor], fresh: Container[int]) -> tuple[LeafGradient, ...]:
    """The size of the `.grad` of each leaf that has one which can be read, by the same keys. `zeros` is 0 or 1.

    That of a leaf which is not `fresh` had something in it before the call.
    """
    grads = {key: grad for key, leaf in leaves.items() if (grad := _readable(leaf)) is not None}
    largest, norms = _norms(list(grads.values()), math.inf), _norms(list(grads.values()), 2)
    left = []
    for (key, grad), most, norm in zip(grads.items(), largest, norms):
        bad = 0 if math.isfinite(most) else int(grad.numel() - torch.isfinite(grad.detach()).sum())
        size = norm if norm and (math.isfinite(norm) or bad) else most  # squares overflow and underflow
        left.append(LeafGradient(key, size, most, float(most == 0), bad if key in fresh else 0, key not in fresh))
    return tuple(left)


def largest_left(leaves: Iterable[torch.Tensor]) -> dict[int, float]:
    """The largest number in the `.grad` of each leaf that has one which can be read, by identity of the leaf."""
    grads = {id(leaf): grad for leaf in leaves if (grad := _readable(leaf)) is not None}
    return dict(zip(grads, _norms(list(grads.values()), math.inf)))


def _readable(leaf: torch.Tensor) -> torch.Tensor | None:
    with without_subclasses():
        grad = leaf.grad if leaf.is_leaf else None
        if grad is None or type(grad) is not torch.Tensor or not grad.numel() or grad.layout != torch.strided:
            return None
        return None if grad.is_nested or not grad.dtype.is_floating_point or why_unreadable(grad) else grad


def _norms(grads: list[torch.Tensor], order: float) -> list[float]:
    """One number for each. Small types are widened; gradients on one device are asked for at once."""
    with without_subclasses(), torch.no_grad():
        wide = [
            grad.detach() if grad.dtype in (torch.float32, torch.float64) else grad.detach().float() for grad in grads
        ]
        norms = [torch.linalg.vector_norm(grad, order) for grad in wide]
        if len({(norm.device, norm.dtype) for norm in norms}) == 1:
            return [float(norm) for norm in torch.stack(norms).tolist()]
        return [float(norm) for norm in norms]
