"""Reads the few numbers of a training loop that are looked at without being asked for:
losses, the size of gradients, and what operations at a pole have saved.

Reads no number of a tensor that cannot be read, and writes nothing. Concludes nothing.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import torch

from gradviz.armour.isolation import isolated, unrecorded
from gradviz.checks.call import LeafGradient
from gradviz.checks.ops import kind_of
from gradviz.checks.poles import Where, pole_of
from gradviz.gradients.values import BASE, is_zero, outgrown, tensor_in, true_in
from gradviz.walker.private import Node as LiveNode
from gradviz.walker.tensors import answers_itself, is_plain, version_of

F = TypeVar("F")
_ELEMENTS = 8  # of a leaf that nobody seems to update, to see whether it moves
TensorRef = weakref.ref[torch.Tensor]
ByTensor = MutableMapping[torch.Tensor, F]
"""Facts of tensors, which are held weakly."""


def is_readable(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one plain block of numbers, which can be read."""
    if not is_plain(tensor) or tensor.is_nested or tensor.is_meta:
        return False
    return not outgrown(tensor)


def loss_of(outputs: Sequence[Any]) -> float | None:
    """The number, when the outputs are a single real number that can be read; else
    None.
    """
    if len(outputs) != 1 or not isinstance(outputs[0], torch.Tensor):
        return None
    loss = outputs[0]
    try:
        with isolated():
            return float(BASE.item(loss)) if _is_single(loss) else None
    except Exception:  # a class of tensors that refuses to tell
        return None


def _is_single(loss: torch.Tensor) -> bool:
    """Whether this is one real number that can be read: asked at every step."""
    if is_plain(loss) and not loss.is_nested:
        there = loss.numel() == 1 and loss.is_floating_point() and not loss.is_meta
        needed = (loss.storage_offset() + 1) * loss.element_size()
        return there and loss.untyped_storage().nbytes() >= needed
    if loss.is_nested or answers_itself(loss) or loss.is_meta or loss.numel() != 1:
        return False
    return loss.is_floating_point() and not outgrown(loss)


def is_broken(loss: float | None, scaled: bool) -> bool:
    """Whether a loss is NaN or infinite. Infinity is no fault where a GradScaler makes
    it: the step is then left out.
    """
    if loss is None or math.isfinite(loss):
        return False
    return math.isnan(loss) or not scaled


def gradients_left(leaves: Mapping[int, torch.Tensor]) -> tuple[LeafGradient, ...]:
    """The size of the `.grad` of each leaf that has one which can be read, by the same
    keys.
    """
    left, grads = [], _readable(leaves)
    with unrecorded():
        for (key, grad), norm in zip(grads.items(), _norms(grads.values())):
            wrong = 0
            # squares over- and underflow
            if not 0 < norm < math.inf:
                wrong = true_in(torch.logical_not(torch.isfinite(grad)))
                norm = float(BASE.item(torch.max(torch.abs(grad))))

            leaf, zero = leaves[key], False
            if not (norm or wrong) and is_readable(leaf):
                zero = is_zero(BASE.detach(leaf)) is True
            left.append(LeafGradient(key, norm, wrong, zero))

    return tuple(left)


