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
        self.stopped = False

    def start(self, frame: FrameType) -> None:
        """Trace from here on. `frame` is the innermost running frame of the user's."""
        self._mine = trace = _ThreadTrace(self, self._user, self._peek, self._steps())
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
        self.stopped = True
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

    def _new_thread(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.stopped:
            sys.settrace(None)
            return None
        trace = _ThreadTrace(self, self._user, self._peek, self._steps())
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
    """The trace functions of one thread. Written flat, because they run at every call and every line."""

    __slots__ = ("_known", "_peek", "_steps", "_user", "_watcher")

    def __init__(self, watcher: TraceWatcher, user: UserCode, peek: Peek, steps: LineSteps) -> None:
        self._watcher, self._user, self._peek, self._steps = watcher, user, peek, steps
        self._known = user.known

    def note(self, frame: FrameType | None) -> None:
        self._steps.add(self._peek(), self._user.innermost(frame))

    def call(self, frame: FrameType, event: str, argument: Any) -> Any:
        """For every function that is entered, and every generator that is resumed."""
        code = frame.f_code
        try:
            lines = self._known[id(code)]
        except KeyError:
            lines = self._user.lines(code)
        if lines is None:
            return None
        if self._watcher.stopped:
            sys.settrace(None)
            return None
        return self.local(frame, "line", None)

    def local(self, frame: FrameType, event: str, argument: Any) -> Any:
        """For what happens inside a function of the user's. An exception that leaves it is a return, too."""
        if self._watcher.stopped:
            return None
        if event == "line":
            number, code = frame.f_lineno, frame.f_code
            lines = self._known.get(id(code))
            line = lines.get(number) if lines else None
            if line is None:
                line = self._user.line(code, number)
            steps, made = self._steps, self._peek()
            if steps.numbers[-1] == made:
                steps.values[-1] = line
            else:
                steps.add(made, line)
        elif event == "return":
            self.note(frame.f_back)
        return self.local
