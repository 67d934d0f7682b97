"""Reads what a node saved for backward, without unpacking, recomputing or keeping anything.

Only `_raw_saved_*` and its `.data` and `.unpack_hook` are read. A slot is unpacked in two cases, both only where no hook can
run because the slot has none: to tell an empty slot from a freed one, and to ask torch whether a tensor with a version
above 0 was modified since it was saved. `saved_tensors` is never touched: a read may destroy what it returns.

`SavedReader.read` runs over a million nodes: ordinary slots go through one function, and what nodes of one type, or tensors of
one shape, dtype and device share is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gradviz.graph import NodeFlag, Packing, SavedState, SavedTensor, StorageKind, TensorInfo
from gradviz.graph.columns import NodeColumns, SavedColumns
from gradviz.walker import private, slots
from gradviz.walker.attributes import Attributes
from gradviz.walker.private import Node
from gradviz.walker.tensors import Storages, element_bytes, is_plain, parts_of, tensor_info, version_of


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


class SavedRecords:
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


_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_Add = Callable[[SavedTensor], None]


class SavedReader:
    """Reads the nodes of one walk.

    `leaves` maps `id(tensor)` to the id of the leaf's node; all those tensors must stay alive while this reads, as those of
    `storages` must.
    """

    def __init__(self, leaves: Mapping[int, int], storages: Storages) -> None:
        self._leaves = leaves
        self.storages = storages
        self._records = SavedRecords(storages)
        self._attributes = Attributes()
        self._plans: dict[type, slots.Plan] = {}
        self._checkpoints: dict[int, Any] = {}  # frames whose inputs have been told, held so that no id comes twice
        self._of_leaves: dict[tuple[str, int, int], SavedTensor] = {}

    def read(self, nodes: Sequence[Node], into: NodeColumns) -> None:
        """Everything that the nodes saved. Never raises for a freed, hooked or modified slot: that is its state."""
        plans, forms, add = self._plans, into.saved.form, into.saved.add
        attributes, nothing_in = self._attributes.read, self._attributes.nothing_in
        begin, add_attributes, add_ordinary = (
            into.saved.first.append,
            into.attributes.append,
            self._ordinary(into.saved),
        )
        for i, node in enumerate(nodes):
            plan = plans.get(type(node))
            if plan is None:
                plan = plans[type(node)] = slots.plan(node)
            tensors, plain, values, custom = plan
            first = len(forms)
            begin(first)
            empty: tuple[str, ...] = ()
            live = True  # whether all slots are
            for name, fetch in tensors:
                try:
                    raw = fetch(node)
                except RuntimeError:  # a list of tensors that backward has freed
                    raw = None
                if raw is not None and type(raw) is not tuple and raw.unpack_hook is None:
                    tensor = raw.data
                    if tensor is None:
                        empty = (*empty, name)
                        continue
                    if add_ordinary(name, tensor):
                        continue
                live = self._read_other(node, name, raw, add) and live
            if custom:
                self._read_context(node, add)
            if empty and len(forms) == first:  # backward frees all slots of a node at once
                empty, live = self._read_freed(node, empty, add)
            add_attributes(attributes(node, plain, values, empty) if plain else nothing_in[empty])
            if not live:
                into.flags[i] = (*into.type[i].flags, *_flags(forms[first:]))
        begin(len(forms))

    def _ordinary(self, into: SavedColumns) -> Callable[[str, torch.Tensor], bool]:
        """Adds a slot with an ordinary tensor that nobody has modified, and returns False for any other, which it leaves.

        By far most slots are ordinary, so this is a function of local names alone.
        """
        leaves, of_leaves, shared_by = self._leaves, self._of_leaves, self._records.shared
        kinds, number_of, add_to_storages = self.storages.columns.kind, self.storages.number_of, self.storages.add
        add_form, add_storage, whole = into.form.append, into.storage.append, into.WHOLE

        def add(name: str, tensor: torch.Tensor) -> bool:
            try:
                if tensor._version:
                    return False
                leaf = leaves.get(id(tensor))
                if leaf is not None:
                    add_form(of_leaves[name, leaf, 0])
                    add_storage(whole)
                    return True
                if type(tensor) is not _Tensor and type(tensor) is not _Parameter:
                    return False
                memory = tensor.untyped_storage()  # raises for a sparse layout
                shared = shared_by[tensor.shape, tensor.dtype, tensor.device]
                _, _, smaller, forms = shared
                identity = memory._cdata
                storage = number_of.get(identity)
                if storage is None:
                    storage = add_to_storages(identity, memory.nbytes(), tensor, smaller)
            except (KeyError, RuntimeError, TypeError):  # nothing known yet; no storage; nested; sizes without a hash
                return False
            alike = name, kinds[storage], tensor._is_view()
            add_form(forms.get(alike) or shared.form(*alike))
            add_storage(storage)
            return True

        return add

    def _read_other(self, node: Node, name: str, raw: Any, add: _Add) -> bool:
        """A slot that is freed (`raw` is None then), a list, packed, or holds what is not ordinary. True when it is live."""
        if raw is None:
            add(SavedTensor(slots.shown(name), None, None, None, "freed"))
            return False
        if type(raw) is tuple:
            return self._read_list(name, raw, add)
        if raw.unpack_hook is not None:
            self._read_packed(name, raw, add)
            return False
        record = self._slot(name, raw.data, node, None)
        add(record)
        return record.state == "live"

    def _read_list(self, name: str, raw: Sequence[Any], add: _Add) -> bool:
        """The elements of a list-valued slot; an element that holds nothing is left out. True when all are live."""
        live = True
        for i, element in enumerate(raw):
            slot = f"{slots.shown(name)}[{i}]"
            if element.unpack_hook is not None:
                self._read_packed(slot, element, add)
                live = False
            elif (tensor := element.data) is not None:
                record = self._slot(slot, tensor, None, element)
                add(record)
                live = live and record.state == "live"
        return live

    def _read_freed(self, node: Node, empty: tuple[str, ...], add: _Add) -> tuple[tuple[str, ...], bool]:
        """Empty slots of a node that holds nothing: those that never held anything, and whether that is all of them."""
        freed = [name for name in empty if slots.is_freed(node, name)]
        for name in freed:
            add(SavedTensor(name, None, None, None, "freed"))
        return tuple([name for name in empty if name not in freed]), not freed

    def _read_packed(self, slot: str, raw: Any, add: _Add) -> None:
        """A slot that a hook packed, and with the first of a checkpoint's slots the inputs that it keeps to compute again."""
        content, hook = raw.data, raw.unpack_hook
        note, packing, tensor = slots.packing_note(content, hook), slots.packing(hook), slots.packed_tensor(content)
        if tensor is None:
            add(SavedTensor(slot, None, None, None, "packed", note=note, packing=packing))
        else:
            add(self._records.record(slot, tensor, "packed", version_of(tensor), note, self._leaf(tensor), packing))
        kept = slots.kept_by(hook)
        if kept is None or id(kept.frame) in self._checkpoints:
            return
        self._checkpoints[id(kept.frame)] = kept.frame
        note = "input of a checkpoint, kept to compute again"
        for i, tensor in enumerate(kept.tensors):
            slot = f"checkpoint[{i}]"
            add(self._records.record(slot, tensor, "live", version_of(tensor), note, self._leaf(tensor)))

    def _read_context(self, node: Node, add: _Add) -> None:
        """Tensors that a custom Function put on `ctx` itself, at most one list, tuple or dict deep."""
        for name, value in list(vars(node).items()):
            for slot, tensor in slots.tensors_on(name, value):
                add(self._records.record(f"ctx.{slot}", tensor, "live", version_of(tensor), "", self._leaf(tensor)))

    def _slot(self, slot: str, tensor: torch.Tensor, node: Node | None, raw: Any) -> SavedTensor:
        """An unhooked slot that holds `tensor`. Its state is asked of `node`, or of `raw` for an element of a list."""
        leaf = self._leaf(tensor)
        version = version_of(tensor)
        state: SavedState = "live"
        note = ""
        if version:
            state = slots.state(node, slot) if raw is None else slots.state_of_element(raw)
            if state == "unknown":
                note = "modified in place at some time; torch does not tell whether since it was saved"
        if leaf is None or state != "live":
            return self._records.record(slot, tensor, state, version, note, leaf)
        key = (slot, leaf, version or 0)
        known = self._of_leaves.get(key)
        if known is None:
            known = self._of_leaves[key] = self._records.record(slot, tensor, state, version, note, leaf)
        return known

    def _leaf(self, tensor: torch.Tensor) -> int | None:
        return self._leaves.get(id(tensor))


_FLAG_OF: dict[SavedState, NodeFlag] = {"freed": "freed", "modified": "modified", "packed": "packed"}


def _flags(saved: list[SavedTensor]) -> tuple[NodeFlag, ...]:
    return tuple(sorted({_FLAG_OF[slot.state] for slot in saved if slot.state in _FLAG_OF}))
