"""Source lines through `sys.settrace`, for Python before 3.12.

A trace function of somebody else (a debugger, coverage) rests meanwhile and is put back afterwards, on the thread and on
every running frame.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any

from gradviz.capture.lines import LineSteps, Peek, StepsOfThread, UserCode

Trace = Callable[[FrameType, str, Any], Any]


class TraceWatcher:
    """Traces the thread that starts it and every thread started meanwhile."""

    def __init__(self, user: UserCode, peek: Peek, steps: StepsOfThread) -> None:
        self._user, self._peek, self._steps = user, peek, steps
        self._before: list[tuple[FrameType, Trace | None]] = []
        self._threads_before: Any = None
        self._trace_before: Any = None
        self._mine: _ThreadTrace | None = None
        self._stopped = False

    def start(self, frame: FrameType) -> None:
        """Trace from here on. `frame` is the innermost running frame of the user's."""
        self._mine = trace = _ThreadTrace(self._user, self._peek, self._steps(), self._is_stopped)
        self._trace_before = sys.gettrace()
        self._threads_before = threading.gettrace()
        running: FrameType | None = frame
        while running is not None:
            if self._user.holds(running.f_code.co_filename):
                self._before.append((running, running.f_trace))
                running.f_trace = trace.local
            running = running.f_back
        threading.settrace(self._new_thread)
        sys.settrace(trace.call)
        trace.note(frame)

    def stop(self, frame: FrameType) -> None:
        """Put everything back. Other threads find out at their next call."""
        self._stopped = True
        sys.settrace(self._trace_before)
        if threading.gettrace() == self._new_thread:
            threading.settrace(self._threads_before)
        mine, self._mine = self._mine, None
        for running, before in self._before:
            running.f_trace = before
        left: FrameType | None = frame  # those that run still, whether they ran before or were entered meanwhile
        while left is not None:
            if mine is not None and left.f_trace == mine.local:
                left.f_trace = None
            if left.f_code.co_flags & CO_OPTIMIZED and self._user.holds(left.f_code.co_filename):
                _forget_locals(left)
            left = left.f_back
        self._before.clear()
        self._trace_before = self._threads_before = None

    def _is_stopped(self) -> bool:
        return self._stopped

    def _new_thread(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self._stopped:
            sys.settrace(None)
            return None
        trace = _ThreadTrace(self._user, self._peek, self._steps(), self._is_stopped)
        sys.settrace(trace.call)
        return trace.call(frame, event, argument)


def _forget_locals(frame: FrameType) -> None:
    """Empty the copy of its local variables that tracing left in a running function, or a later `del` would free nothing.

    A copy that the user holds, from `locals()`, stays as it is.
    """
    copy = frame.f_locals
    if sys.getrefcount(copy) <= 3:
        copy.clear()


class _ThreadTrace:
    """The trace functions of one thread."""

    __slots__ = ("_peek", "_steps", "_stopped", "_user")

    def __init__(self, user: UserCode, peek: Peek, steps: LineSteps, stopped: Callable[[], bool]) -> None:
        self._user, self._peek, self._steps, self._stopped = user, peek, steps, stopped

    def note(self, frame: FrameType | None) -> None:
        self._steps.add(self._peek(), self._user.innermost(frame))

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """For every function that is entered, and every generator that is resumed."""
        if self._stopped():
            sys.settrace(None)
            return None
        line = self._user.line(frame.f_code, frame.f_lineno)
        if line is None:
            return None
        self._steps.add(self._peek(), line)
        return self.local

    def local(self, frame: FrameType, event: str, argument: Any) -> Any:
        """For what happens inside a function of the user's. An exception that leaves it is a return, too."""
        if self._stopped():
            return None
        if event == "line":
            self._steps.add(self._peek(), self._user.line(frame.f_code, frame.f_lineno))
        elif event == "return":
            self.note(frame.f_back)
        return self.local
