"""Reads what a node saved for backward, without unpacking, recomputing or keeping anything.

Only `_raw_saved_*` and its `.data` and `.unpack_hook` are read. `_saved_*` of a tensor slot is read in two cases where no hook
can run (the slot has none): to tell an empty slot from a freed one, and to ask torch whether a tensor with a version above
0 was modified since it was saved. `saved_tensors` is never touched: a read may destroy what it returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from gradviz.capture import private
from gradviz.capture.private import Node
from gradviz.capture.tensors import element_bytes, parts_of, storage_of, tensor_info, version_of
from gradviz.graph import NO_ATTRIBUTES, NodeFlag, SavedState, SavedTensor, Storage, StorageKind, TensorInfo

_RAW, _SAVED = "_raw_saved_", "_saved_"
_SIGNED_FROM = 2**63
_ONE_STORAGE = ("strided", "nested", "jagged")


class Slots(NamedTuple):
    """What nodes of one type save: names of tensor slots, and of plain attributes."""

    tensors: tuple[str, ...]
    attributes: tuple[str, ...]
    custom: bool


class Read(NamedTuple):
    """What one node saved."""

    attributes: Mapping[str, Any]
    saved: tuple[SavedTensor, ...]
    flags: tuple[NodeFlag, ...]


NOTHING = Read(NO_ATTRIBUTES, (), ())


def slots_of(node: Node) -> Slots:
    """The slots of a node's type. They are the same for all nodes of the type, so ask once per type: `dir` is slow."""
    members = dir(node)
    tensors = tuple(name.removeprefix(_RAW) for name in members if name.startswith(_RAW))
    custom = isinstance(node, private.BackwardCFunction)
    if custom:
        tensors = ("tensors",)
    plain = tuple(
        name.removeprefix(_SAVED)
        for name in members
        if name.startswith(_SAVED) and name.removeprefix(_SAVED) not in tensors
    )
    return Slots(tensors if private.HAS_RAW_DATA else (), plain, custom)


