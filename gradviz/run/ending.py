"""How a run of a user's script ended: what was read, how it failed, and its own
traceback as plain Python would show it.

Knows nothing of torch or graphs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from gradviz.errors import ScriptError, TargetError, text_of
from gradviz.packages import runs_around_user
from gradviz.rank import rank
from gradviz.run.target import Target

T = TypeVar("T")

_IMPORTING = ("<frozen importlib", contextlib.__file__)
_USAGE = 2  # how argparse and click end a script that lacks an argument
_HANDING_OVER = "handle_torch_function"


class Stopped(BaseException):
    """Ends the user's script where it called backward. Not an Exception, so that
    `except Exception` lets it through.

    A trainer may log it.
    """

    def __str__(self) -> str:
        return "gradviz stopped the script here on purpose: it has read what it was asked for. This is not an error."


@dataclass(frozen=True)
class Failure:
    """The exception that ended the script, and who shows it: the script's own
    `sys.excepthook`.
    """

    error: BaseException
    show_with: Callable[[type[BaseException], BaseException, TracebackType | None], Any]
    explanation: str = ""  # printed before the traceback

    @property
    def exit_code(self) -> int | None:
        """The code that the script asked to exit with, None when it raised something
        else.
        """
        if not isinstance(self.error, SystemExit):
            return None
        code = self.error.code
        return 0 if code is None else code if isinstance(code, int) else 1

    def show(self) -> None:
        """Print what plain Python would print: the user's own traceback, or the message
        of a `sys.exit`.
        """
        if isinstance(self.error, SystemExit):
            # `sys.exit("text")` prints its text
            if self.error.code is not None and not isinstance(self.error.code, int):
                _say(f"{self.error.code}\n")
            return

        _say(self.explanation)
        for link in _chain(self.error):
            with suppress(TypeError, AttributeError):  # an exception class may refuse
                # our frames say nothing about the user's mistake
                link.__traceback__ = users_part(link.__traceback__)

        try:
            self.show_with(type(self.error), self.error, self.error.__traceback__)
        except Exception:
            # the user's own hook failed: show the error all the same
            sys.__excepthook__(type(self.error), self.error, self.error.__traceback__)

    def raise_error(self, target: Target, before: str = "") -> None:
        """Show it, then raise ScriptError, which has a message only where the script's
        own output says too little.

        That torch is not there is raised as it is: gradviz needs it, too, and the
        command line says how to get it.
        """
        if isinstance(self.error, ModuleNotFoundError) and self.error.name == "torch":
            raise self.error
        self.show()
        if self.exit_code is None:
            raise ScriptError(_hint(self.error, target)) from self.error
        text = f"{target.short} exited with code {self.exit_code}{before}"
        if self.exit_code == _USAGE:
            text += ". Arguments of the script go after --"
        raise ScriptError(text) from self.error


def _say(text: str) -> None:
    if sys.stderr is not None:  # the script may have closed it
        sys.stderr.write(text)


def _hint(error: BaseException, target: Target) -> str:
    """What to do about a script of a package that was started as if it were none, ""
    otherwise.
    """
    if (
        target.kind != "script"
        or not isinstance(error, ImportError)
        or "relative import" not in text_of(error)
    ):
        return ""

    return (
        f"{target.short} imports from its own package. Run it from the folder that holds the package, "
        f"as python -m does: -m PACKAGE.{target.stem}"
    )


@dataclass(frozen=True, slots=True)
class RunResult(Generic[T]):
    """What `read` returned, and how the script failed afterwards, if it did."""

    result: T
    target: Target
    failure: Failure | None = None
    # what was read at further calls of backward, when more than one was asked for
    later: tuple[T, ...] = ()
    unread: str = ""  # why a further call could not be read
    calls: int = 0  # backward calls that were seen
    until: str = ""  # what ended the script before it did: the time limit, or Ctrl-C

    @property
    def error(self) -> BaseException | None:
        """What the script failed with; to exit is no failure."""
        if self.failure is not None and self.failure.exit_code is None:
            return self.failure.error
        return None

    def raise_failure(self) -> None:
        """Show the user's own traceback and raise ScriptError, when the script failed.
        Write the result before.
        """
        if self.failure is not None:
            self.failure.raise_error(self.target)


@dataclass
class Outcome:
    """What became of a piece of user code. `failure` is None when it ended normally or
    was stopped by us.
    """

    failure: Failure | None = None


@contextmanager
def users_code() -> Iterator[Outcome]:
    """Runs user code and says how it ended. Lets only KeyboardInterrupt through, and
    TargetError: that there is none to run.

    In a process that the user's code forked off, an end is that process's end, as it
    would be under plain Python.
    """
    outcome, process = Outcome(), os.getpid()
    try:
        yield outcome
    except (KeyboardInterrupt, TargetError):
        # in a fork there is nobody to pass it to
        if os.getpid() == process:
            raise
    except BaseException as error:
        failure = Failure(error, sys.excepthook)
        # the user's code may have caught our stop and raised another in its place
        if failure.exit_code != 0 and not any(
            isinstance(link, Stopped) for link in _chain(error)
        ):
            outcome.failure = failure

    if os.getpid() != process:
        _end_of_fork(outcome.failure)


def _end_of_fork(failure: Failure | None) -> None:
    if failure is None:
        raise SystemExit(0)
    failure.show()
    raise SystemExit(1 if failure.exit_code is None else failure.exit_code)


def _chain(error: BaseException) -> list[BaseException]:
    """The exception with all that it came from, and the members of exception groups."""
    links: list[BaseException] = []
    waiting: list[BaseException | None] = [error]

    while waiting:
        link = waiting.pop()
        # exceptions may refer to each other in a circle
        if link is not None and not any(link is other for other in links):
            links.append(link)
            waiting += [
                link.__cause__,
                link.__context__,
                *getattr(link, "exceptions", ()),
            ]

    return links


def users_part(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this package's running, and of the import
    machinery that led to them.
    """
    kept: list[TracebackType] = []
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if runs_around_user(file):
            # and the function of torch that asked it
            if kept and kept[-1].tb_frame.f_code.co_name == _HANDING_OVER:
                del kept[-2:]
            while kept and kept[-1].tb_frame.f_code.co_filename.startswith(_IMPORTING):
                kept.pop()
        else:
            kept.append(traceback)
        traceback = traceback.tb_next

    trimmed: TracebackType | None = None
    for link in reversed(kept):
        # some instructions have none
        trimmed = TracebackType(
            trimmed, link.tb_frame, link.tb_lasti, link.tb_lineno or 0
        )

    return trimmed


