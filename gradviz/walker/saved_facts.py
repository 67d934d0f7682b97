"""Makes the record of a saved slot from the tensor in it; what tensors of one shape, dtype and device share is worked out once."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from gradviz.graph import Packing, SavedState, SavedTensor, StorageKind, TensorInfo
from gradviz.walker import private
from gradviz.walker.storages import Storages
from gradviz.walker.tensors import element_bytes, is_plain, parts_of, tensor_info


class Shared(NamedTuple):
    """What tensors of one shape, dtype, device and layout share."""

    info: TensorInfo
    nbytes: int | None
    smaller: torch.Tensor | None  # what `private.is_wrapped_number` compares with; None where none can be such a number
    forms: dict[tuple[str, StorageKind, bool], SavedTensor]  # by slot, kind of storage, whether it is a view

    def form(self, slot: str, kind: StorageKind, view: bool) -> SavedTensor:
        """What the live, unmodified slots that hold such tensors share, all but the storage."""
        made = SavedTensor(slot, self.info, None, kind, "live", self.nbytes, view, version=0)
        self.forms[slot, kind, view] = made
        return made


class SavedFacts:
    """Makes records for one walk. `shared` has what is known by shape, dtype and device of ordinary tensors."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self.shared: dict[Any, Shared] = {}

    def record(
        self,
        slot: str,
        tensor: torch.Tensor,
        state: SavedState,
        version: int | None = None,
        note: str = "",
        leaf: int | None = None,
        packing: Packing = "",
    ) -> SavedTensor:
        """One slot that holds `tensor`."""
        info, nbytes, smaller, _ = self._shared(tensor)
        number: int | None = None
        parts: tuple[int, ...] = ()
        if is_plain(tensor):
            try:
                memory = tensor.untyped_storage()
                identity = memory._cdata
                number = self._storages.number_of.get(identity)
                if number is None:
                    number = self._storages.add(identity, memory.nbytes(), tensor, smaller)
            except (RuntimeError, NotImplementedError):
                note = note or f"torch does not tell the memory of a tensor with layout {info.layout}"
        else:
            number, parts, note = self._odd(tensor, note)
        kind = self._storages.columns.kind[number] if number is not None else None
        fields = (slot, info, number, kind, state, nbytes, tensor._is_view(), leaf, version, note, packing, parts)
        return tuple.__new__(SavedTensor, fields)

    def _shared(self, tensor: torch.Tensor) -> Shared:
        if not is_plain(tensor):
            return _shared(tensor)
        try:
            key = (tensor.shape, tensor.dtype, tensor.device)
            known = self.shared.get(key)
        except (RuntimeError, TypeError):  # nested, or with symbolic sizes
            return _shared(tensor)
        if known is None:
            known = self.shared[key] = _shared(tensor)
        return known

    def _odd(self, tensor: torch.Tensor, note: str) -> tuple[int | None, tuple[int, ...], str]:
        """A tensor that is made of others: the storage that holds the values, all its storages, and the note with them."""
        named = self._storages.numbers_of_parts(tensor)
        if not named:
            number = self._storages.number(tensor) if not parts_of(tensor) else None
            if number is None:
                note = note or f"torch does not tell the memory of this {type(tensor).__name__}"
            return number, (), note
        told = ", ".join(f"{name} in storage {number}" for name, number in named)
        numbers = tuple([number for _, number in named]) if len(named) > 1 else ()
        return named[-1][1], numbers, f"{note}; {told}" if note else told


def _shared(tensor: torch.Tensor) -> Shared:
    info = tensor_info(tensor)
    may_be_number = info.shape == () and info.device == "cpu"
    smaller = private.smaller(tensor.dtype) if may_be_number else None
    return Shared(info, element_bytes(info, tensor.dtype.itemsize), smaller, {})