def _readable(leaves: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    grads: dict[int, torch.Tensor] = {}
    for key, leaf in leaves.items():
        grad = leaf.grad if leaf.is_leaf else None
        # a subclass may run code of its own in any operation
        if type(grad) is not torch.Tensor or not grad.numel():
            continue
        if grad.dtype.is_floating_point and is_readable(grad):
            grads[key] = BASE.detach(grad)
    return grads


def _norms(grads: Iterable[torch.Tensor]) -> list[float]:
    """One number for each, of small types in float32; gradients on one device are asked
    for at once.
    """
    norms = []
    for grad in grads:
        precise = torch.promote_types(grad.dtype, torch.float32)
        norms.append(torch.linalg.vector_norm(grad, dtype=precise))
    # reading a number waits for the GPU: one wait for all is enough
    if len({(norm.device, norm.dtype) for norm in norms}) == 1:
        return list(BASE.tolist(torch.stack(norms)))
    return list(map(BASE.item, norms))


def mark_of(tensor: torch.Tensor) -> object:
    """What changes when a leaf does: a few of its elements, and if there are more, its
    version, which writing to `.data` leaves alone.
    """
    if not is_readable(tensor):
        return None
    with unrecorded():
        elements = BASE.tolist(torch.flatten(tensor)[:_ELEMENTS])
        version = version_of(tensor) if tensor.numel() > _ELEMENTS else None
        return version, tuple(map(str, elements))


# -- poles -----------------------------------------------------------------------------


def at_poles(nodes: Sequence[LiveNode]) -> frozenset[int]:
    """The places, in a row of nodes, of those that were given a number at which they
    make NaN or Inf, of values or of gradients.
    """
    return _places_where(_is_at_a_pole, nodes)


def _places_where(
    is_one: Callable[[LiveNode], bool], nodes: Sequence[LiveNode]
) -> frozenset[int]:
    places = list[int]()
    with unrecorded():
        for place, node in enumerate(nodes):
            # one may be freed meanwhile, or a class of tensors refuse
            with suppress(Exception):
                if is_one(node):
                    places.append(place)
    return frozenset(places)


_AT: dict[Where, Callable[[torch.Tensor], torch.Tensor]] = {
    "below": lambda numbers: torch.logical_not(numbers > 0),
    "zero": lambda numbers: numbers == 0,
    "infinite": lambda numbers: torch.logical_not(torch.isfinite(numbers)),
    "edge": lambda numbers: torch.abs(numbers) >= 1,
    "NaN": torch.isnan,
    "equal": lambda numbers: torch.diff(numbers, dim=-1) == 0,
}


def _is_at_a_pole(node: LiveNode) -> bool:
    pole = pole_of(type(node).__name__)
    tensor = tensor_in(node, pole.slot) if pole is not None else None
    if pole is None or tensor is None or not is_readable(tensor):
        return False

    # a power of 1 or more has a finite slope everywhere
    exponent = getattr(node, "_saved_exponent", None)
    steep = not isinstance(exponent, (int, float)) or exponent < 1
    return steep and bool(BASE.item(torch.any(_AT[pole.at](BASE.detach(tensor)))))


# -- indices ---------------------------------------------------------------------------


def repeated(nodes: Sequence[LiveNode]) -> frozenset[int]:
    """The places of assignments to elements by their indices, `x[i] = y`, of which one
    stands several times among the indices.
    """
    return _places_where(_repeats, nodes)


def _repeats(node: LiveNode) -> bool:
    if kind_of(type(node).__name__) != "IndexPut" or node._saved_accumulate:
        return False
    raw = getattr(node, "_raw_saved_indices", ())
    slots = (tensor_in(node, f"indices[{i}]") for i in range(len(raw)))
    indices = [slot for slot in slots if slot is not None]
    if not indices or not all(map(_is_index, indices)):
        return False
    every = [torch.flatten(each) for each in torch.broadcast_tensors(*indices)]  # type: ignore[no-untyped-call]
    rows = torch.unique(torch.stack(every), dim=1)
    return bool(rows.shape[1] < every[0].shape[0])


def _is_index(tensor: torch.Tensor) -> bool:
    return is_readable(tensor) and tensor.dtype in (torch.int64, torch.int32)


# -- activations that are dead ---------------------------------------------------------

_SLOPES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Relu": lambda result: result,
    "Sigmoid": lambda result: result * (1 - result),
    "Tanh": lambda result: 1 - result * result,
}
_BOUNDS = {
    "Clamp": ("min", "max"),
    "ClampMin": ("min", ""),
    "ClampMax": ("", "max"),
    "Hardtanh": ("min_val", "max_val"),
}
_GIVEN = "mat1", "self", "input"  # what a product keeps of its input


def dead(nodes: Sequence[LiveNode]) -> frozenset[int]:
    """The places of activations whose derivative is 0 at every element."""
    return _places_where(_is_dead, nodes)


def _is_dead(node: LiveNode) -> bool:
    kind = kind_of(type(node).__name__)
    slot = "result" if kind in _SLOPES else "self" if kind in _BOUNDS else ""
    tensor = tensor_in(node, slot) if slot else None
    if tensor is None or not is_readable(tensor) or not tensor.numel():
        return False
    numbers = BASE.detach(tensor)
    slope = _SLOPES[kind](numbers) if kind in _SLOPES else _inside(node, kind, numbers)
    return not BASE.item(torch.any(slope)) and not _is_given_zeros(node)


def _inside(node: LiveNode, kind: str, numbers: torch.Tensor) -> torch.Tensor:
    """Which elements are inside of the bounds of a clamp."""
    low, high = (getattr(node, f"_saved_{name}", None) for name in _BOUNDS[kind])
    above = numbers >= (-math.inf if low is None else low)
    return torch.logical_and(above, numbers <= (math.inf if high is None else high))


def _is_given_zeros(node: LiveNode) -> bool:
    """Whether the layer in front is given nothing but zeros, of which it makes zeros."""
    given = (tensor_in(node.next_functions[0][0], slot) for slot in _GIVEN)
    return any(each is not None and is_zero(each) for each in given)