class SavedReader:
    """Reads the nodes of one walk. Storages are numbered in the order they are met.

    `leaves` maps `id(tensor)` to the id of the leaf's node, `owners` a storage's identity to its kind; all those tensors must
    stay alive while this reads. What `owners` does not know is an activation.
    """

    def __init__(self, leaves: Mapping[int, int], owners: Mapping[int, str]) -> None:
        self._leaves = leaves
        self._owners = owners
        self._storages: dict[int, Storage] = {}  # by identity
        self._slots: dict[type, Slots] = {}
        self._infos: dict[Any, tuple[TensorInfo, int | None]] = {}
        self._attributes: dict[Any, Mapping[str, Any]] = {}

    def storages(self) -> tuple[Storage, ...]:
        """All storages met so far, indexed by id."""
        return tuple(self._storages.values())

    def storage(self, tensor: torch.Tensor) -> Storage | None:
        """The tensor's storage, numbered when it is new; None where the tensor has none."""
        found = storage_of(tensor)
        if found is None:
            return None
        known = self._storages.get(found[0])
        if known is None:
            kind: StorageKind = self._owners.get(found[0], "activation")  # type: ignore[assignment]
            known = self._storages[found[0]] = Storage(len(self._storages), found[1], kind)
        return known

    def read(self, node: Node) -> Read:
        """Everything `node` saved. Never raises for a freed, hooked or modified slot: that is its state."""
        kind = type(node)
        slots = self._slots.get(kind)
        if slots is None:
            slots = self._slots[kind] = slots_of(node)
        tensors, plain, custom = slots
        if not tensors and not plain:
            return NOTHING
        saved: list[SavedTensor] = []
        empty: list[str] = []
        for name in tensors:
            self._read_slot(node, name, saved, empty)
        if custom:
            self._read_context(node, saved)
        attributes = self._read_attributes(node, plain, empty) if plain or empty else NO_ATTRIBUTES
        return Read(attributes, tuple(saved), _flags(saved) if saved else ())

    def _read_slot(self, node: Node, name: str, saved: list[SavedTensor], empty: list[str]) -> None:
        try:
            raw = getattr(node, _RAW + name)
        except RuntimeError:  # list-valued slots raise when backward has freed them
            saved.append(SavedTensor("saved_tensors" if name == "tensors" else name, None, None, None, "freed"))
            return
        if type(raw) is not tuple:
            one = self._read_raw(raw, name, node)
            if one is None:
                empty.append(name)
            else:
                saved.append(one)
            return
        shown = "saved_tensors" if name == "tensors" else name
        for i, element in enumerate(raw):
            one = self._read_raw(element, f"{shown}[{i}]", None)
            if one is not None:
                saved.append(one)

    def _read_raw(self, raw: Any, slot: str, node: Node | None) -> SavedTensor | None:
        """One slot, or None when it is there but holds nothing. `node` is given where its `_saved_` twin may be asked."""
        data, hook = raw.data, raw.unpack_hook
        if hook is not None:
            return self._packed(slot, data, hook)
        if data is None:
            return SavedTensor(slot, None, None, None, "freed") if node is not None and _is_freed(node, slot) else None
        version = version_of(data)
        return self.facts(slot, data, _modified(node, slot) if version else "live", version)

    def facts(
        self, slot: str, tensor: torch.Tensor, state: SavedState, version: int | None = None, note: str = ""
    ) -> SavedTensor:
        """One slot that holds `tensor`."""
        info, nbytes = self._info(tensor)
        storage = self.storage(tensor) if info.layout in _ONE_STORAGE else self._sparse(tensor)
        number, kind = (None, None) if storage is None else (storage.id, storage.kind)
        view, leaf = tensor._is_view(), self._leaves.get(id(tensor))
        fields = (slot, info, number, kind, state, nbytes, view, leaf, version, note)
        return tuple.__new__(SavedTensor, fields)

    def _sparse(self, tensor: torch.Tensor) -> Storage | None:
        """A sparse tensor has several storages: number them all, and give the one that holds its values."""
        storages = [self.storage(part) for part in parts_of(tensor)]
        return storages[-1] if storages else None

    def _info(self, tensor: torch.Tensor) -> tuple[TensorInfo, int | None]:
        try:
            key = (tensor.shape, tensor.dtype, tensor.device, tensor.layout)
            known = self._infos.get(key)
        except (RuntimeError, TypeError):  # nested, or with symbolic sizes
            return self._new_info(tensor)
        if known is None:
            known = self._infos[key] = self._new_info(tensor)
        return known

    def _new_info(self, tensor: torch.Tensor) -> tuple[TensorInfo, int | None]:
        info = tensor_info(tensor)
        return info, element_bytes(info, tensor.dtype.itemsize)

    def _packed(self, slot: str, packed: Any, hook: Any) -> SavedTensor:
        name = f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook).__qualname__)}".lstrip(".")
        kind = f"{type(packed).__module__}.{type(packed).__qualname__}".removeprefix("builtins.")
        note = f"unpacked by {name} from a {kind}"
        if isinstance(packed, torch.Tensor):
            return self.facts(slot, packed, "packed", version_of(packed), note)
        return SavedTensor(slot, None, None, None, "packed", note=note)

    def _read_context(self, node: Node, saved: list[SavedTensor]) -> None:
        """Tensors that a custom Function put on `ctx` itself, at most one list or tuple deep."""
        for name, value in vars(node).items():
            items = [(name, value)]
            if isinstance(value, (list, tuple)):
                items = [(f"{name}[{i}]", item) for i, item in enumerate(value)]
            for slot, item in items:
                if isinstance(item, torch.Tensor):
                    saved.append(self.facts(f"ctx.{slot}", item, "live", version_of(item)))

    def _read_attributes(self, node: Node, plain: tuple[str, ...], empty: list[str]) -> Mapping[str, Any]:
        """Plain attributes, and None for slots that hold nothing. Nodes with equal attributes share one mapping."""
        values = tuple([_plain(node, name) for name in plain])
        key = (plain, values, tuple(empty), tuple(map(type, values)))
        known = self._attributes.get(key)
        if known is None:
            found = dict(zip(plain, values)) | dict.fromkeys(empty)
            known = self._attributes[key] = {name: found[name] for name in sorted(found)}
        return known


def _is_freed(node: Node, slot: str) -> bool:
    """Whether an empty slot without a hook is empty because backward freed it. No hook can run: there is none."""
    try:
        getattr(node, _SAVED + slot)
    except RuntimeError:
        return True
    return False


def _modified(node: Node | None, slot: str) -> SavedState:
    """Whether torch says that an unhooked slot was modified since it was saved."""
    if node is None:
        return "live"
    try:
        getattr(node, _SAVED + slot)
    except RuntimeError as error:
        return "modified" if "inplace" in str(error) else "unknown"
    return "live"


def _plain(node: Node, name: str) -> Any:
    """A non-tensor attribute as plain data. An int64 that torch hands out as unsigned is made negative again."""
    try:
        return _decoded(getattr(node, _SAVED + name))
    except RuntimeError as error:
        return f"unreadable: {str(error).splitlines()[0]}"


def _decoded(value: Any) -> Any:
    kind = type(value)
    if kind is int:
        return value - 2**64 if value >= _SIGNED_FROM else value
    if value is None or kind in (bool, float, str):
        return value
    if kind is tuple:
        return tuple(_decoded(item) for item in value)
    return str(value)


_FLAG_OF: dict[SavedState, NodeFlag] = {"freed": "freed", "modified": "modified", "packed": "packed"}


def _flags(saved: list[SavedTensor]) -> tuple[NodeFlag, ...]:
    return tuple(sorted({_FLAG_OF[one.state] for one in saved if one.state in _FLAG_OF}))
