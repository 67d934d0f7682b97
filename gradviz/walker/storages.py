"""Numbers the storages of one walk, in the order they are met, and says whose each is."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from gradviz.graph import StorageKind
from gradviz.graph.columns import StorageColumns
from gradviz.walker import private
from gradviz.walker.tensors import parts_of, storage_of


class Storages:
    """The storages met so far.

    `owners` maps a storage's identity to its kind; those tensors must stay alive while this numbers. What it does not know is an
    activation. `number_of` has the numbers by identity.
    """

    def __init__(self, owners: Mapping[int, str]) -> None:
        self._owners = owners
        self.columns = StorageColumns()
        self.number_of: dict[int, int] = {}

    def known(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage when it was met before."""
        found = storage_of(tensor)
        return self.number_of.get(found[0]) if found is not None else None

    def number(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage, a new one when it is met first; None where the tensor has none."""
        parts = parts_of(tensor)
        if parts:
            return self.number(parts[-1][1])
        found = storage_of(tensor)
        if found is None:
            return None
        known = self.number_of.get(found[0])
        return self.add(*found, tensor, None) if known is None else known

    def numbers_of_parts(self, tensor: torch.Tensor) -> list[tuple[str, int]]:
        """The storages of a tensor that is made of others, each with the part's name; the one with the values is last."""
        found = [(name, self.number(part)) for name, part in parts_of(tensor)]
        return [(name, number) for name, number in found if number is not None]

    def add(self, identity: int, nbytes: int, tensor: torch.Tensor, smaller: torch.Tensor | None) -> int:
        """The number of a storage met for the first time, in `tensor`. `smaller` is given where that may be a Python number."""
        kind: StorageKind = self._owners.get(identity)  # type: ignore[assignment]
        if kind is None:
            kind = "number" if smaller is not None and private.is_wrapped_number(tensor, smaller) else "activation"
        columns = self.columns
        number = self.number_of[identity] = len(columns.kind)
        columns.nbytes.append(nbytes if type(nbytes) is int else -1)  # asking a symbolic size would fix it
        columns.kind.append(kind)
        return number
