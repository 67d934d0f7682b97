"""The one place where recording is switched on: hooks and line watching, shared by all recordings that are open.

Recordings may overlap in time, nest, and be opened in several threads; the first one switches on, the last one switches off.
What was noted lives as long as a recording refers to it. Does not know graphs.
"""

from __future__ import annotations

import os
import threading
from types import FrameType

import torch

import gradviz
from gradviz.capture.lines import LineSteps, UserCode, watcher
from gradviz.capture.module_calls import LocalTape, ModuleCalls, Tape
from gradviz.capture.private import peek_sequence

_LIBRARIES = [os.path.dirname(module.__file__ or "") for module in (torch, gradviz)]
_FUNCTORCH = os.path.join(os.path.dirname(_LIBRARIES[0]), "functorch")  # torch's own, installed beside it


class Session:
    """Notes of all threads while at least one recording is open."""

    def __init__(self) -> None:
        self.tapes: list[Tape] = []
        self._local = LocalTape()
        self.calls = ModuleCalls(self._local, self.tape)
        self.user = UserCode([*_LIBRARIES, _FUNCTORCH])
        self._watcher = watcher(self.user, peek_sequence, self._lines)
        self._open = 0

    def tape(self) -> Tape:
        """The tape of the calling thread."""
        tape = self._local.tape
        if tape is None:
            tape = self._local.tape = Tape()
            self.tapes.append(tape)
        return tape

    def _lines(self) -> LineSteps:
        return self.tape().lines

    def open(self, frame: FrameType) -> None:
        """One more recording. `frame` is where the user's code is at."""
        self._open += 1
        self.tape()
        try:
            if self._open == 1:
                self.calls.start()
            self._watcher.start(frame)
        except BaseException:
            self.close(frame)
            raise

    def close(self, frame: FrameType) -> bool:
        """One recording less. Returns whether it was the last, after which this session notes nothing more."""
        self._open -= 1
        last = not self._open
        try:
            self._watcher.stop(frame, last)
        finally:
            if last:
                self.calls.stop()
        return last


_lock = threading.RLock()
_current: Session | None = None


def enter(frame: FrameType) -> Session:
    """The running session, joined, or a new one."""
    global _current
    with _lock:
        session = _current if _current is not None else Session()
        session.open(frame)
        _current = session
        return session


def leave(session: Session, frame: FrameType) -> None:
    """Take one recording out of its session."""
    global _current
    with _lock:
        try:
            last = session.close(frame)
        except BaseException:
            _current = None
            raise
        if last:
            _current = None
