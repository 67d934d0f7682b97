"""What saved-tensor hooks packed, and what a checkpoint keeps behind them.

No hook runs: only its name and its closure are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

import torch

from gradviz.graph import Packing
from gradviz.variables.objects import is_a

_FRAME = "_CheckpointFrame"
_MODULE = "torch.utils.checkpoint"
_OFFLOAD_MODULE = "torch.autograd.graph"


def note(packed: Any, hook: Any) -> str:
    """Which hook unpacks a slot, and from what, in words."""
    name = f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook).__qualname__)}".lstrip(".")
    kind = f"{type(packed).__module__}.{type(packed).__qualname__}".removeprefix("builtins.")
    return f"unpacked by {name} from a {kind}"


def tensor_in(packed: Any) -> torch.Tensor | None:
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
    for value in _cells(function):
        yield value
        if type(value) is FunctionType and value.__module__ == _MODULE:
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
        raw = type(one) is torch._C._autograd.SavedTensor
        if raw and getattr(one, "unpack_hook", None) is not None:
            continue
        tensor = getattr(one, "data", None) if raw else one
        if is_a(tensor, torch.Tensor):
            yield tensor
