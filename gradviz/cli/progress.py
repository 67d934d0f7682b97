"""One line on a terminal while something takes long. Nothing when it is quick or when nobody watches."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE = 1.0  # seconds


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Say on standard error what is being done, once it has taken a second; take it back when done."""
    stream = sys.__stderr__  # and not what the user's script may have put in its place
    if stream is None or stream.closed or not stream.isatty():
        yield
        return
    said = threading.Event()

    def say() -> None:
        said.set()
        stream.write(f"{doing} ...")
        stream.flush()

    timer = threading.Timer(_PATIENCE, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if said.is_set():
            stream.write("\r" + " " * (len(doing) + 4) + "\r")
            stream.flush()
