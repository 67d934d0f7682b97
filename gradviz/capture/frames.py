"""The variables that the user's code sees at one moment: those of its frames on the stack.

Leaves nothing behind in the frames and keeps none of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import CodeType, FrameType

from gradviz.capture.find import Namespace

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def variables_at(frame: FrameType | None, main: Namespace, outermost: CodeType) -> list[Namespace]:
    """Local variables of the user's frames from the backward call outwards, then their modules' globals, `main` last.

    Frames of torch and gradviz are left out, and so is everything from the frame of `outermost` on.
    """
    from gradviz.capture.naming import namespaces

    local: list[Namespace] = []
    outer: dict[int, Namespace] = {}
    while frame is not None and frame.f_code is not outermost:
        if not is_library(frame.f_code.co_filename):
            inner, *rest = namespaces(frame)
            if frame.f_globals is not main:
                outer.setdefault(id(frame.f_globals), rest[0] if rest else inner)
            if rest:
                local.append(inner)
        frame = frame.f_back
    return [*local, *outer.values(), main]


def is_library(file: str) -> bool:
    """Whether a file is torch's or gradviz's, or part of Python's import system. Asked only when torch is there."""
    import torch

    return file.startswith((os.path.dirname(torch.__file__) + os.sep, _PACKAGE, "<frozen "))


def name_of(value: object, variables: Sequence[Namespace]) -> str:
    """The variable that holds this very value, "" when none does."""
    named = (name for space in variables for name, item in space.items() if item is value and not name.startswith("_"))
    return next(named, "")
