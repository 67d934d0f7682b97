"""What a non-reentrant checkpoint keeps so that it can compute again: the inputs of the wrapped function.

They lie in no slot of any node, but in the checkpoint's own frame, which its unpack hook knows. The frame is only looked
at: no hook runs and nothing is computed. Where torch changes the names used here, nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

_FRAME = "_CheckpointFrame"
_MODULE = "torch.utils.checkpoint"


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
