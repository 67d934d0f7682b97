"""Source lines through `sys.monitoring`, for Python 3.12 and later.

Takes a tool number of its own, so a debugger or coverage goes on undisturbed. Code that is not the user's reports each place
once and is then silent. Works in every thread.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from gradviz.capture.lines import Peek, StepsOfThread, UserCode

_CANDIDATES = (4, 3, 2)  # 0, 1 and 5 are a debugger's, coverage's and an optimizer's by convention; 2 a profiler's
_monitoring: Any = getattr(sys, "monitoring", None)  # a new name for mypy, which checks for Python 3.11


def free_tool() -> int | None:
    """A tool number that nobody uses, or None."""
    return next((tool for tool in _CANDIDATES if _monitoring.get_tool(tool) is None), None)


class MonitoringWatcher:
    """Monitors all threads."""

    def __init__(self, user: UserCode, peek: Peek, steps: StepsOfThread) -> None:
        self._user, self._peek, self._steps = user, peek, steps
        self._tool: int | None = None

    def start(self, frame: FrameType) -> None:
        """Monitor from here on."""
        if self._tool is None:
            self._begin()
        self._steps().add(self._peek(), self._user.innermost(frame))

    def _begin(self) -> None:
        tool = self._tool = free_tool()
        if tool is None:
            raise RuntimeError("no tool number of sys.monitoring is free")
        _monitoring.use_tool_id(tool, "gradviz")
        events = _monitoring.events
        arrives = {events.LINE: self._line, events.PY_START: self._start, events.PY_RESUME: self._start}
        leaves = {events.PY_RETURN: self._return, events.PY_YIELD: self._return}
        always = {
            events.PY_UNWIND: self._unwind,
            events.PY_THROW: self._throw,
        }  # these two cannot be switched off by place
        wanted = 0
        for event, callback in {**arrives, **leaves, **always}.items():
            _monitoring.register_callback(tool, event, callback)
            wanted |= event
        _monitoring.set_events(tool, wanted)
        _monitoring.restart_events()  # an earlier tool of this number may have silenced the user's code

    def stop(self, frame: FrameType, last: bool) -> None:
        """After the last recording: give the tool number back."""
        tool = self._tool
        if tool is None or not last:
            return
        self._tool = None
        events = _monitoring.events
        _monitoring.set_events(tool, 0)
        for name in ("LINE", "PY_START", "PY_RESUME", "PY_RETURN", "PY_YIELD", "PY_UNWIND", "PY_THROW"):
            _monitoring.register_callback(tool, getattr(events, name), None)
        _monitoring.free_tool_id(tool)

    def _line(self, code: CodeType, number: int) -> Any:
        line = self._user.line(code, number)
        if line is None:
            return _monitoring.DISABLE
        self._steps().add(self._peek(), line)
        return None

    def _start(self, code: CodeType, offset: int) -> Any:
        """A function begins, or a generator goes on in the middle of a line."""
        if self._user.lines(code) is None:
            return _monitoring.DISABLE
        self._steps().add(self._peek(), self._user.innermost(sys._getframe(1)))
        return None

    def _return(self, code: CodeType, offset: int, value: object) -> Any:
        if self._user.lines(code) is None:
            return _monitoring.DISABLE
        self._steps().add(self._peek(), self._user.innermost(sys._getframe(1).f_back))
        return None

    def _throw(self, code: CodeType, offset: int, error: BaseException) -> None:
        if self._user.lines(code) is not None:
            self._steps().add(self._peek(), self._user.innermost(sys._getframe(1)))

    def _unwind(self, code: CodeType, offset: int, error: BaseException) -> None:
        if self._user.lines(code) is not None:
            self._steps().add(self._peek(), self._user.innermost(sys._getframe(1).f_back))
