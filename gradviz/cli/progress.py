"""One line on a terminal while something takes long, with the seconds so far. Nothing when it is quick or nobody watches."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_PATIENCE = 1.0  # seconds before it is said, and between updates


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Say on standard error what is being done, and for how long, once it has taken a second; take it back when done."""
    stream = sys.__stderr__  # and not what the user's script may have put in its place
    if stream is None or stream.closed or not stream.isatty():
        yield
        return
    done = threading.Event()
    line = _Line(stream, doing)
    watcher = threading.Thread(target=line.keep, args=(done,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        line.clear()


class _Line:
    """One line that counts the seconds, written over itself."""

    def __init__(self, stream: TextIO, doing: str) -> None:
        self._stream, self._doing, self._width = stream, doing, 0

    def keep(self, done: threading.Event) -> None:
        """Write the line every second until `done`."""
        begin = time.monotonic()
        while not done.wait(_PATIENCE):
            text = f"{self._doing} ... {time.monotonic() - begin:.0f} s"
            self._write("\r" + text)
            self._width = len(text)

    def clear(self) -> None:
        """Take the line back, if there is one."""
        if self._width:
            self._write("\r" + " " * self._width + "\r")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
