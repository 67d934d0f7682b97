"""The variables that the user's code sees at one moment: those of its frames on the stack.

Leaves nothing behind in the frames and keeps none of them.
"""

from __future__ import annotations

from types import CodeType, FrameType

from gradviz.packages import is_foundation, package_of
from gradviz.variables.scanner import Namespace, namespaces

_CALLERS = 30  # functions around the one that asks


def variables_at(frame: FrameType | None, main: Namespace, outermost: CodeType) -> list[Namespace]:
    """Local variables of the user's frames from the backward call outwards, their modules' globals, `main`, then models.

    The models are local variables of an installed library's functions, such as a trainer's: they may have no other name.
    Frames of torch, gradviz and Python are left out, and so is everything from the frame of `outermost` on.
    """
    local: list[Namespace] = []
    outer: dict[int, Namespace] = {}
    models: list[Namespace] = []
    while frame is not None and frame.f_code is not outermost:
        file = frame.f_code.co_filename
        if not is_foundation(file):
            inner, *rest = namespaces(frame)
            if package_of(file):
                models.append(_models(inner) if rest else {})
            else:
                if frame.f_globals is not main:
                    outer.setdefault(id(frame.f_globals), rest[0] if rest else inner)
                if rest:
                    local.append(inner)
        frame = frame.f_back
    return [*local, *outer.values(), main, *filter(None, models)]


def callers_variables(frame: FrameType) -> list[Namespace]:
    """Variables of the function that asks, then those of the user's functions around it, each with its module's globals.

    A helper such as `report(loss)` is told the names that its caller has. Installed libraries in between are left out, such as
    a test runner or a trainer.
    """
    found: list[Namespace] = list(namespaces(frame))
    known = {id(frame.f_globals)}
    outer, left = frame.f_back, _CALLERS
    while outer is not None and left:
        left -= 1
        file = outer.f_code.co_filename
        if not package_of(file) and not is_foundation(file):
            inner, *rest = namespaces(outer)
            if rest:
                found.append(inner)
            if id(outer.f_globals) not in known:
                known.add(id(outer.f_globals))
                found.append(rest[0] if rest else inner)
        outer = outer.f_back
    return found


def _models(variables: Namespace) -> Namespace:
    import torch

    return {name: value for name, value in variables.items() if issubclass(type(value), torch.nn.Module)}
