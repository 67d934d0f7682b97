"""What tensors a program has: the facts of every tensor that its variables hold, as plain data.

Reads live tensors and changes nothing of them: no node is made, no warning is set off, no copy-on-write tensor is copied.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from gradviz.graph import TensorInfo
from gradviz.stages import Stage
from gradviz.variables.scanner import NamedValue, Namespace, scan
from gradviz.walker.names import outermost, registered
from gradviz.walker.private import without_subclasses
from gradviz.walker.tensors import (
    base_of,
    storage_of,
    tensor_info,
    version_of,
)


class Grad(NamedTuple):
    """What `.grad` holds: its facts, its norm where it can be computed, and its value when it is a single real number."""

    tensor: TensorInfo
    norm: float | None
    value: float | None


class TensorFacts(NamedTuple):
    """One tensor. What is None was not read, because reading could change something, or does not exist.

    `grad_fn` is "" for none. `base` is the names of the tensor that this one is a view of, empty when that has no name;
    `view` says whether it is a view. `storage` is a letter that all listed tensors on one storage share, "" when no other
    listed tensor does.
    """

    names: tuple[str, ...]
    kind: str  # "parameter", "buffer" or "tensor"
    tensor: TensorInfo
    is_leaf: bool | None
    requires_grad: bool | None
    retains_grad: bool | None
    grad_fn: str | None
    grad: Grad | None
    version: int | None
    view: bool
    base: tuple[str, ...]
    storage: str
    storage_bytes: int | None
    stride: tuple[int, ...] | None
    offset: int | None


class _Found(NamedTuple):
    tensor: torch.Tensor
    names: list[str]
    kind: str


def inventory(variables: Sequence[Namespace]) -> tuple[TensorFacts, ...]:
    """Facts of every tensor among the variables (inner namespace first), in modules, and in containers of them.

    A tensor that several variables hold is listed once, with all their names. Names that begin with `_` are left out.
    """
    found = _collect(variables)
    with without_subclasses(), Stage("read", "tensors", total=len(found)) as reading:
        letters = _letters([one.tensor for one in found.values()])
        return tuple(_facts(one, found, letters) for one in reading.each(found.values()))


# -- finding -----------------------------------------------------------------------------------------------------------


def _collect(variables: Sequence[Namespace]) -> dict[int, _Found]:
    """By identity, while the variables keep them alive. Several variables all name a tensor; else its best name does."""
    found: dict[int, _Found] = {}
    held = [one for one in scan(variables) if not one.private and not _hidden(one, variables)]
    for one in held:
        if one.kind == "tensor" and not one.level:
            kind = "parameter" if issubclass(type(one.value), torch.nn.Parameter) else "tensor"
            found.setdefault(id(one.value), _Found(one.value, [], kind)).names.append(one.name)
    plain = set(found)
    for name, module in outermost(held):
        for member, tensor, kind in registered(name, module):
            if id(tensor) not in plain:
                found.setdefault(id(tensor), _Found(tensor, [], kind)).names.append(member)
    for one in sorted(held, key=lambda one: one.rank):
        if one.kind == "tensor":
            found.setdefault(id(one.value), _Found(one.value, [one.name], "tensor"))
    return found


def _hidden(one: NamedValue, variables: Sequence[Namespace]) -> bool:
    """Whether an inner variable hides the one that the name begins with."""
    first = re.split(r"[.\[]", one.name, maxsplit=1)[0]
    return any(first in space for space in variables[: one.space])


def _letters(tensors: Sequence[torch.Tensor]) -> dict[int, str]:
    """A letter for each storage that two or more of the tensors share, by the storage's identity."""
    count: dict[int, int] = {}
    for tensor in tensors:
        storage = storage_of(tensor)
        if storage is not None:
            count[storage[0]] = count.get(storage[0], 0) + 1
    shared = [storage for storage, number in count.items() if number > 1]
    return {storage: _letter(i) for i, storage in enumerate(shared)}


def _letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("A") + digit) + text
    return text


# -- facts -------------------------------------------------------------------------------------------------------------


def _facts(one: _Found, found: dict[int, _Found], letters: dict[int, str]) -> TensorFacts:
    tensor, base, storage = one.tensor, base_of(one.tensor), storage_of(one.tensor)
    quiet = not _is_stale(tensor, base)
    is_leaf = tensor.is_leaf if quiet else None
    retains = tensor.retains_grad if quiet else None
    made_by = tensor.grad_fn if quiet else None
    info = tensor_info(tensor)
    strided = info.layout == "strided"
    return TensorFacts(
        names=tuple(one.names),
        kind=one.kind,
        tensor=info,
        is_leaf=is_leaf,
        requires_grad=tensor.requires_grad if quiet else None,
        retains_grad=retains,
        grad_fn=(made_by.name() if made_by is not None else "") if quiet else None,
        grad=_grad(tensor) if is_leaf or retains else None,
        version=version_of(tensor),
        view=base is not None,
        base=tuple(found[id(base)].names) if base is not None and id(base) in found else (),
        storage=letters.get(storage[0], "") if storage is not None else "",
        storage_bytes=storage[1] if storage is not None else None,
        stride=_numbers(tensor.stride()) if strided else None,
        offset=int(tensor.storage_offset()) if strided else None,
    )


def _is_stale(tensor: torch.Tensor, base: torch.Tensor | None) -> bool:
    """Whether asking for `grad_fn` could make a new node: a view whose base requires grad and was modified in place."""
    return base is not None and base.requires_grad and not tensor.is_inference() and tensor._version > 0


def _numbers(sizes: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)


def _grad(tensor: torch.Tensor) -> Grad | None:
    """Read only of a leaf, or of a tensor that retains its gradient: for others torch warns, and there is none."""
    gradient = tensor.grad
    if gradient is None:
        return None
    norm = value = None
    try:
        with torch.no_grad():
            entries = gradient.detach()
            if entries.layout == torch.sparse_coo:
                entries = entries.coalesce().values()
            if not entries.is_meta:
                single = entries.numel() == 1 and not entries.is_complex()
                norm, value = _norm(entries), float(entries) if single else None
    except Exception:  # a tensor without values, such as a fake one
        norm = value = None
    return Grad(tensor_info(gradient), norm, value)


def _norm(entries: torch.Tensor) -> float:
    wide = entries if entries.is_complex() else entries.to(torch.float64)
    return float(torch.linalg.vector_norm(wide))
