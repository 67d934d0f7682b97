"""Reads what a node saved for backward, without unpacking, recomputing or keeping
anything.

Only `_raw_saved_*` and its `.data` and `.unpack_hook` are read. A slot is unpacked in
two cases, both only where no hook can run because the slot has none: to tell an empty
slot from a freed one, and to ask torch whether a tensor with a version above 0 was
modified since it was saved. `saved_tensors` is never touched: a read may destroy what
it returns.

`SavedReader.read` runs over a million nodes: ordinary slots go through one function,
and what nodes of one type, or tensors of one shape, dtype and device share is worked
out once.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gradviz.graph import (
    NodeFlag,
    Packing,
    SavedState,
    SavedTensor,
    StorageKind,
    TensorInfo,
)
from gradviz.graph.amounts import tensor_bytes
from gradviz.graph.columns import NodeColumns
from gradviz.walker import private, slots
from gradviz.walker.private import Node
from gradviz.walker.tensors import Storages, base_of, is_plain, tensor_info, version_of


class Shared(NamedTuple):
    """What tensors of one shape, dtype, device and layout share."""

    info: TensorInfo
    nbytes: int | None
    # what `private.is_wrapped_number` compares with; None where none can be such a
    # number
    smaller: torch.Tensor | None
    # by slot, kind of storage, whether it is a view
    forms: dict[tuple[str, StorageKind, bool], SavedTensor]

    def form(
        self,
        slot: str,
        kind: StorageKind,
        view: bool,
    ) -> SavedTensor:
        """What the live, unmodified slots that hold such tensors share, all but the
        storage.
        """
        slot_form = SavedTensor(
            slot,
            self.info,
            None,
            kind,
            "live",
            self.nbytes,
            view,
            version=0,
        )
        self.forms[slot, kind, view] = slot_form

        return slot_form


_OF_DATA = frozenset(("target", "mask", "condition", "index"))
"""Slots of tensors that an op was given, whoever holds them; what is in others an op
may have made itself.
"""
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter


def saved_operand(node: Node, position: int) -> torch.Tensor | None:
    """What an op of two operands saved of one of them; None where it did not, or where
    a hook has it.
    """
    slot = "_raw_saved_self" if position == 0 else "_raw_saved_other"
    try:
        raw = getattr(node, slot, None)
    except RuntimeError:
        return None  # freed
    # before torch 2.10 a slot cannot be read without the hooks on it
    if not private.HAS_RAW_DATA or raw is None or type(raw) is tuple:
        return None
    if raw.unpack_hook is not None:
        return None
    return raw.data if isinstance(raw.data, torch.Tensor) else None


class SavedReader:
    """Reads the nodes of one walk into the columns of their records.

    `leaves` maps `id(tensor)` to the id of the leaf's node, `data` are identities of
    tensors that modules were called with; all those tensors must stay alive while this
    reads, as those of `storages` must.
    """

    def __init__(
        self,
        leaves: Mapping[int, int],
        storages: Storages,
        into: NodeColumns,
        data: Collection[int] = (),
    ) -> None:
        self._leaves, self._storages, self._into, self._data = (
            leaves,
            storages,
            into,
            data,
        )
        self._add = into.saved.add
        # by shape, dtype and device of ordinary tensors
        self._shared: dict[Any, Shared] = {}
        # frames whose inputs have been told, held so that no id comes twice
        self._checkpoints: dict[int, Any] = {}
        self._of_leaves: dict[tuple[str, int, int], SavedTensor] = {}
        # by identity, with the places of the slots
        self._given: dict[int, tuple[torch.Tensor, str, list[int]]] = {}

    def given(
        self,
    ) -> Iterator[tuple[torch.Tensor, str, tuple[int, ...]]]:
        """The tensors without gradient that ops were given and saved: each with its
        first slot and the ids of these ops.
        """
        first = self._into.saved.first
        for tensor, slot, places in self._given.values():
            yield (
                tensor,
                slots.shown(slot),
                tuple(
                    dict.fromkeys(bisect_right(first, place) - 1 for place in places)
                ),
            )

    def _is_data(self, tensor: torch.Tensor) -> bool:
        """Whether a module was called with this tensor, or with the one that it is a
        view of.
        """
        return bool(self._data) and (
            id(tensor) in self._data or id(base_of(tensor)) in self._data
        )

    def _note_given(self, slot: str, tensor: torch.Tensor) -> None:
        """The slot that is about to be added holds a tensor of the user's."""
        self._given.setdefault(
            id(tensor),
            (tensor, slot, []),
        )[2].append(len(self._into.saved.storage))

    def _note_if_given(
        self, slot: str, tensor: torch.Tensor, kind: StorageKind | None
    ) -> None:
        """Note a tensor without gradient that the user gave, and none that an op made
        for itself.
        """
        is_given = kind == "input" or slot in _OF_DATA or self._is_data(tensor)
        if is_given and not tensor.requires_grad:
            self._note_given(slot, tensor)

    def read(self, nodes: Sequence[Node]) -> None:
        """Everything that the nodes saved. Never raises for a freed, hooked or modified
        slot: that is its state.
        """
        into, attributes = self._into, slots.Attributes()
        plans = slots.plans(nodes)
        forms, begin, add_attributes = (
            into.saved.form,
            into.saved.first.append,
            into.attributes.append,
        )
        read_attributes, nothing_in, add_ordinary = (
            attributes.read,
            attributes.nothing_in,
            self._ordinary(),
        )

        for i, node in enumerate(nodes):
            tensors, plain, values, custom = plans[type(node)]
            first = len(forms)
            begin(first)
            empty: tuple[str, ...] = ()
            live = True  # whether all slots are
            for name, fetch in tensors:
                try:
                    # the raw slot, not the tensor: unpacking would run the user's hooks
                    raw = fetch(node)
                except RuntimeError:  # a list of tensors that backward has freed
                    raw = None
                if (
                    raw is not None
                    and type(raw) is not tuple
                    and raw.unpack_hook is None
                ):
                    tensor = raw.data
                    if tensor is None:
                        empty = (*empty, name)
                        continue
                    # nearly every slot ends here
                    if add_ordinary(name, tensor):
                        continue
                # freed, packed by a hook, in a list, modified, or of a subclass
                live = self._read_other(node, name, raw) and live
            if custom:
                self._read_context(node)
            # backward frees all slots of a node at once
            if empty and len(forms) == first:
                empty, live = self._read_freed(node, empty)
            if plain:
                add_attributes(read_attributes(node, plain, values, empty))
            else:
                add_attributes(nothing_in[empty])
            if not live:
                into.flags[i] = (*into.type[i].flags, *_flags(forms[first:]))

        begin(len(forms))
        self._add_numbers(attributes)

    def _add_numbers(self, attributes: slots.Attributes) -> None:
        """A number that the user's code wrote is an attribute of the node, by the name
        of its slot.
        """
        saved, of_nodes, values = (
            self._into.saved,
            self._into.attributes,
            self._storages.values,
        )
        for place, form in enumerate(saved.form) if values else ():
            if form.kind == "number":
                node, storage = (
                    bisect_right(saved.first, place) - 1,
                    saved.storage[place],
                )
                number = form.storage if storage == saved.WHOLE else storage
                if number in values:
                    of_nodes[node] = attributes.with_number(
                        of_nodes[node], form.slot, values[number]
                    )

    def _ordinary(self) -> Callable[[str, torch.Tensor], bool]:
        """Adds a slot with an ordinary tensor that nobody has modified, and returns
        False for any other, which it leaves.

        By far most slots are ordinary, so this is a function of local names alone.
        """
        leaves, of_leaves, shared_by, into = (
            self._leaves,
            self._of_leaves,
            self._shared,
            self._into.saved,
        )
        kinds, number_of, add_to_storages = (
            self._storages.columns.kind,
            self._storages.number_of,
            self._storages.add,
        )
        add_form, add_storage, no_parts = (
            into.form.append,
            into.storage.append,
            into.WHOLE,
        )
        note_given, of_data, is_data = (
            self._note_given,
            _OF_DATA,
            self._is_data if self._data else None,
        )

        def add(name: str, tensor: torch.Tensor) -> bool:
            try:
                # modified at some time: torch must say whether since it was saved
                if tensor._version:
                    return False
                leaf = leaves.get(id(tensor))
                if leaf is not None:
                    add_form(of_leaves[name, leaf, 0])
                    add_storage(no_parts)
                    return True
                if type(tensor) is not _Tensor and type(tensor) is not _Parameter:
                    return False
                # a storage is known by its identity, since tensors share it
                memory = tensor.untyped_storage()  # raises for a sparse layout
                shared = shared_by[tensor.shape, tensor.dtype, tensor.device]
                _, _, smaller, forms = shared
                identity = memory._cdata
                storage = number_of.get(identity)
                if storage is None:
                    storage = add_to_storages(
                        identity, memory.nbytes(), tensor, smaller
                    )
            except (KeyError, RuntimeError, TypeError):
                # nothing known yet; no storage; nested; sizes without a hash
                return False

            kind = kinds[storage]
            is_given = (
                kind == "input"
                or name in of_data
                or (is_data is not None and is_data(tensor))
            )
            if is_given and not tensor.requires_grad:
                note_given(name, tensor)

            alike = name, kind, tensor._is_view()
            add_form(forms.get(alike) or shared.form(*alike))
            add_storage(storage)
            return True

        return add

    def _read_other(
        self,
        node: Node,
        name: str,
        raw: Any,
    ) -> bool:
        """A slot that is freed (`raw` is None then), a list, packed, or holds what is
        not ordinary. True when it is live.
        """
        slot = slots.shown(name)
        if raw is None:
            self._add(SavedTensor(slot, None, None, None, "freed"))
            return False
        if type(raw) is not tuple:
            return self._read_one(name, raw, node)
        live = True
        for i, element in enumerate(raw):
            live = self._read_one(f"{slot}[{i}]", element) and live
        return live

    def _read_one(
        self,
        slot: str,
        raw: Any,
        node: Node | None = None,
    ) -> bool:
        """A slot of `node`, or without one an element of a list, which is left out when
        it holds nothing. True when it is live.
        """
        if raw.unpack_hook is not None:
            # unpacking would run the hook, so only what it packed is read
            self._read_packed(slot, raw)
            return False

        tensor = raw.data
        if tensor is None:
            return True

        leaf, version = self._leaves.get(id(tensor)), version_of(tensor)
        state, note = slots.state(raw, node, slot) if version else ("live", "")
        if leaf is not None and state == "live":
            key = (slot, leaf, version or 0)
        else:
            key = None

        record = self._of_leaves.get(key) if key is not None else None
        if record is None:
            record = self._record(slot, tensor, leaf, version, state, note)
            if key is not None:
                self._of_leaves[key] = record

        self._add(record)
        return state == "live"

    def _read_freed(
        self, node: Node, empty: tuple[str, ...]
    ) -> tuple[tuple[str, ...], bool]:
        """Empty slots of a node that holds nothing: those that never held anything, and
        whether that is all of them.
        """
        freed = [name for name in empty if slots.is_freed(node, name)]
        for name in freed:
            self._add(SavedTensor(name, None, None, None, "freed"))
        return tuple([name for name in empty if name not in freed]), not freed

    def _read_packed(self, slot: str, raw: Any) -> None:
        """A slot that a hook packed, and with the first of a checkpoint's slots the
        inputs that it keeps to compute again.
        """
        content, hook = raw.data, raw.unpack_hook
        note, packing, tensor = (
            slots.packing_note(content, hook),
            slots.packing(hook),
            slots.packed_tensor(content),
        )

        if tensor is None:
            self._add(
                SavedTensor(
                    slot, None, None, None, "packed", note=note, packing=packing
                )
            )
        else:
            self._add_held(slot, tensor, "packed", note, packing)

        frame = slots.checkpoint_behind(hook)
        if frame is not None and id(frame) not in self._checkpoints:
            # all slots of one checkpoint share its inputs, which count once
            self._checkpoints[id(frame)] = frame
            for i, tensor in enumerate(slots.kept_by(frame)):
                self._add_held(
                    f"checkpoint[{i}]",
                    tensor,
                    note="input of a checkpoint, kept to compute again",
                )

    def _read_context(self, node: Node) -> None:
        """Tensors that a custom Function put on `ctx` itself, at most one list, tuple
        or dict deep.
        """
        for name, value in list(vars(node).items()):
            for slot, tensor in slots.tensors_on(name, value):
                self._add_held(f"ctx.{slot}", tensor)

    def _add_held(
        self,
        slot: str,
        tensor: torch.Tensor,
        state: SavedState = "live",
        note: str = "",
        packing: Packing = "",
    ) -> None:
        """A slot that holds `tensor` in another way than autograd itself does: packed,
        in a checkpoint, on `ctx`.
        """
        leaf, version = self._leaves.get(id(tensor)), version_of(tensor)
        self._add(self._record(slot, tensor, leaf, version, state, note, packing))

    def _record(
        self,
        slot: str,
        tensor: torch.Tensor,
        leaf: int | None,
        version: int | None,
        state: SavedState,
        note: str,
        packing: Packing = "",
    ) -> SavedTensor:
        """One slot that holds `tensor`. One that is made of others has the storage of
        its values, and names all in the note.
        """
        is_ordinary = is_plain(tensor)
        info, nbytes, smaller, _ = self._shared_by(tensor, is_ordinary)
        number: int | None
        parts: tuple[int, ...] = ()

        if is_ordinary:
            number = self._storages.of_block(tensor, smaller)
        elif named := self._storages.numbers_of_parts(tensor):
            # the largest part comes last, and holds the values
            number = named[-1][1]
            parts = tuple([part for _, part in named]) if len(named) > 1 else ()
            names = ", ".join(f"{name} in storage {part}" for name, part in named)
            note = f"{note}; {names}" if note else names
        else:
            number = self._storages.number(tensor)

        if number is None and not note:
            if is_ordinary:
                noun = f"a tensor with layout {info.layout}"
            else:
                noun = f"this {type(tensor).__name__}"
            note = f"torch does not tell the memory of {noun}"

        kind = self._storages.columns.kind[number] if number is not None else None
        if leaf is None:
            self._note_if_given(slot, tensor, kind)

        fields = (
            slot,
            info,
            number,
            kind,
            state,
            nbytes,
            tensor._is_view(),
            leaf,
            version,
            note,
            packing,
            parts,
        )

        # the constructor of a named tuple takes longer, and a graph has millions of
        # slots
        return tuple.__new__(SavedTensor, fields)

    def _shared_by(self, tensor: torch.Tensor, is_ordinary: bool) -> Shared:
        """What tensors like this one share, kept where it is an ordinary one."""
        try:
            key = (tensor.shape, tensor.dtype, tensor.device) if is_ordinary else None
            shared = self._shared.get(key)
        except (RuntimeError, TypeError):  # nested, or with symbolic sizes
            key = shared = None

        if shared is None:
            info = tensor_info(tensor)
            may_be_number = is_ordinary and info.shape == () and info.device == "cpu"
            smaller = private.smaller(tensor.dtype) if may_be_number else None
            shared = Shared(
                info,
                tensor_bytes(info) if info.layout == "strided" else None,
                smaller,
                {},
            )
            if key is not None:
                self._shared[key] = shared

        return shared


_FLAG_OF: dict[SavedState, NodeFlag] = {
    "freed": "freed",
    "modified": "modified",
    "packed": "packed",
}


def _flags(saved: list[SavedTensor]) -> tuple[NodeFlag, ...]:
    return tuple(
        sorted({_FLAG_OF[slot.state] for slot in saved if slot.state in _FLAG_OF})
    )
