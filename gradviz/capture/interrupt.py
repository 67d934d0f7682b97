"""Stops the main thread from another one, where the system can.

By a real-time signal, which nobody else uses and which also wakes a thread that waits. Setting an exception asynchronously
would be simpler, but up to Python 3.11 every other thread whose lines are traced then stands still until the main thread
has taken it, and the main thread may be waiting for one of them.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gradviz.capture.failure import Stopped

_SIGNAL: int | None = getattr(signal, "SIGRTMAX", None)


@contextmanager
def stoppable_main() -> Iterator[Callable[[], None]]:
    """Yields a function that raises `Stopped` in this thread, if this is the main one. Elsewhere it does nothing.

    Where there are no real-time signals it does nothing either.
    """
    if _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        yield _nothing
        return
    with _handled(_SIGNAL) as stop:
        yield stop


def _nothing() -> None:
    pass


@contextmanager
def _handled(number: int) -> Iterator[Callable[[], None]]:
    main = threading.get_ident()
    lock = threading.Lock()
    listening, sent = True, False

    def stop() -> None:
        nonlocal sent
        with lock:
            if listening and not sent:
                sent = True
                signal.pthread_kill(main, number)

    before = signal.signal(number, _raise)
    try:
        yield stop
    finally:
        with suppress(Stopped):
            with lock:
                listening = False
            if sent:  # it may still be on its way
                for _ in range(10):
                    time.sleep(0)
        signal.signal(number, before)


def _raise(number: int, frame: Any) -> None:
    raise Stopped
