"""Source lines through `sys.settrace`, for Python before 3.12.

A trace function of somebody else (a debugger, coverage) rests meanwhile and is put back afterwards, on the thread and on
every running frame.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from inspect import CO_OPTIMIZED
from types import FrameType
from typing import Any

from gradviz.capture.lines import LineSteps, Peek, StepsOfThread, UserCode

Trace = Callable[[FrameType, str, Any], Any]


class _Here(threading.local):
    """What was changed in the running thread, and for how many recordings."""

    count = 0
    mine: _ThreadTrace | None = None
    trace_before: Any = None
    frames_before: tuple[tuple[FrameType, Trace | None], ...] = ()


class TraceWatcher:
    """Traces every thread that starts it, and those that are started meanwhile."""

    def __init__(self, user: UserCode, peek: Peek, steps: StepsOfThread) -> None:
        self._user, self._peek, self._steps = user, peek, steps
        self._here = _Here()
        self._threads_before: Any = None
        self._started = self.stopped = False

    def start(self, frame: FrameType) -> None:
        """Trace this thread from here on. `frame` is the innermost running frame of the user's."""
        if not self._started:
            self._started, self._threads_before = True, threading.gettrace()
            threading.settrace(self._new_thread)
        here = self._here
        here.count += 1
        if here.count > 1 or here.mine is not None:
            return
        here.mine = trace = _ThreadTrace(self, self._user, self._peek, self._steps())
        here.trace_before = sys.gettrace()
        frames = [running for running in _outwards(frame) if self._user.holds(running.f_code.co_filename)]
        here.frames_before = tuple((running, running.f_trace) for running in frames)
        for running in frames:
            running.f_trace = trace.local
        sys.settrace(trace.call)
        trace.note(frame)

    def stop(self, frame: FrameType, last: bool) -> None:
        """Put everything back in this thread; after the `last` recording, threads started meanwhile stop at their next call."""
        if last:
            self.stopped = True
            if threading.gettrace() == self._new_thread:
                threading.settrace(self._threads_before)
        here = self._here
        here.count -= 1
        if here.count == 0 and here.mine is not None and (last or not here.mine.inherited):
            self._untrace(frame)

    def _untrace(self, frame: FrameType) -> None:
        here = self._here
        mine, here.mine = here.mine, None
        sys.settrace(here.trace_before)
        for running, before in here.frames_before:
            running.f_trace = before
        for running in _outwards(frame):  # those that run still, whether they ran before or were entered meanwhile
            if mine is not None and running.f_trace == mine.local:
                running.f_trace = None
            if running.f_code.co_flags & CO_OPTIMIZED and self._user.holds(running.f_code.co_filename):
                _forget_locals(running)
        here.trace_before, here.frames_before = None, ()

    def _new_thread(self, frame: FrameType, event: str, argument: Any) -> Any:
        if self.stopped:
            sys.settrace(None)
            return None
        trace = self._here.mine = _ThreadTrace(self, self._user, self._peek, self._steps(), inherited=True)
        sys.settrace(trace.call)
        return trace.call(frame, event, argument)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _forget_locals(frame: FrameType) -> None:
    """Empty the copy of its local variables that tracing left in a running function, or a later `del` would free nothing.

    A copy that the user holds, from `locals()`, stays as it is.
    """
    copy = frame.f_locals
    if sys.getrefcount(copy) <= 3:
        copy.clear()


class _ThreadTrace:
    """The trace functions of one thread. Written flat, because they run at every call and every line."""

    __slots__ = ("_known", "_peek", "_steps", "_user", "_watcher", "inherited")

    def __init__(
        self, watcher: TraceWatcher, user: UserCode, peek: Peek, steps: LineSteps, inherited: bool = False
    ) -> None:
        self.inherited = inherited  # from the thread that started this one
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
