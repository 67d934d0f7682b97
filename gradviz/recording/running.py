"""Which call of which of the user's functions runs: a mark on its frame says it, which is
gone with the frame.

Nothing else tells two calls of one function apart: their lines are the same, and Python
gives the second frame the place in memory of the first. `f_trace` is for whoever traces
a frame. Nothing reads it while nobody traces, a debugger that begins sets its own, and
where somebody does trace no frame is marked.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import TYPE_CHECKING

from gradviz.packages import CallSite, UserCode, frames_from, is_foundation

if TYPE_CHECKING:
    from gradviz.recording.event_log import ModuleCall

NO_SITES: Mapping[tuple[int, int], CallSite] = {}
RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class RunningCall:
    """One call of one function, made by another one. `began` is the number of the first
    node that was made after it was seen.

    `code` is None for what torch's engine runs, called from `caller`. `sites` are its
    instructions that `user` met in any call from there, by function and instruction.
    `goes_on`: it is a generator's, which somebody else had run before.
    """

    __slots__ = ("began", "caller", "code", "function", "goes_on", "sites", "user")

    def __init__(
        self, code: CodeType | None, began: int, caller: RunningCall | None
    ) -> None:
        self.code, self.began, self.caller = code, began, caller
        self.goes_on = False
        self.user: UserCode | None = None
        self.function = 0  # identity of its lines
        self.sites: Mapping[tuple[int, int], CallSite] = NO_SITES

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """What a tracer calls that begins while the frame runs."""


def running_call(
    frame: FrameType | None, number: int, module: ModuleCall | None = None
) -> RunningCall | None:
    """The call of the user's function that is innermost in a frame, before node `number`
    is made; None where that is not known. `module` is the call of a module around it.

    What a generator does counts as one call for each function that resumes it.
    """
    inside: list[FrameType] = []
    call: RunningCall | None = None
    while frame is not None and call is None:
        code, mark = frame.f_code, frame.f_trace
        if module is not None and id(frame) == module.frame and code is module.code:
            call = module.function
        elif not is_foundation(code.co_filename):
            if mark is not None and not isinstance(mark, RunningCall):
                return None  # somebody traces it
            if mark is None or code.co_flags & RESUMED:
                inside.append(frame)
            else:
                call = mark
        frame = frame.f_back

    if inside and sys.gettrace() is not None:
        return None

    for inner in reversed(inside):
        call = _marked(inner, number, call)

    return call


def _marked(frame: FrameType, number: int, caller: RunningCall | None) -> RunningCall:
    """The call that a frame is in, which is another one where a generator is resumed by
    another function.
    """
    before = frame.f_trace
    if isinstance(before, RunningCall) and before.caller is caller:
        return before
    call = frame.f_trace = RunningCall(frame.f_code, number, caller)
    call.goes_on = before is not None
    return call


def unmark(frame: FrameType | None) -> None:
    """Take the marks off a frame and those around it."""
    for marked in frames_from(frame):
        if type(marked.f_trace) is RunningCall:
            marked.f_trace = None
