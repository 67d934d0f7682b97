"""What a call of backward is called: what the user wrote, and where."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Sequence
from types import CodeType, FrameType
from typing import Any

from gradviz.capture.engine import EngineCall
from gradviz.capture.frames import is_library
from gradviz.capture.packages import package_of
from gradviz.capture.variables import Namespace, name_of

_NAMED = 3  # outputs of one call that are named
_CALLED_ON = re.compile(r"(?<![\w.)\]])([A-Za-z_][\w.]*(?:\[\w+\])?)\.backward\(")  # `out.loss`, `losses[0]`; no call


def call_words(call: EngineCall, variables: Sequence[Namespace], outermost: CodeType) -> str:
    """The call as the user writes it: `out.loss.backward()`, `autograd.grad(y)`, or `backward()` of what has no name."""
    names = ", ".join(_names(call.outputs, variables))
    if not call.accumulates:
        return f"autograd.grad({names})"
    if _is_method(call.frame):
        names = names or _called_on(_calling(call.frame, outermost))
        return f"{names}.backward()" if names else "backward()"
    return f"autograd.backward({names})"


def call_place(frame: FrameType, outermost: CodeType) -> str:
    """`file.py:12`, where the script's own code called; the nearest other code where none of the script's is on the stack."""
    nearest = _calling(frame, outermost)
    return f"{os.path.basename(nearest.f_code.co_filename)}:{nearest.f_lineno}" if nearest is not None else ""


def _calling(frame: FrameType, outermost: CodeType) -> FrameType | None:
    nearest = None
    at: FrameType | None = frame
    while at is not None and at.f_code is not outermost:
        file = at.f_code.co_filename
        if not is_library(file):
            nearest = nearest or at
            if not package_of(file):
                return at
        at = at.f_back
    return nearest


def _called_on(frame: FrameType | None) -> str:
    """What the line says `backward` is called on, if it is said once and without a call."""
    found = _CALLED_ON.findall(linecache.getline(frame.f_code.co_filename, frame.f_lineno)) if frame is not None else []
    return found[0] if len(found) == 1 else ""


def _names(outputs: Sequence[Any], variables: Sequence[Namespace]) -> list[str]:
    found = [name_of(output, variables) for output in outputs[:_NAMED]]
    if not all(found):
        return []
    return [*found, "..."] if len(outputs) > _NAMED else found


def _is_method(frame: FrameType) -> bool:
    """Whether `tensor.backward()` is what called `torch.autograd.backward`."""
    caller = frame.f_back
    return caller is not None and caller.f_globals.get("__name__") == "torch._tensor"
