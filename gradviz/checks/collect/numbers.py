"""Reads the few numbers of a training loop that are looked at without being asked for:
losses, and the size of gradients.

Reads no number of a tensor that cannot be read, and writes nothing. Concludes nothing.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Container, Iterable, Mapping, MutableMapping
from itertools import chain
from typing import TypeVar

import torch

from gradviz.checks.call import LeafGradient
from gradviz.gradients.values import outgrown
from gradviz.variables.scanner import Namespace
from gradviz.walker.isolation import isolated, unrecorded
from gradviz.walker.outputs import flatten
from gradviz.walker.tensors import answers_itself, is_plain

F = TypeVar("F")
TensorRef = weakref.ref[torch.Tensor]
ByTensor = MutableMapping[torch.Tensor, F]
"""Facts of tensors, which are held weakly."""


def optimized(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors that an optimizer holds."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one plain block of numbers, which can be read."""
    if not is_plain(tensor) or tensor.is_nested or tensor.is_meta:
        return False
    return not outgrown(tensor)


def loss_of(outputs: object) -> float | None:
    """The number, when the outputs are a single real number that can be read; else
    None.
    """
    tensors = [tensor for _, tensor in flatten(outputs)]
    if len(tensors) != 1 or not isinstance(tensors[0], torch.Tensor):
        return None

    try:
        with isolated():
            loss = tensors[0]
            if loss.is_nested or answers_itself(loss) or loss.is_meta:
                return None
            if outgrown(loss) or loss.numel() != 1 or not loss.is_floating_point():
                return None
            return float(loss.detach().item())
    except Exception:  # a class of tensors that refuses to tell
        return None


def is_broken(
    loss: float | None,
    variables: Iterable[Namespace] = (),
    scaled: bool = False,
) -> bool:
    """Whether a loss is NaN or infinite. Infinity is no fault where a GradScaler makes
    it: the step is then left out.
    """
    if loss is None or math.isfinite(loss):
        return False
    return math.isnan(loss) or not (scaled or has_scaler(variables))


def has_scaler(variables: Iterable[Namespace]) -> bool:
    """Whether a variable holds a GradScaler, which multiplies the loss and leaves out
    steps.
    """
    values = chain.from_iterable(list(space.values()) for space in variables)
    return any(type(value).__name__ == "GradScaler" for value in values)


def gradients_left(
    leaves: Mapping[int, torch.Tensor], fresh: Container[int]
) -> tuple[LeafGradient, ...]:
    """The size of the `.grad` of each leaf that has one which can be read, by the same
    keys. `zeros` is 0 or 1.

    That of a leaf which is not `fresh` had something in it before the call.
    """
    grads = _readable(leaves)
    norms, left = _norms(grads, 2), []
    # squares over- and underflow
    doubtful = {
        key: grads[key] for key, norm in norms.items() if not 0 < norm < math.inf
    }
    most = _norms(doubtful, math.inf)

    for key, norm in norms.items():
        largest, wrong = most.get(key, norm), 0
        if not math.isfinite(largest):
            wrong = int((~torch.isfinite(grads[key].detach())).sum())
        size = norm if norm and wrong else largest
        new = key in fresh
        zeros = float(largest == 0)
        left.append(LeafGradient(key, size, zeros, wrong if new else 0, not new))

    return tuple(left)


def largest_left(
    leaves: Iterable[torch.Tensor],
) -> dict[int, float]:
    """The largest number in the `.grad` of each leaf that has one which can be read, by
    identity of the leaf.
    """
    return _norms(
        _readable({id(leaf): leaf for leaf in leaves}),
        math.inf,
    )


def _readable(
    leaves: Mapping[int, torch.Tensor],
) -> dict[int, torch.Tensor]:
    grads: dict[int, torch.Tensor] = {}
    with isolated():
        for key, leaf in leaves.items():
            grad = leaf.grad if leaf.is_leaf else None
            # a subclass may run code of its own in any operation
            if type(grad) is not torch.Tensor or not grad.numel():
                continue
            if grad.dtype.is_floating_point and is_readable(grad):
                grads[key] = grad
    return grads


def _norms(
    grads: Mapping[int, torch.Tensor],
    order: float,
) -> dict[int, float]:
    """One number for each, by the same keys. Small types are widened; gradients on one
    device are asked for at once.
    """
    with unrecorded():
        wide = [
            grad if grad.dtype in (torch.float32, torch.float64) else grad.float()
            for grad in grads.values()
        ]
        norms = [torch.linalg.vector_norm(grad, order) for grad in wide]
        # reading a number waits for the GPU: one wait for all is enough
        if len({(norm.device, norm.dtype) for norm in norms}) == 1:
            norms = torch.stack(norms).tolist()
        return dict(zip(grads, map(float, norms)))