def outlast_launcher() -> None:
    """Ignore SIGTERM from now on where this is one of several ranks: a launcher ends
    all when one fails.

    The script has ended, and what was read of it is still to be written.
    """
    if rank() is not None and threading.current_thread() is threading.main_thread():
        # another rank that fails must not cost this one its report
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


# Stops the main thread from another one, where the system can. By a real-time signal,
# which nobody else uses and which also wakes a thread that waits. Setting an exception
# asynchronously would be simpler, but up to Python 3.11 every other thread whose lines
# are traced then stands still until the main thread has taken it, and the main thread
# may be waiting for one of them.

_SIGNAL: int | None = getattr(signal, "SIGRTMAX", None)


@contextmanager
def stoppable_main() -> Iterator[Callable[[], None]]:
    """Yields a function that raises `Stopped` in this thread, if this is the main one.
    Elsewhere it does nothing.

    Where there are no real-time signals it does nothing either.
    """
    number, main = _SIGNAL, threading.get_ident()
    if number is None or threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    lock = threading.Lock()
    listening, sent = True, False

    def stop() -> None:
        nonlocal sent
        with lock:
            if listening and not sent:
                sent = True
                # once only: a second one could come after the handler is put back
                signal.pthread_kill(main, number)

    before = signal.signal(number, _raise)
    try:
        yield stop
    finally:
        # the signal may still come here, where nothing is left to stop
        with suppress(Stopped):
            with lock:
                listening = False
            if sent:  # it may still be on its way
                for _ in range(10):
                    time.sleep(0)
        signal.signal(number, before)


def _raise(number: int, frame: Any) -> None:
    raise Stopped
