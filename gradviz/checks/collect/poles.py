"""Finds operations of a live graph that stand at a point where their gradient is NaN or infinite: a root of zero, say.

Looks only at what operations of a few kinds have saved, so it costs next to nothing. Runs no hook; concludes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from gradviz.walker.private import Node, without_subclasses
from gradviz.walker.values import tensor_in, why_unreadable

_Test = Callable[[torch.Tensor], Any]


def _zero(x: torch.Tensor) -> Any:
    return (x == 0).any()


def _not_positive(x: torch.Tensor) -> Any:
    return (x <= 0).any()


def _at_one(x: torch.Tensor) -> Any:
    return (x.abs() >= 1).any()


def _not_finite(x: torch.Tensor) -> Any:
    return ~torch.isfinite(x).all()


def _nan(x: torch.Tensor) -> Any:
    return torch.isnan(x).any()


def _equal(x: torch.Tensor) -> Any:
    return (x.diff(dim=-1) == 0).any()


_POLES: dict[str, tuple[str, _Test]] = {
    "SqrtBackward": ("result", _zero),
    "RsqrtBackward": ("result", _not_finite),
    "LogBackward": ("self", _not_positive),
    "Log2Backward": ("self", _not_positive),
    "Log10Backward": ("self", _not_positive),
    "Log1PBackward": ("self", lambda x: (x <= -1).any()),
    "DivBackward": ("other", _zero),
    "ReciprocalBackward": ("result", _not_finite),
    "ExpBackward": ("result", _not_finite),
    "Expm1Backward": ("result", _not_finite),
    "AcosBackward": ("self", _at_one),
    "AsinBackward": ("self", _at_one),
    "AtanhBackward": ("self", _at_one),
    "AcoshBackward": ("self", lambda x: (x <= 1).any()),
    "Atan2Backward": ("self", _zero),
    "StdBackward": ("result", _zero),
    "NormBackward": ("result", _zero),
    "LinalgVectorNormBackward": ("result", _zero),
    "SoftmaxBackward": ("result", _nan),
    "LogSoftmaxBackward": ("result", _nan),
    "LogsumexpBackward": ("result", _not_finite),
    "LinalgEighBackward": ("eigenvalues", _equal),
    "LinalgSvdBackward": ("S", _equal),
    "XlogyBackward": ("other", _zero),
}
"""By the name of the operation: what it has saved, and when that is a pole."""


def at_a_pole(nodes: Iterable[Node]) -> bool:
    """Whether one of these nodes stands where its gradient may not be finite, although the values are."""
    with without_subclasses(), torch.no_grad():
        return any(_is_at_a_pole(node) for node in nodes)


def _is_at_a_pole(node: Node) -> bool:
    name = type(node).__name__.rstrip("0123456789").lstrip("_")
    slot, test = ("self", _not_positive) if name == "PowBackward" else _POLES.get(name, ("", _zero))
    if not slot or (name == "PowBackward" and not _steep_power(node)):
        return False
    try:
        tensor = tensor_in(node, slot)
        if tensor is None or not tensor.dtype.is_floating_point or tensor.is_nested or why_unreadable(tensor):
            return False
        return bool(test(tensor.detach()))
    except Exception:  # freed meanwhile, or a class of tensors that refuses
        return False


def _steep_power(node: Node) -> bool:
    exponent = getattr(node, "_saved_exponent", None)
    return not isinstance(exponent, (int, float)) or exponent < 1
