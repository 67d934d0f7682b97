"""One line on a terminal that says how far gradviz is, while it takes longer than a
second.

Watches the stages (`gradviz.stages`) from a thread of its own. Nothing is shown when it
is quick, when standard error is no terminal; nothing is left when it is done.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TextIO

from gradviz.stages import Stage, is_watched, watched

_PATIENCE = 1.0  # seconds before anything is shown
_INTERVAL = 0.2  # seconds between two looks
# seconds in which the thread takes the line back, unless somebody stopped the terminal
# with Ctrl-S
_LAST_WORD = 1.0


@contextmanager
def progress(doing: str) -> Iterator[Line]:
    """Show the stages of the block; where it is in none, what is being done. Inside
    another one it shows nothing.
    """
    for over in _running:
        over.set()
    stream = sys.__stderr__  # and not what the user's script may have put in its place
    if is_watched() or not _on_terminal(stream):
        yield Line(None, doing, ())
        return
    with watched() as stages:
        line = Line(stream, doing, stages)
        try:
            line.start()
            yield line
        finally:
            line.end()


@contextmanager
def running(sentence: str) -> Iterator[None]:
    """Say on a terminal what runs, in a line that stays, unless the block shows progress
    or ends within a second.
    """
    stream, over = sys.__stderr__, threading.Event()

    def say() -> None:
        if not over.wait(_PATIENCE) and stream is not None:
            with suppress(Exception):  # the terminal may have gone away
                stream.write(f"{sentence}\n")

    _running.append(over)
    try:
        if _on_terminal(stream):
            _thread.start_new_thread(say, ())
        yield
    finally:
        _running.pop().set()


_running: list[threading.Event] = []


def reading() -> AbstractContextManager[object]:
    """Shows how far it is while a graph is read."""
    return progress("reading the graph")


def _on_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


class Line:
    """The line, written over itself by a thread until `end`, which takes it back."""

    def __init__(
        self, stream: TextIO | None, doing: str, stages: Sequence[Stage]
    ) -> None:
        self._stream, self._doing, self._stages = stream, doing, stages
        self._began = time.monotonic()
        self._widest = 0  # characters, of all that was written so far
        self._enough, self._gone = threading.Event(), threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        # `threading` would have the thread traced by the recording of the user's lines
        _thread.start_new_thread(self._keep, ())

    def end(self) -> None:
        """Take the line back and show nothing from now on."""
        self._enough.set()
        if self._stream is not None:
            self._gone.wait(_LAST_WORD)

    def _keep(self) -> None:
        # a terminal that went away is no reason to stop the work
        with suppress(Exception):
            wait = _PATIENCE
            while not self._enough.wait(wait):
                self._write(self.text(time.monotonic(), _width(self._stream)))
                wait = _INTERVAL
            if self._widest:
                # a terminal shows that key, too
                blank = min(self._widest + len("^C"), _width(self._stream) - 1)
                self._write(" " * blank, end="\r")

        self._gone.set()

    def text(self, now: float, width: int) -> str:
        """What to say at a moment, in less than `width` characters, so that it never
        wraps.
        """
        # the innermost, if there is one at this very moment
        for stage in self._stages[-1:]:
            return stage_text(stage, now - stage.began, width - 1)
        return f"{self._doing}  {_seconds(now - self._began)}"[: max(width - 1, 0)]

    def _write(self, text: str, end: str = "") -> None:
        assert self._stream is not None
        self._stream.write(f"\r{text.ljust(self._widest)}{end}")
        self._stream.flush()
        self._widest = max(self._widest, len(text))


def stage_text(stage: Stage, seconds: float, width: int) -> str:
    """A stage in one line of at most `width` characters.

    >>> stage_text(Stage("read", "nodes", lambda: 1200, 4800), 2.0, 80)
    'read    1,200 of 4,800 nodes  2.0 s'
    """
    count = stage.count()
    of = f" of {stage.total:,}" if stage.total else ""
    if stage.phase:
        units = f"phase {count}{of} ({stage.phase})"
    elif stage.unit:
        units = f"{count:,}{of} {stage.unit}"
    else:
        units = stage.doing
    return f"{stage.name:<7} {units}  {_seconds(seconds)}"[: max(width, 0)]


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _width(stream: TextIO | None) -> int:
    """Columns of the terminal at this moment, 80 where it does not tell."""
    with suppress(OSError, ValueError, AttributeError):
        assert stream is not None
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80
