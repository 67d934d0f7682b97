"""Which tensors have numbers that may be read, and why others have none. Asking reads no number and runs no code of a subclass.

Reading a tensor whose storage was resized below it, as fully_shard does between two uses, ends the process.
"""

from __future__ import annotations

from typing import Any

import torch

from gradviz.capture.private import without_subclasses
from gradviz.capture.tensors import parts_of


def why_unreadable(tensor: torch.Tensor) -> str:
    """Why no number of this tensor can be read, to be put after "it"; "" where they can be.

    >>> why_unreadable(torch.ones(2))
    ''
    >>> why_unreadable(torch.ones(2, device="meta"))
    'is on the meta device, which has no numbers'
    """
    with without_subclasses():
        if tensor.is_meta:
            return "is on the meta device, which has no numbers"
        return _CLASSES.get(type(tensor).__name__) or outgrown(tensor)


_CLASSES = {
    "FakeTensor": "is a fake tensor, which has no numbers",
    "MaskedTensor": "is a masked tensor, which supports none of the operations that measure it",
}


def outgrown(tensor: torch.Tensor) -> str:
    """The same, only for a tensor, or a part of one, that does not fit into its storage any more."""
    with without_subclasses():
        parts = [part for _, part in parts_of(tensor)]
        for one in parts or [tensor]:
            needed, there = _extent(one)
            if there < needed:
                return f"needs {needed:,} bytes of a storage that was resized to {there:,}"
    return ""


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """How many bytes of its storage the tensor reaches into, and how many there are; nothing where it has no such storage."""
    if _keeps_its_own(tensor) or tensor.layout != torch.strided:
        return 0, 0
    try:
        there = tensor.untyped_storage().nbytes()
        if type(there) is not int or tensor.is_nested or not tensor.numel():
            return 0, 0
        last = tensor.storage_offset() + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
        return int(last + 1) * tensor.element_size(), there
    except (RuntimeError, NotImplementedError):  # no storage, or sizes that are not told
        return 0, 0


_ORDINARY: Any = torch.Tensor.__torch_dispatch__


def _keeps_its_own(tensor: torch.Tensor) -> bool:
    """Whether the class of a tensor keeps its elements elsewhere, and answers all operations itself."""
    return getattr(type(tensor), "__torch_dispatch__", _ORDINARY) is not _ORDINARY
