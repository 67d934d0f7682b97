"""Puts off signal handlers of the user's while code of gradviz's runs that they must
not interrupt, and lets them run right after.

Python runs a handler between any two instructions of the main thread. In the midst of a
reading, what it raises would be taken for what the reading raised. In the midst of the
making of a node, torch may hold the lock of a leaf, for which an operation of the
handler's would wait for ever. A handler is put off by another one in its place, which
`signal.getsignal` does not show.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` makes an enum of every answer, in ten times the time
import signal
import threading
import time
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, TypeVar

from gradviz.packages import frames_from

_NUMBERS = tuple(sorted(_signal.valid_signals()))
_DEEPEST = 12  # frames between what is not to be interrupted and a handler
_AGAIN = 0.0002  # seconds after which a handler is tried again

_uninterrupted: set[CodeType] = set()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def uninterrupted(function: _Function) -> _Function:
    """Mark what torch calls in the midst of its own work: no handler of the user's runs
    in there.

    >>> @uninterrupted
    ... def hook(module, inputs): ...
    """
    _uninterrupted.add(function.__code__)
    return function


class _Handlers:
    """Those of the user's, by number, while one of gradviz's is in their place."""

    def __init__(self) -> None:
        self._users: dict[int, Any] = {}
        self._came: dict[int, None] = {}  # while the main thread was reading
        self._instead = self._called
        self._depth = 0
        self._lock = threading.RLock()  # a handler may come back to it
        # what sets a handler, and what asks
        self._originals: tuple[Callable[..., Any], Callable[..., Any]] | None = None
        self._reading = self._dropping = False
        self._late: list[int] = []  # that a thread is about to send again

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Inside, handlers can be put off. Only the main thread can do that; in others
        this does nothing.
        """
        if not _is_main():
            yield
            return
        self.replace()
        try:
            yield
        finally:
            self.restore()

    def replace(self) -> None:
        """Put another one in the place of each, until `restore`. May be nested."""
        self._count(1)
        if self._originals is None:
            self._originals = signal.signal, signal.getsignal
            try:
                signal.signal, signal.getsignal = (
                    self._setter(*self._originals),
                    self._getter(self._originals[1]),
                )
                for number in _NUMBERS:
                    self._take(number)
            except BaseException:  # of a handler that is not replaced yet
                self.restore()
                raise

    def restore(self) -> None:
        """Take back one `replace`. From another thread only counted: what is replaced
        is put back when the main one comes by.
        """
        self._count(-1)
        self._dropping = False
        self._put_back()

    def _count(self, change: int) -> None:
        with self._lock:
            self._depth += change

    def _put_back(self) -> None:
        # read once: a handler that comes between may have put them back
        originals = self._originals
        if self._depth == 0 and originals is not None and _is_main():
            signal.signal, signal.getsignal = originals
            self._originals = None
            # only those that nobody has replaced meanwhile
            for number, handler in self._users.items():
                if _signal.getsignal(number) is self._instead:
                    _signal.signal(number, handler)
            self._users = {}

    def begin(self) -> bool:
        """From now on they wait. Says whether it is for the caller to `end` that: in
        the main thread, for the outermost.
        """
        if self._reading or not _is_main():
            return False
        self.replace()
        self._reading = True
        return True

    def end(self) -> None:
        """Let those run that were put off."""
        self._reading = False
        came, self._came = tuple(self._came), {}
        try:
            _send(came)
        finally:
            self.restore()

    def _take(self, number: int) -> None:
        handler = _signal.getsignal(number)
        # Ctrl-C ends a reading at once
        is_ours = handler is self._instead or handler is _signal.default_int_handler
        if handler is not None and type(handler) is not int and not is_ours:
            self._users[number] = handler
            _signal.signal(number, self._instead)

    def drop(self) -> None:
        """Nothing that still comes is wanted, until the handlers are put back."""
        self._dropping = True
        while self._late:
            time.sleep(_AGAIN)

    def _called(self, number: int, frame: FrameType | None) -> None:
        # read before `_put_back`, which forgets it
        users = self._users[number]
        self._put_back()
        if self._reading:
            # once, however often the signal came
            self._came[number] = None
        elif _interrupts(frame):
            self._late.append(number)
            start_new_thread(self._send_later, (number,))
        elif not self._dropping:
            # no reading of ours is going on: the user's handler runs as it would alone
            users(number, frame)

    def _send_later(self, number: int) -> None:
        """In a thread of its own: the main one has to go on. It is woken where it
        waits.
        """
        time.sleep(_AGAIN)
        if hasattr(_signal, "pthread_kill"):
            _signal.pthread_kill(threading.main_thread().ident, number)
        else:
            _signal.raise_signal(number)
        self._late.remove(number)

    def _setter(self, original: Callable[..., Any], asked: Callable[..., Any]) -> Any:
        @wraps(original)
        def set_handler(signalnum: Any, handler: Any) -> Any:
            before = self._getter(asked)(signalnum)
            original(signalnum, handler)
            self._put_back()
            if self._originals is not None:
                self._take(int(signalnum))
            return before

        return set_handler

    def _getter(self, original: Callable[..., Any]) -> Any:
        @wraps(original)
        def handler_of(signalnum: Any) -> Any:
            self._put_back()
            handler = original(signalnum)
            return self._users[int(signalnum)] if handler is self._instead else handler

        return handler_of


HANDLERS = _Handlers()
_TIMERS = {
    "ITIMER_REAL": "SIGALRM",
    "ITIMER_VIRTUAL": "SIGVTALRM",
    "ITIMER_PROF": "SIGPROF",
}


@contextmanager
def handlers_of_script() -> Iterator[None]:
    """Around a script. When it has ended, what it set is gone, and no timer of its own
    calls anything in the midst of a report.
    """
    if not _is_main():
        yield
        return

    before = {number: signal.getsignal(number) for number in _NUMBERS}
    HANDLERS.replace()
    try:
        yield
    finally:
        HANDLERS.drop()
        changed = {
            number
            for number in _NUMBERS
            if signal.getsignal(number) is not before[number]
        }
        for timer, name in _TIMERS.items():
            if getattr(_signal, name, None) in changed:
                # a timer without the script's handler would end the process
                _signal.setitimer(getattr(_signal, timer), 0)
        HANDLERS.restore()
        for number in changed:
            if before[number] is not None:
                signal.signal(number, before[number])


def _is_main() -> bool:
    return threading.get_ident() == threading.main_thread().ident


def signalled(error: BaseException) -> bool:
    """Whether a signal handler of the user's raised this, which is to pass.

    >>> signalled(ValueError())
    False
    """
    return any(frame.f_code is _CALLED for frame, _ in walk_tb(error.__traceback__))


_CALLED = _Handlers._called.__code__


def _interrupts(frame: FrameType | None) -> bool:
    """Whether this frame, or one not far above it, is not to be interrupted."""
    return any(
        caller.f_code in _uninterrupted
        for caller in islice(frames_from(frame), _DEEPEST)
    )


def _send(numbers: Sequence[int]) -> None:
    if numbers:
        try:
            _signal.raise_signal(numbers[0])
        finally:
            # also where the first handler raised
            _send(numbers[1:])
