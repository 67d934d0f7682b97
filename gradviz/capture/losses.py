"""Reads the one number that backward begins at, where it is one."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from gradviz.capture.numbers import why_unreadable
from gradviz.capture.outputs import flatten
from gradviz.capture.private import without_subclasses
from gradviz.capture.variables import Namespace


def loss_of(outputs: object) -> float | None:
    """The number, when the outputs are a single real number that can be read; else None."""
    tensors = [one for _, one in flatten(outputs)]
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
