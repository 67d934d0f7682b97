"""Notes the user's source line in front of every autograd node, while foreign code runs.

Owns what counts as the user's code, and the choice of the means: `sys.monitoring` from Python 3.12 on, `sys.settrace`
before. Both see a line when it starts and a function when it is entered, resumed or left, which is enough: what is
made afterwards was made there. Knows nothing of torch: the next sequence number comes from a callable.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Protocol

from gradviz.capture.packages import code_line
from gradviz.capture.steps import Steps
from gradviz.graph import SourceLine

Peek = Callable[[], int]
"""The sequence number that the next node made in this thread will get. Free of side effects."""

LineSteps = Steps[SourceLine]
StepsOfThread = Callable[[], LineSteps]
"""The log of the thread that calls it."""

_GENERATED = ("<frozen ", "<eval_with_key>", "<torch_package", "<attrs generated", "<__array_function__")


class Watcher(Protocol):
    """Notes lines between `start` and `stop`, which come in pairs, possibly nested and in several threads.

    `frame` is the innermost running frame of the user's; `last` says that no other pair is open.
    """

    def start(self, frame: FrameType) -> None: ...
    def stop(self, frame: FrameType, last: bool) -> None: ...


class UserCode:
    """Which code is the user's, and its lines, each made once.

    Not the user's: the given folders (torch, gradviz), the standard library, and code that torch generates. Packages of
    others are: an operation that a library calls was called there.
    """

    def __init__(self, not_user: Iterable[str]) -> None:
        stdlib = sysconfig.get_path("stdlib")
        self._not_user = tuple(folder.rstrip("/\\") + sep for folder in (*not_user,) for sep in ("/", "\\"))
        self._stdlib = tuple(stdlib + sep for sep in ("/", "\\")) if stdlib else ()
        self._files: dict[str, bool] = {}
        self._held: list[CodeType] = []
        self.known: dict[int, dict[int, SourceLine] | None] = {}

    def holds(self, file: str) -> bool:
        """Whether the user wrote this file."""
        known = self._files.get(file)
        if known is None:
            known = self._files[file] = self._judge(file)
        return known

    def _judge(self, file: str) -> bool:
        if file.startswith((*_GENERATED, *self._not_user)):
            return False
        return not file.startswith(self._stdlib) or "-packages" in file

    def lines(self, code: CodeType) -> dict[int, SourceLine] | None:
        """The lines of `code` made so far, by number; None when the code is not the user's.

        `known` has the same by the identity of the code, for those who cannot wait. The code object is held so that its
        identity stays its own: hashing one would read all of it.
        """
        if id(code) not in self.known:
            self._held.append(code)
            self.known[id(code)] = {} if self.holds(code.co_filename) else None
        return self.known[id(code)]

    def line(self, code: CodeType, number: int | None) -> SourceLine | None:
        """One line of `code`, or None when the code is not the user's."""
        lines = self.lines(code)
        if lines is None or number is None:
            return None
        found = lines.get(number)
        if found is None:
            found = lines[number] = code_line(code, number)
        return found

    def innermost(self, frame: FrameType | None) -> SourceLine | None:
        """Where the user's code is at: the first of these frames, going outwards, that is the user's."""
        while frame is not None:
            found = self.line(frame.f_code, frame.f_lineno)
            if found is not None:
                return found
            frame = frame.f_back
        return None


def watcher(user: UserCode, peek: Peek, steps: StepsOfThread) -> Watcher:
    """The best means that this Python has."""
    if sys.version_info >= (3, 12):
        from gradviz.capture.lines_monitoring import MonitoringWatcher, free_tool

        if free_tool() is not None:
            return MonitoringWatcher(user, peek, steps)
    from gradviz.capture.lines_trace import TraceWatcher

    return TraceWatcher(user, peek, steps)
