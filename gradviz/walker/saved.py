"""Reads what a node saved for backward, without unpacking, recomputing or keeping anything.

Only `_raw_saved_*` and its `.data` and `.unpack_hook` are read. A slot is unpacked in two cases, both only where no hook can
run because the slot has none: to tell an empty slot from a freed one, and to ask torch whether a tensor with a version
above 0 was modified since it was saved. `saved_tensors` is never touched: a read may destroy what it returns.

`SavedReader.read` runs over a million nodes, so it is written flat, and what nodes of one type share is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from gradviz.graph import (
    NO_ATTRIBUTES,
    NodeFlag,
    Packing,
    SavedState,
    SavedTensor,
    StorageKind,
    TensorInfo,
)
from gradviz.graph.columns import NodeColumns, StorageColumns
from gradviz.walker import private
from gradviz.walker.private import Node
from gradviz.walker.tensors import (
    element_bytes,
    is_plain,
    parts_of,
    storage_of,
    tensor_info,
    version_of,
)

_RAW, _SAVED = "_raw_saved_", "_saved_"
_SIGNED_FROM = 2**63
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_Fetch = Callable[[Node], tuple[Any, ...]]
_Add = Callable[[SavedTensor], None]


class _Plan(NamedTuple):
    """How to read the nodes of one type."""

    slots: tuple[tuple[str, Callable[[Node], Any]], ...]  # each tensor slot, and what fetches it
    plain: tuple[str, ...]  # names of the attributes that are no tensors
    values: _Fetch | None  # fetches all of those at once
    custom: bool


class _Facts(NamedTuple):
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


class SavedReader:
    """Reads the nodes of one walk. Storages are numbered in the order they are met.

    `leaves` maps `id(tensor)` to the id of the leaf's node, `owners` a storage's identity to its kind; all those tensors must
    stay alive while this reads. What `owners` does not know is an activation.
    """

    def __init__(self, leaves: Mapping[int, int], owners: Mapping[int, str]) -> None:
        self._leaves = leaves
        self._owners = owners
        self.storages = StorageColumns()
        self._storage_ids: dict[int, int] = {}  # by identity
        self._plans: dict[type, _Plan] = {}
        self._facts: dict[Any, _Facts] = {}
        self._attributes: dict[Any, Mapping[str, Any]] = {}
        self._checkpoints: dict[int, Any] = {}  # frames whose inputs have been told, held so that no id comes twice
        self._of_leaves: dict[tuple[str, int, int], SavedTensor] = {}

    def storage_id(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage when it was met before."""
        found = storage_of(tensor)
        return self._storage_ids.get(found[0]) if found is not None else None

    def storage(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage, a new one when it is met first; None where the tensor has none."""
        parts = parts_of(tensor)
        if parts:
            return self.storage(parts[-1][1])
        found = storage_of(tensor)
        if found is None:
            return None
        known = self._storage_ids.get(found[0])
        return self._new_storage(*found, tensor, None) if known is None else known

    def _new_storage(self, identity: int, nbytes: int, tensor: torch.Tensor, smaller: torch.Tensor | None) -> int:
        """The number of a storage met for the first time, in `tensor`. `smaller` is given where that may be a Python number."""
        kind: StorageKind = self._owners.get(identity)  # type: ignore[assignment]
        if kind is None:
            kind = "number" if smaller is not None and private.is_wrapped_number(tensor, smaller) else "activation"
        made = self._storage_ids[identity] = len(self.storages)
        self.storages.nbytes.append(nbytes if type(nbytes) is int else -1)  # asking a symbolic size would fix it
        self.storages.kind.append(kind)
        return made

    def read(self, nodes: Sequence[Node], into: NodeColumns) -> None:
        """Everything that the nodes saved. Never raises for a freed, hooked or modified slot: that is its state."""
        plans, kinds, owners, is_number = self._plans, self.storages.kind, self._owners, private.is_wrapped_number
        add_kind, add_bytes = kinds.append, self.storages.nbytes.append
        leaves, of_leaves, ids, facts_of = self._leaves, self._of_leaves, self._storage_ids, self._facts
        nothing_in: dict[tuple[str, ...], Mapping[str, Any]] = {}  # attributes by the slots that hold nothing
        begin, forms, add = into.saved.first.append, into.saved.form, into.saved.add
        add_form, add_storage, add_attributes = forms.append, into.saved.storage.append, into.attributes.append
        for i, node in enumerate(nodes):
            plan = plans.get(type(node))
            if plan is None:
                plan = plans[type(node)] = _plan(node)
            slots, plain, values, custom = plan
            first = len(forms)
            begin(first)
            empty: tuple[str, ...] = ()
            calm = True  # whether all slots are live
            for name, fetch in slots:
                try:
                    raw = fetch(node)
                except RuntimeError:  # a list of tensors that backward has freed
                    add(SavedTensor(_shown(name), None, None, None, "freed"))
                    calm = False
                    continue
                if type(raw) is tuple:
                    calm = self._read_list(name, raw, add) and calm
                    continue
                tensor = raw.data
                if raw.unpack_hook is not None:
                    add(self._packed(name, tensor, raw.unpack_hook))
                    for one in self._kept_to_compute_again(raw.unpack_hook):
                        add(one)
                    calm = False
                    continue
                if tensor is None:
                    empty = (*empty, name)
                    continue
                # The usual case, written out: an ordinary tensor that nobody has modified. All else goes to `_slot`.
                leaf = leaves.get(id(tensor))
                kind = type(tensor)
                try:
                    if leaf is None and (kind is _Tensor or kind is _Parameter) and not tensor._version:
                        memory = tensor.untyped_storage()  # raises for a sparse layout
                        identity = memory._cdata
                        _, _, smaller, of_facts = facts_of[tensor.shape, tensor.dtype, tensor.device]
                        storage = ids.get(identity)
                        if storage is None:
                            nbytes = memory.nbytes()
                            if identity in owners or type(nbytes) is not int:
                                storage = self._new_storage(identity, nbytes, tensor, smaller)
                            else:  # `_new_storage`, written out
                                number = smaller is not None and is_number(tensor, smaller)
                                storage = ids[identity] = len(kinds)
                                add_kind("number" if number else "activation")
                                add_bytes(nbytes)
                        alike = name, kinds[storage], tensor._is_view()
                        form = of_facts.get(alike)
                        if form is None:
                            form = facts_of[tensor.shape, tensor.dtype, tensor.device].form(*alike)
                        add_form(form)
                        add_storage(storage)
                        continue
                    known = of_leaves.get((name, leaf, tensor._version)) if leaf is not None else None
                except (
                    KeyError,
                    RuntimeError,
                    TypeError,
                ):  # facts not known yet; no storage; nested; sizes without a hash
                    known = None
                if known is None or (known.version and _state(node, name) != "live"):
                    known = self._slot(name, tensor, node, None)
                    calm = calm and known.state == "live"
                add(known)
            if custom:
                self._read_context(node, add)
            if empty and len(forms) == first:  # backward frees all slots of a node at once
                freed = [name for name in empty if _is_freed(node, name)]
                for name in freed:
                    add(SavedTensor(name, None, None, None, "freed"))
                    calm = False
                empty = tuple([name for name in empty if name not in freed])
            if plain:
                add_attributes(self._read_attributes(node, plain, values, empty))
            elif empty:
                add_attributes(nothing_in.get(empty) or nothing_in.setdefault(empty, _attributes((), (), empty)))
            else:
                add_attributes(NO_ATTRIBUTES)
            if not calm:
                into.flags[i] = (*into.type[i].flags, *_flags(forms[first:]))
        begin(len(forms))

    def _slot(self, slot: str, tensor: torch.Tensor, node: Node | None, raw: Any) -> SavedTensor:
        """An unhooked slot that holds `tensor`. Its state is asked of `node`, or of `raw` for an element of a list."""
        leaf = self._leaves.get(id(tensor))
        version = version_of(tensor)
        state: SavedState = "live"
        note = ""
        if version:
            state = _state(node, slot) if raw is None else _state_of_element(raw)
            if state == "unknown":
                note = "modified in place at some time; torch does not tell whether since it was saved"
        if leaf is None or state != "live":
            return self.facts(slot, tensor, state, version, note, leaf)
        key = (slot, leaf, version or 0)
        known = self._of_leaves.get(key)
        if known is None:
            known = self._of_leaves[key] = self.facts(slot, tensor, state, version, note, leaf)
        return known

    def facts(
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
        info, nbytes, smaller, _ = self._facts_of(tensor)
        number: int | None = None
        kind: StorageKind | None = None
        parts: tuple[int, ...] = ()
        if is_plain(tensor):
            try:
                memory = tensor.untyped_storage()
                identity = memory._cdata
                number = self._storage_ids.get(identity)
                if number is None:
                    number = self._new_storage(identity, memory.nbytes(), tensor, smaller)
                kind = self.storages.kind[number]
            except (RuntimeError, NotImplementedError):
                note = note or f"torch does not tell the memory of a tensor with layout {info.layout}"
        else:
            number, kind, note, parts = self._odd(tensor, note)
        fields = (slot, info, number, kind, state, nbytes, tensor._is_view(), leaf, version, note, packing, parts)
        return tuple.__new__(SavedTensor, fields)

    def _facts_of(self, tensor: torch.Tensor) -> _Facts:
        if not is_plain(tensor):
            return _facts(tensor)
        try:
            key = (tensor.shape, tensor.dtype, tensor.device)
            known = self._facts.get(key)
        except (RuntimeError, TypeError):  # nested, or with symbolic sizes
            return _facts(tensor)
        if known is None:
            known = self._facts[key] = _facts(tensor)
        return known

    def _odd(self, tensor: torch.Tensor, note: str) -> tuple[int | None, StorageKind | None, str, tuple[int, ...]]:
        """A tensor that is made of others: numbers all their storages, and gives the one that holds the values first."""
        parts = parts_of(tensor)
        storages = [(name, self.storage(part)) for name, part in parts]
        known = [(name, storage) for name, storage in storages if storage is not None]
        if not known:
            found = self.storage(tensor) if not parts else None
            if found is not None:
                return found, self.storages.kind[found], note, ()
            return None, None, note or f"torch does not tell the memory of this {type(tensor).__name__}", ()
        told = ", ".join(f"{name} in storage {storage}" for name, storage in known)
        last = known[-1][1]
        numbers = tuple([storage for _, storage in known]) if len(known) > 1 else ()
        return last, self.storages.kind[last], f"{note}; {told}" if note else told, numbers

    def _read_list(self, name: str, raw: Any, add: _Add) -> bool:
        """The elements of a list-valued slot; an element that holds nothing is left out. True when all are live."""
        shown, calm = _shown(name), True
        for i, element in enumerate(raw):
            tensor, hook = element.data, element.unpack_hook
            found: list[SavedTensor] = []
            if hook is not None:
                found = [self._packed(f"{shown}[{i}]", tensor, hook), *self._kept_to_compute_again(hook)]
            elif tensor is not None:
                found = [self._slot(f"{shown}[{i}]", tensor, None, element)]
            for one in found:
                add(one)
                calm = calm and one.state == "live"
        return calm

    def _packed(self, slot: str, packed: Any, hook: Any) -> SavedTensor:
        name = f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook).__qualname__)}".lstrip(".")
        kind = f"{type(packed).__module__}.{type(packed).__qualname__}".removeprefix("builtins.")
        note = f"unpacked by {name} from a {kind}"
        inside = [
            one for one in (packed if type(packed) in (tuple, list) else (packed,)) if isinstance(one, torch.Tensor)
        ]
        if len(inside) == 1:  # as save_on_cpu does: (device, tensor)
            tensor = inside[0]
            leaf = self._leaves.get(id(tensor))
            return self.facts(slot, tensor, "packed", version_of(tensor), note, leaf, _packing(hook))
        return SavedTensor(slot, None, None, None, "packed", note=note, packing=_packing(hook))

    def _kept_to_compute_again(self, hook: Any) -> list[SavedTensor]:
        """Inputs that a checkpoint keeps, told once, with the first of its slots that is met."""
        kept = kept_by(hook)
        if kept is None or id(kept.frame) in self._checkpoints:
            return []
        self._checkpoints[id(kept.frame)] = kept.frame
        note = "input of a checkpoint, kept to compute again"
        return [
            self.facts(f"checkpoint[{i}]", one, "live", version_of(one), note, self._leaves.get(id(one)))
            for i, one in enumerate(kept.tensors)
        ]

    def _read_context(self, node: Node, add: _Add) -> None:
        """Tensors that a custom Function put on `ctx` itself, at most one list, tuple or dict deep."""
        for name, value in list(vars(node).items()):
            for slot, tensor in tensors_on(name, value):
                leaf = self._leaves.get(id(tensor))
                add(self.facts(f"ctx.{slot}", tensor, "live", version_of(tensor), "", leaf))

    def _read_attributes(
        self, node: Node, plain: tuple[str, ...], fetch: _Fetch | None, empty: Sequence[str]
    ) -> Mapping[str, Any]:
        """Plain attributes, and None for slots that hold nothing. Nodes with equal attributes share one mapping."""
        values: tuple[Any, ...] = ()
        try:
            if fetch is not None:
                values = fetch(node)
            key = (plain, values, tuple(map(type, values)), *empty)  # types, because 1 == 1.0 == True
            known = self._attributes.get(key)
        except RuntimeError:  # one cannot be read: ask one by one
            return _attributes(plain, tuple([_plain(node, name) for name in plain]), empty)
        except TypeError:  # a list or a symbolic size, which have no hash
            return _attributes(plain, values, empty)
        if known is None:
            known = self._attributes[key] = _attributes(plain, values, empty)
        return known


def _plan(node: Node) -> _Plan:
    """How to read a node's type. `dir` is slow, and the same for all nodes of the type."""
    members = dir(node)
    custom = isinstance(node, private.BackwardCFunction)
    tensors = ["tensors"] if custom else [name.removeprefix(_RAW) for name in members if name.startswith(_RAW)]
    saved = [name.removeprefix(_SAVED) for name in members if name.startswith(_SAVED)]
    plain = tuple([name for name in saved if name not in tensors])
    slots = tuple([(name, attrgetter(_RAW + name)) for name in tensors]) if private.HAS_RAW_DATA else ()
    return _Plan(slots, plain, _fetch_all(plain), custom)


def _fetch_all(plain: tuple[str, ...]) -> _Fetch | None:
    if not plain:
        return None
    fetch = attrgetter(*[_SAVED + name for name in plain])
    return fetch if len(plain) > 1 else lambda node: (fetch(node),)


def _facts(tensor: torch.Tensor) -> _Facts:
    info = tensor_info(tensor)
    may_be_number = info.shape == () and info.device == "cpu"
    smaller = private.smaller(tensor.dtype) if may_be_number else None
    return _Facts(info, element_bytes(info, tensor.dtype.itemsize), smaller, {})


def _shown(name: str) -> str:
    return "saved_tensors" if name == "tensors" else name


def _is_freed(node: Node, slot: str) -> bool:
    """Whether an empty slot without a hook is empty because backward freed it. No hook can run: there is none."""
    try:
        getattr(node, _SAVED + slot)
    except RuntimeError:
        return True
    return False


def _state(node: Node | None, slot: str) -> SavedState:
    """Whether torch says that an unhooked slot was modified since it was saved."""
    try:
        getattr(node, _SAVED + slot)
    except RuntimeError as error:
        return "modified" if "inplace" in str(error) else "unknown"
    return "live"


def _state_of_element(raw: Any) -> SavedState:
    """The same for one element of a list. Torch refuses to answer for an output of the node itself: unknown."""
    try:
        raw.unpack()
    except (RuntimeError, AttributeError) as error:
        return "modified" if "inplace operation" in str(error) else "unknown"
    return "live"


def tensors_on(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an attribute of `ctx`, at most one list, tuple or dict deep, with the names of their slots."""
    items: Any = ((name, value),)
    if isinstance(value, (list, tuple)):
        items = ((f"{name}[{i}]", item) for i, item in enumerate(value))
    elif type(value) is dict:
        items = ((f"{name}[{i}]", item) for i, item in enumerate(value.values()))
    return ((slot, item) for slot, item in items if isinstance(item, torch.Tensor))


def _attributes(plain: tuple[str, ...], values: tuple[Any, ...], empty: Sequence[str]) -> Mapping[str, Any]:
    found = dict(zip(plain, map(_decoded, values))) | dict.fromkeys(empty)
    return {name: found[name] for name in sorted(found)}


def _plain(node: Node, name: str) -> Any:
    try:
        return getattr(node, _SAVED + name)
    except RuntimeError as error:
        return f"unreadable: {str(error).splitlines()[0]}"


def _decoded(value: Any) -> Any:
    """A non-tensor attribute as plain data. An int64 that torch hands out as unsigned is made negative again."""
    kind = type(value)
    if kind is int:
        return value - 2**64 if value >= _SIGNED_FROM else value
    if value is None or kind in (bool, float, str):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_decoded(item) for item in value)
    return str(value)


_FLAG_OF: dict[SavedState, NodeFlag] = {"freed": "freed", "modified": "modified", "packed": "packed"}


def _flags(saved: list[SavedTensor]) -> tuple[NodeFlag, ...]:
    return tuple(sorted({_FLAG_OF[one.state] for one in saved if one.state in _FLAG_OF}))


def _packing(hook: Any) -> Packing:
    """Which of torch's own hooks this is, by where it is defined."""
    module = getattr(hook, "__module__", None)
    if module == _MODULE:
        return "recompute"
    name = getattr(hook, "__qualname__", "")
    return "offload" if module == _OFFLOAD_MODULE and name.startswith("save_on_cpu.") else "hook"


# What a non-reentrant checkpoint keeps so that it can compute again: the inputs of the wrapped function. They lie in
# no slot of any node, but in the checkpoint's own frame, which its unpack hook knows. The frame is only looked at: no
# hook runs and nothing is computed. Where torch changes the names used here, nothing is found.

_FRAME = "_CheckpointFrame"
_MODULE = "torch.utils.checkpoint"
_OFFLOAD_MODULE = "torch.autograd.graph"


class Kept(NamedTuple):
    """The frame, which all slots of one checkpoint share, and its tensors."""

    frame: Any
    tensors: tuple[torch.Tensor, ...]


def kept_by(hook: Any) -> Kept | None:
    """What the checkpoint behind an unpack hook keeps; None for a hook of another kind."""
    if getattr(hook, "__module__", None) != _MODULE:
        return None
    frame = next((value for value in _captured(hook) if type(value).__name__ == _FRAME), None)
    return Kept(frame, tuple(_tensors(frame))) if frame is not None else None


def _captured(function: Any) -> Iterator[Any]:
    """Values in the closure of a function, and in those of the functions there."""
    for value in _cells(function):
        yield value
        if getattr(value, "__module__", None) == _MODULE:
            yield from _cells(value)


def _cells(function: Any) -> Iterator[Any]:
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue


def _tensors(frame: Any) -> Iterator[torch.Tensor]:
    """The saved inputs: in the frame itself, or in earlier versions of torch as what a helper node saved."""
    found: Any = getattr(frame, "saved_args", None)
    if found is None:
        try:
            found = getattr(getattr(frame, "input_saver", None), "_raw_saved_tensors", ())
        except RuntimeError:  # freed
            found = ()
    for one in found:
        if not isinstance(one, torch.Tensor):
            if getattr(one, "unpack_hook", None) is not None:
                continue
            one = getattr(one, "data", None)
        if isinstance(one, torch.Tensor):
            yield one
