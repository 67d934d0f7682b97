"""The slots of live nodes: how to fetch those of a type of node, in which state each is, and what a hook packed into it.

No hook runs: only its name and its closure are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from types import FunctionType
from typing import Any, NamedTuple

import torch

from gradviz.graph import Packing, SavedState
from gradviz.variables.objects import is_a
from gradviz.walker import private
from gradviz.walker.private import Node

RAW, SAVED = "_raw_saved_", "_saved_"
FetchAll = Callable[[Node], tuple[Any, ...]]


class Plan(NamedTuple):
    """How to read the nodes of one type."""

    slots: tuple[tuple[str, Callable[[Node], Any]], ...]  # each tensor slot, and what fetches it
    plain: tuple[str, ...]  # names of the attributes that are no tensors
    values: FetchAll | None  # fetches all of those at once
    custom: bool


def plan(node: Node) -> Plan:
    """How to read a node's type. `dir` is slow, and the same for all nodes of the type."""
    members = dir(node)
    custom = isinstance(node, private.BackwardCFunction)
    tensors = ["tensors"] if custom else [name.removeprefix(RAW) for name in members if name.startswith(RAW)]
    saved = [name.removeprefix(SAVED) for name in members if name.startswith(SAVED)]
    plain = tuple([name for name in saved if name not in tensors])
    slots = tuple([(name, attrgetter(RAW + name)) for name in tensors]) if private.HAS_RAW_DATA else ()
    return Plan(slots, plain, _fetch_all(plain), custom)


def _fetch_all(plain: tuple[str, ...]) -> FetchAll | None:
    if not plain:
        return None
    fetch = attrgetter(*[SAVED + name for name in plain])
    return fetch if len(plain) > 1 else lambda node: (fetch(node),)


def shown(name: str) -> str:
    """A slot's name for a reader."""
    return "saved_tensors" if name == "tensors" else name


def is_freed(node: Node, slot: str) -> bool:
    """Whether an empty slot without a hook is empty because backward freed it. No hook can run: there is none."""
    try:
        getattr(node, SAVED + slot)
    except RuntimeError:
        return True
    return False


def state(node: Node | None, slot: str) -> SavedState:
    """Whether torch says that an unhooked slot was modified since it was saved."""
    try:
        getattr(node, SAVED + slot)
    except RuntimeError as error:
        return "modified" if "inplace" in str(error) else "unknown"
    return "live"


def state_of_element(raw: Any) -> SavedState:
    """The same for one element of a list. Torch refuses to answer for an output of the node itself: unknown."""
    try:
        raw.unpack()
    except (RuntimeError, AttributeError) as error:
        return "modified" if "inplace operation" in str(error) else "unknown"
    return "live"


def tensors_on(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an attribute of `ctx`, at most one list, tuple or dict deep, with the names of their slots."""
    items: Any = ((name, value),)
    if is_a(value, list) or is_a(value, tuple):
        items = ((f"{name}[{i}]", item) for i, item in enumerate(value))
    elif type(value) is dict:
        items = ((f"{name}[{i}]", item) for i, item in enumerate(value.values()))
    return ((slot, item) for slot, item in items if is_a(item, torch.Tensor))


# -- what hooks packed -------------------------------------------------------------------------------------------------

_FRAME = "_CheckpointFrame"
_MODULE = "torch.utils.checkpoint"
_OFFLOAD_MODULE = "torch.autograd.graph"


def packing_note(packed: Any, hook: Any) -> str:
    """Which hook unpacks a slot, and from what, in words."""
    name = f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook).__qualname__)}".lstrip(".")
    kind = f"{type(packed).__module__}.{type(packed).__qualname__}".removeprefix("builtins.")
    return f"unpacked by {name} from a {kind}"


def packed_tensor(packed: Any) -> torch.Tensor | None:
    """The only tensor among what was packed, as `save_on_cpu` has it: (device, tensor). None where there is not just one."""
    items = packed if type(packed) in (tuple, list) else (packed,)
    tensors = [item for item in items if is_a(item, torch.Tensor)]
    return tensors[0] if len(tensors) == 1 else None


def packing(hook: Any) -> Packing:
    """Which of torch's own hooks this is, by where it is defined."""
    module = getattr(hook, "__module__", None)
    if module == _MODULE:
        return "recompute"
    name = getattr(hook, "__qualname__", "")
    return "offload" if module == _OFFLOAD_MODULE and name.startswith("save_on_cpu.") else "hook"


# What a non-reentrant checkpoint keeps so that it can compute again: the inputs of the wrapped function. They lie in
# no slot of any node, but in the checkpoint's own frame, which its unpack hook knows. The frame is only looked at: no
# hook runs and nothing is computed. Where torch changes the names used here, nothing is found.


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
    for value in cells(function):
        yield value
        if type(value) is FunctionType and value.__module__ == _MODULE:
            yield from cells(value)


def cells(function: Any) -> Iterator[Any]:
    """What a function closes over, as far as it is filled."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue


def _tensors(frame: Any) -> Iterator[torch.Tensor]:
    """The saved inputs: in the frame itself, or in earlier versions of torch as what a helper node saved."""
    inputs: Any = getattr(frame, "saved_args", None)
    if inputs is None:
        try:
            inputs = getattr(getattr(frame, "input_saver", None), "_raw_saved_tensors", ())
        except RuntimeError:  # freed
            inputs = ()
    for saved in inputs:
        raw = type(saved) is torch._C._autograd.SavedTensor
        if raw and getattr(saved, "unpack_hook", None) is not None:
            continue
        tensor = getattr(saved, "data", None) if raw else saved
        if is_a(tensor, torch.Tensor):
            yield tensor
