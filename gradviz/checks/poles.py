"""Operations that stand at a pole, and weights of zeros: read of live nodes and leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from gradviz.gradients.values import tensor_in, why_unreadable
from gradviz.walker.isolation import unrecorded
from gradviz.walker.private import Node as LiveNode
from gradviz.walker.tensors import answers_itself, is_plain

_Test = tuple[str, Callable[[torch.Tensor], Any]]


_TESTS: dict[tuple[str, ...], _Test] = {
    ("Sqrt", "Std", "Norm", "LinalgVectorNorm"): ("result", lambda x: (x == 0).any()),
    ("Rsqrt", "Reciprocal", "Exp", "Expm1", "Logsumexp"): (
        "result",
        lambda x: ~torch.isfinite(x).all(),
    ),
    ("Softmax", "LogSoftmax"): ("result", lambda x: torch.isnan(x).any()),
    ("Log", "Log2", "Log10", "Pow"): ("self", lambda x: (x <= 0).any()),
    ("Log1P",): ("self", lambda x: (x <= -1).any()),
    ("Acosh",): ("self", lambda x: (x <= 1).any()),
    ("Acos", "Asin", "Atanh"): ("self", lambda x: (x.abs() >= 1).any()),
    ("Atan2",): ("self", lambda x: (x == 0).any()),
    ("Div", "Xlogy"): ("other", lambda x: (x == 0).any()),
    ("LinalgEigh",): ("eigenvalues", lambda x: (x.diff(dim=-1) == 0).any()),
    ("LinalgSvd",): ("S", lambda x: (x.diff(dim=-1) == 0).any()),
}
"""What operations have saved when that is a pole, by the operations."""


_SAVED_AT = {
    f"{name}Backward": test for names, test in _TESTS.items() for name in names
}


_BELOW_ZERO: dict[str, _Test] = {
    **dict.fromkeys(
        ("LogBackward", "Log2Backward", "Log10Backward"),
        ("self", lambda x: (x < 0).any()),
    ),
    **dict.fromkeys(
        ("SqrtBackward", "RsqrtBackward"), ("result", lambda x: torch.isnan(x).any())
    ),
}
"""The same for operations that are not defined below zero, when they were given such
numbers.
"""


def at_a_pole(nodes: Iterable[LiveNode]) -> bool:
    """Whether one of these nodes stands where its gradient may not be finite, although
    the values are.
    """
    with unrecorded():
        return any(_is_at_a_pole(node) for node in nodes)


def all_zero(leaves: Mapping[int, torch.Tensor]) -> tuple[int, ...]:
    """The keys of the matrices whose elements are all zero."""
    zero = list[int]()
    with unrecorded():
        for key, leaf in leaves.items():
            if is_plain(leaf) and leaf.dim() > 1 and not why_unreadable(leaf.detach()):
                # of most tensors, the first few say that they are not
                first = leaf.detach().flatten()[:64]
                if not first.any() and not leaf.detach().any():
                    zero.append(key)
    return tuple(zero)


def all_at_a_pole(nodes: Sequence[LiveNode]) -> dict[int, bool]:
    """The places of all such nodes in a row of them, and whether they were given
    numbers below zero, where they are not defined.
    """
    places = dict[int, bool]()
    with unrecorded():
        for i, node in enumerate(nodes):
            below = _has_saved(node, _BELOW_ZERO)
            if below or _is_at_a_pole(node):
                places[i] = below
    return places


def _is_at_a_pole(node: LiveNode) -> bool:
    # a power of 1 or more has a finite slope everywhere
    exponent = getattr(node, "_saved_exponent", None)
    steep = not isinstance(exponent, (int, float)) or exponent < 1
    return steep and _has_saved(node, _SAVED_AT)


def _has_saved(node: LiveNode, tests: Mapping[str, _Test]) -> bool:
    """Whether what a node has saved passes the test for its kind."""
    name = type(node).__name__.rstrip("0123456789").lstrip("_")
    if name not in tests:
        return False

    slot, test = tests[name]
    try:
        tensor = tensor_in(node, slot)
        if tensor is None or tensor.is_nested or answers_itself(tensor):
            return False
        return not why_unreadable(tensor) and bool(test(tensor.detach()))
    except Exception:  # freed meanwhile, or a class of tensors that refuses
        return False
