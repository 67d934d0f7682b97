"""Reads what a node saved for backward, without unpacking, recomputing or keeping
anything.

Only `_raw_saved_*` and its `.data` and `.unpack_hook` are read. A slot is unpacked in
two cases, both only where no hook can run because the slot has none: to tell an empty
slot from a freed one, and to ask torch whether a tensor with a version above 0 was
modified since it was saved. `saved_tensors` is never touched: a read may destroy what
it returns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
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
from gradviz.graph.origins import op_of
from gradviz.walker import private, slots
from gradviz.walker.private import Node
from gradviz.walker.tensors import (
    Storages,
    base_of,
    is_plain,
    parts_of,
    tensor_info,
    version_of,
)


class Shared(NamedTuple):
    """What tensors of one shape, dtype, device and layout share."""

    info: TensorInfo
    nbytes: int | None
    # what `private.is_wrapped_number` compares with; None where none can be such a
    # number
    smaller: torch.Tensor | None


class Input(NamedTuple):
    """A tensor without gradient that an op took from the user and saved: the id of the
    node, and the slot.
    """

    tensor: torch.Tensor
    slot: str
    node: int


_OF_DATA = frozenset(("target", "index"))
"""Slots of tensors that an op takes and never makes, whoever holds them. A `mask` or a
`condition` may be the op's own: `cross_entropy` makes one of the target.
"""
_FLAGS: dict[SavedState, NodeFlag] = {
    "freed": "freed",
    "modified": "modified",
    "packed": "packed",
}


@lru_cache(maxsize=4096)
def _is_argument(kind: str, slot: str) -> bool:
    """Whether a slot may hold what an op was given: `indices` of a `topk` is what it
    found, and what a compiled function keeps is its own.
    """
    if kind.startswith(private.COMPILED):
        return False
    op = op_of(kind)
    overloads = private.arguments_of(op) or private.arguments_of(f"_{op}")
    names = {name for arguments in overloads for name, _ in arguments}
    return not names or slot in names or slot.startswith(("ctx.", "saved_tensors"))


class SavedReader:
    """Reads the nodes of one walk: `saved`, `attributes` and `flags` of each, by id,
    and the `inputs` that they saved.

    `leaves` maps `id(tensor)` to the id of the leaf's node, `data` are identities of
    tensors that modules were called with; all those tensors must stay alive while this
    reads, as those of `storages` must. `given`: the slots of a node, by id, that the code
    gave data to.
    """

    def __init__(
        self,
        leaves: Mapping[int, int],
        storages: Storages,
        data: Collection[int],
        given: Mapping[int, Collection[str]],
    ) -> None:
        self.saved: list[tuple[SavedTensor, ...]] = []
        self.attributes: list[Mapping[str, Any]] = []
        self.flags: dict[int, tuple[NodeFlag, ...]] = {}
        self.inputs: list[Input] = []
        self._leaves, self._storages = leaves, storages
        self._data, self._given = data, given
        # by shape, dtype and device of ordinary tensors
        self._shared: dict[Any, Shared] = {}
        # frames whose inputs have been told, held so that no id comes twice
        self._checkpoints: dict[int, Any] = {}
        # of the node that is read
        self._slots: list[SavedTensor] = []
        self._kind = ""

    def read(self, nodes: Sequence[Node]) -> None:
        """Everything that the nodes saved. Never raises for a freed, hooked or modified
        slot: that is its state.
        """
        layouts, attributes = slots.layouts(nodes), slots.Attributes()
        for node in nodes:
            layout = layouts[type(node)]
            self._slots, self._kind = [], type(node).__name__
            empty = [
                name
                for name, fetch in layout.slots
                if not self._read(node, name, fetch)
            ]
            if layout.custom:
                self._read_context(node)

            # backward frees all slots of a node at once
            if empty and not self._slots:
                for name in [name for name in empty if slots.is_freed(node, name)]:
                    empty.remove(name)
                    self._freed(name)

            # a slot that holds nothing, and a number that the user's code wrote, are
            # attributes
            extra: dict[str, Any] = dict.fromkeys(empty)
            for slot in self._slots:
                if slot.kind == "number":
                    extra[slot.slot] = self._storages.values.get(slot.storage)
                if slot.state in _FLAGS:
                    self.flags[len(self.saved)] = self._flags()

            self.attributes.append(attributes.read(node, layout, extra))
            self.saved.append(tuple(self._slots))

    def _flags(self) -> tuple[NodeFlag, ...]:
        states = {slot.state for slot in self._slots}
        return tuple(sorted(_FLAGS[state] for state in states if state in _FLAGS))

    def _read(self, node: Node, name: str, fetch: slots.Fetch) -> bool:
        """One slot, or a list of them. False where it holds nothing."""
        try:
            # the raw slot, not the tensor: unpacking would run the user's hooks
            raw = fetch(node)
        except RuntimeError:  # a list of tensors that backward has freed
            self._freed(name)
            return True

        if type(raw) is not tuple:
            return self._read_one(name, raw, node)
        for i, element in enumerate(raw):
            self._read_one(f"{name}[{i}]", element)
        return True

    def _read_one(self, slot: str, raw: Any, node: Node | None = None) -> bool:
        """A slot of `node`, or without one an element of a list. False where it holds
        nothing.
        """
        if raw.unpack_hook is not None:
            # unpacking would run the hook, so only what it packed is read
            self._read_packed(slot, raw)
            return True
        tensor = raw.data
        if tensor is None:
            return False

        state: SavedState = "live"
        note = ""
        if version_of(tensor):
            # modified at some time: torch must say whether since it was saved
            state, note = slots.state(raw, node, slot)
        self._add(slot, tensor, state, note)
        return True

    def _freed(self, slot: str) -> None:
        self._slots.append(SavedTensor(slot, None, None, None, "freed"))

    def _read_packed(self, slot: str, raw: Any) -> None:
        """A slot that a hook packed, and with the first of a checkpoint's slots the
        inputs that it keeps to compute again.
        """
        content, hook = raw.data, raw.unpack_hook
        note, packing = slots.packing_note(content, hook), slots.packing(hook)
        tensor = slots.packed_tensor(content)
        if tensor is not None:
            self._add(slot, tensor, "packed", note, packing)
        else:
            self._slots.append(
                SavedTensor(
                    slot, None, None, None, "packed", note=note, packing=packing
                )
            )

        frame = slots.checkpoint_behind(hook)
        if frame is not None and id(frame) not in self._checkpoints:
            # all slots of one checkpoint share its inputs, which count once
            self._checkpoints[id(frame)] = frame
            note = "input of a checkpoint, kept to compute again"
            for i, tensor in enumerate(slots.kept_by(frame)):
                self._add(f"checkpoint[{i}]", tensor, note=note)

    def _read_context(self, node: Node) -> None:
        """Tensors that a custom Function put on `ctx` itself, at most one list, tuple
        or dict deep.
        """
        for name, value in list(vars(node).items()):
            for slot, tensor in slots.tensors_on(name, value):
                self._add(f"ctx.{slot}", tensor)

    def _add(
        self,
        slot: str,
        tensor: torch.Tensor,
        state: SavedState = "live",
        note: str = "",
        packing: Packing = "",
    ) -> None:
        """One slot that holds `tensor`, in autograd's own way or in another: packed, in
        a checkpoint, on `ctx`.
        """
        is_ordinary = is_plain(tensor)
        info, nbytes, smaller = self._shared_by(tensor, is_ordinary)
        parts: tuple[int, ...] = ()
        if is_ordinary:
            number = self._storages.of_block(tensor, smaller)
        else:
            number = self._storages.number(tensor)
            named = [
                (name, self._storages.number(part)) for name, part in parts_of(tensor)
            ]
            words = [f"{name} in storage {part}" for name, part in named]
            note = "; ".join(filter(None, (note, ", ".join(words))))
            if len(named) > 1:
                parts = tuple([part for _, part in named if part is not None])

        if number is None and not note:
            noun = f"this {type(tensor).__name__}"
            if is_ordinary:
                noun = f"a tensor with layout {info.layout}"
            note = f"torch does not tell the memory of {noun}"

        kind = self._storages.records[number].kind if number is not None else None
        leaf = self._leaves.get(id(tensor))
        if leaf is None and not tensor.requires_grad:
            self._note_input(slot, tensor, kind)

        fields = (
            *(slot, info, number, kind, state, nbytes, tensor._is_view()),
            *(leaf, version_of(tensor), note, packing, parts),
        )
        # the constructor of a named tuple takes longer, and a graph has millions of
        # slots
        self._slots.append(tuple.__new__(SavedTensor, fields))

    def _note_input(
        self, slot: str, tensor: torch.Tensor, kind: StorageKind | None
    ) -> None:
        """Note a tensor without gradient that the user gave, and none that an op made
        for itself.
        """
        name = slot.partition("[")[0]
        if not _is_argument(self._kind, name):
            return
        node = len(self.saved)
        taken = kind == "input" or slot in _OF_DATA or id(tensor) in self._data
        taken = taken or id(base_of(tensor)) in self._data
        if taken or name in self._given.get(node, ()):
            self.inputs.append(Input(tensor, slot, node))

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
            shared = Shared(
                info,
                tensor_bytes(info) if info.layout == "strided" else None,
                private.smaller(tensor.dtype) if may_be_number else None,
            )
            if key is not None:
                self._shared[key] = shared

        return shared
