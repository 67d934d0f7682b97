"""The threads beside the one that records: which of them may make nodes, seen before
they run and until they have ended.

Owns the functions that begin a thread while somebody looks. Does not know nodes.

What a thread is given to run goes in a partial call, which Python holds until that has
returned: so its end is noticed, too, and no frame of ours lies in the thread.
"""

from __future__ import annotations

import _thread
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import FrameType
from typing import Any

from gradviz.graph import collector
from gradviz.packages import frames_from, is_foundation, package_of
from gradviz.walker.private import OWN_THREADS, peek_sequence
from gradviz.wording import visible

_BEGIN = (
    "start_new_thread",
    "start_new",
    "start_joinable_thread",
    "_start_new_thread",
    "_start_joinable_thread",
)
_NO_NODES = (
    "gradviz",
    *("tqdm", "rich"),  # progress
    # DataLoader
    *("torch.utils.data", "multiprocessing.queues", "multiprocessing.resource_sharer"),
    # log writers
    *("torch.utils.tensorboard", "tensorboard", "tensorboardX", "wandb", "logging"),
    # the notebook's kernel
    *("ipykernel", "IPython.core.history", "zmq", "tornado", "jupyter_client"),
    "torch._inductor",  # compiles
    "concurrent.futures",  # what its workers are given is looked at when it is given
)
"""Modules of which a thread runs nothing that autograd records."""
_USERS_WORK = ("multiprocessing.pool", "ipykernel.subshell")
"""Modules of which a thread runs what it is given, at any time."""
_LEAVE = 0.1  # seconds


class _Started(functools.partial[Any]):
    """What a thread runs, or a worker of a pool. Lives until that has returned; shown
    as what the user gave.
    """

    def __repr__(self) -> str:
        return repr(self.func)


class OtherThreads:
    """True while one of them runs. `changed` is called when one begins, before it can
    run, and when it ends, in it.
    """

    def __init__(self, changed: Callable[[], None], ends: Callable[[], None]) -> None:
        self._changed, self._ends = changed, ends
        # with the next number of the thread that began it
        self._begun: dict[weakref.ref[_Started], int] = {}
        self._users: set[int] = set()  # threads that were there before
        self._first = 0
        self._undo = ExitStack()
        self.older: frozenset[int] = frozenset()
        """All that were there before, by identity."""
        self.names: dict[str, None] = {}
        """Of all that were met."""

    def __bool__(self) -> bool:
        if self._users:
            with collector.paused():
                # those that have ended are gone from the frames
                self._users &= sys._current_frames().keys()
        return bool(self._begun or self._users)

    @property
    def numbers(self) -> int:
        """Below this number, one of them that runs may have numbered nodes as the
        thread that began it had done before.
        """
        return max(self._begun.values(), default=0)

    def start(self) -> None:
        """Look at the threads that run, and at each that begins."""
        self._first = threading.get_ident()
        # `threading` has its own names for functions of `_thread`
        for home in (_thread, threading):
            for name in _BEGIN:
                original = getattr(home, name, None)
                if original is not None:
                    replace(self._undo, home, name, self._noticing(original))

        work = self._noticing_work(ThreadPoolExecutor.submit)
        replace(self._undo, ThreadPoolExecutor, "submit", work)
        # up to Python 3.11 a collection in there may wait for a lock that its own
        # thread holds
        with collector.paused():
            frames = sys._current_frames()

        self.older = frozenset(frames)
        for thread in self.older - {self._first, *OWN_THREADS}:
            if _is_users(frames[thread]):
                self._users.add(thread)
                self._meet(threading._active.get(thread))  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Leave everything as it was."""
        self._undo.close()

    def _noticing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begin(function: Any, *arguments: Any, **options: Any) -> Any:
            return original(self._noticed(function), *arguments, **options)

        return begin

    def _noticing_work(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def submit(
            pool: ThreadPoolExecutor, function: Any, /, *arguments: Any, **options: Any
        ) -> Any:
            return original(pool, self._noticed(function), *arguments, **options)

        return submit

    def _noticed(self, function: Any) -> Any:
        if callable(function) and _may_make_nodes(_runs(function)):
            return self._begins(function)
        # a loader or a log writer makes no nodes, so the recording goes on beside it
        return function

    def _begins(self, function: Callable[..., Any]) -> _Started:
        started, alone = _Started(function), not self
        self._meet(getattr(function, "__self__", function))
        self._begun[weakref.ref(started, self._ended)] = peek_sequence()
        self._changed()
        if alone and threading.get_ident() != self._first:
            # The first thread may be making a node at this moment, and wait for the
            # interpreter to say so. It gets it now.
            threading.Event().wait(_LEAVE)
        return started

    def _ended(self, started: weakref.ref[_Started]) -> None:
        del self._begun[started]
        self._ends()
        self._changed()

    def _meet(self, thread: Any) -> None:
        name = getattr(thread, "name", None) or getattr(thread, "__qualname__", None)
        self.names[visible(name) if isinstance(name, str) else "another thread"] = None


def replace(undo: ExitStack, home: object, name: str, mine: object) -> None:
    """Put something in place of an attribute, until `undo` is closed."""
    undo.callback(setattr, home, name, getattr(home, name))
    setattr(home, name, mine)


def _runs(function: Any) -> str:
    """The module of what a thread will run."""
    thread = getattr(function, "__self__", None)
    if isinstance(thread, threading.Thread):
        function = thread.run
        # a thread that is no subclass runs its target
        if getattr(function, "__func__", None) is threading.Thread.run:
            function = getattr(thread, "_target", None)
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__module__", None) or ""


def _may_make_nodes(module: str) -> bool:
    return _is_of(module, _USERS_WORK) or not _is_of(module, _NO_NODES)


def _is_of(module: str, packages: tuple[str, ...]) -> bool:
    return (
        module.startswith(tuple(f"{package}." for package in packages))
        or module in packages
    )


def _is_users(innermost: FrameType) -> bool:
    """Whether a thread runs code of the user's, or is there to be given some."""
    frames = list(frames_from(innermost))
    modules = [str(frame.f_globals.get("__name__")) for frame in frames]
    # such a worker waits in library code until the user gives it something
    if any(_is_of(module, _USERS_WORK) for module in modules):
        return True
    files = [frame.f_code.co_filename for frame in frames]
    return any(not package_of(file) and not is_foundation(file) for file in files)
