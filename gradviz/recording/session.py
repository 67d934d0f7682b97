"""Where recording is switched on: the hooks of modules and nodes, shared by all recordings that are open.

Recordings may overlap in time, nest, and be opened in several threads; the first one switches on, the last one switches off.
What was noted lives as long as a recording refers to it. Does not know graphs.
"""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import FrameType
from typing import Any

import torch
import torch._functorch.utils as _functions
import torch.fx.traceback

from gradviz.graph import columns
from gradviz.packages import UserCode
from gradviz.recording.event_log import EventLog, LocalEventLog
from gradviz.recording.module_calls import ModuleCalls
from gradviz.variables.objects import is_a
from gradviz.walker.private import OWN_THREADS, peek_sequence

NO_STACK: list[str] = []
"""The answer that costs nothing: one object for all nodes."""

Made = Callable[[], list[str]]
"""Called for each node, by torch itself, in the thread that makes it. Answers `NO_STACK`, and must not raise."""

Around = Callable[["FrameType | None"], Callable[[], None]]
"""Called with the frame that starts a backward. What it returns is called when the engine has ended."""

_ENGINE = "_engine_run_backward"
_BEFORE_APPLY = "unwrap_dead_wrappers"  # what the `apply` of a custom Function calls last, with its arguments
_set, _is_on, _checks_nan = torch.set_anomaly_enabled, torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled


class NodeWatch:
    """Between `start` and `stop`, `made` is called for every node of this process and `around` for every backward.

    With anomaly mode on, torch asks `torch.fx.traceback.format_stack` for the stack of each node that it makes, from Python 3.10
    to 3.13 and torch 2.6 to 2.15 alike. That is the one place where torch tells of a node without wrapping or running anything,
    so this switches the mode on, answers that call, and hides both: user code that asks for the mode sees, and sets, its
    own. While backward runs the mode is the user's, since the engine would then print more when it fails, and hold more.

    Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection
    """

    def __init__(self, made: Made, around: Around) -> None:
        self._made, self._around = made, around
        self._lock = threading.Lock()
        self._running = 0  # backward calls
        self._users_on, self._users_check = False, True  # the mode as the user has it: on, and looking for nan
        self._undo = ExitStack()

    def start(self) -> None:
        self._users_on, self._users_check = _is_on(), _checks_nan()
        self._stack_of_the_users = torch.fx.traceback.format_stack
        self._replace(torch.fx.traceback, "format_stack", self._made)
        self._replace(torch, "set_anomaly_enabled", self._users_set)
        self._replace(torch, "is_anomaly_enabled", lambda: self._users_on)
        self._replace(torch, "is_anomaly_check_nan_enabled", lambda: self._users_check)
        engine = self._engine(getattr(torch.autograd, _ENGINE))
        for home in (torch.autograd, torch.autograd.graph):
            self._replace(home, _ENGINE, engine)
        if hasattr(_functions, _BEFORE_APPLY):
            self._replace(_functions, _BEFORE_APPLY, _with_accumulators(getattr(_functions, _BEFORE_APPLY)))
        self._apply()

    def stop(self) -> None:
        """Leave everything as it was, and the mode as the user set it last."""
        self._undo.close()
        _set(self._users_on, self._users_check)

    def _replace(self, home: Any, name: str, mine: Any) -> None:
        self._undo.callback(setattr, home, name, getattr(home, name))
        setattr(home, name, mine)

    def _with_stack(self) -> list[str]:
        """While the user has anomaly mode on: note the node, and answer as torch would."""
        self._made()
        stack = self._stack_of_the_users()
        return stack[:-1] if stack and __file__ in stack[-1] else stack

    def _users_set(self, enabled: bool, check_nan: bool = True) -> None:
        with self._lock:
            self._users_on, self._users_check = bool(enabled), bool(check_nan)
            self._apply()

    def _apply(self) -> None:
        torch.fx.traceback.format_stack = self._with_stack if self._users_on else self._made
        if self._users_on or self._running:
            _set(self._users_on, self._users_check)
        else:
            _set(True, False)

    def _engine(self, original: Any) -> Any:
        def run_backward(*arguments: Any, **options: Any) -> Any:
            after = self._around(sys._getframe(1))
            self._count(1)
            try:
                return original(*arguments, **options)
            finally:
                self._count(-1)
                after()

        return run_backward

    def _count(self, more: int) -> None:
        with self._lock:
            self._running += more
            self._apply()


class _Accumulators(tuple[torch.Tensor, ...]):
    """Views of leaves, which hold what accumulates their gradients. As a frame's trace function it does nothing."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        """Called under a debugger only."""


def _with_accumulators(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let the leaves that a custom Function is given have their AccumulateGrad before torch asks for it, until it returns.

    torch makes the AccumulateGrad of a leaf under a lock of that leaf. In a thread that is told to call Python meanwhile, it
    waits for the interpreter, which a custom Function would hold while it waits for the lock: for ever. A view is made without
    the interpreter, and while the frame of `apply` holds the view, nobody makes anything under that lock.
    """

    def before_apply(arguments: Any) -> Any:
        if _thread._count():  # threads beside the main one
            frame = sys._getframe(1)
            with suppress(Exception), torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                leaves = [
                    value for value in arguments if is_a(value, torch.Tensor) and value.requires_grad and value.is_leaf
                ]
                if leaves and frame.f_trace is None:
                    frame.f_trace = _Accumulators([leaf.view_as(leaf) for leaf in leaves])
        return original(arguments)

    return before_apply


class Session:
    """Notes of all threads while at least one recording is open."""

    def __init__(self) -> None:
        self.event_logs: list[EventLog] = []
        self._local = LocalEventLog()
        with columns.paused():  # up to Python 3.11 a collection in there may wait for a lock that its own thread holds
            self._older_threads = frozenset(sys._current_frames())
        self.user = UserCode()
        self.calls = ModuleCalls(self.event_log, self.user)
        self._nodes = NodeWatch(self._noticing(), self._around_backward)
        self._open = 0

    def event_log(self) -> EventLog:
        """The event log of the calling thread."""
        event_log = self._local.event_log
        if event_log is None:
            event_log = self._local.event_log = EventLog(self._first_number())
            if threading.get_ident() not in OWN_THREADS:
                self.event_logs.append(event_log)
        return event_log

    def ends(self) -> dict[EventLog, int]:
        """The number up to which the nodes of each thread have been made, as far as the calling thread knows."""
        ends = {event_log: event_log.end for event_log in self.event_logs}
        ends[self.event_log()] = peek_sequence()
        return ends

    def _first_number(self) -> int:
        """From which number on the nodes of the calling thread are this session's: those of a thread begun meanwhile all are."""
        return peek_sequence() if threading.get_ident() in self._older_threads else 0

    def _noticing(self) -> Made:
        """What torch calls for every node. Written flat: a loop of small operations meets it every few microseconds."""
        local, peek, place, frame = self._local, peek_sequence, self.user.place, sys._getframe
        own, follow = self.calls.own.codes, self.calls.own.follow

        def made() -> list[str]:
            try:
                event_log = local.event_log or self.event_log()
                log, following = event_log.lines, peek()
                if following > log.seen:  # else it is an AccumulateGrad, which takes no number
                    stack, maker = event_log.stack, frame().f_back
                    log.made(following - 1, place(maker, stack[-1] if stack else None))
                    if own:
                        follow(event_log, maker, following - 1)
            except RecursionError:  # which the user's code is about to meet, or not: this node stays without a line
                pass
            return NO_STACK

        return made

    def _around_backward(self, frame: FrameType | None) -> Callable[[], None]:
        """The calling thread runs a backward: the nodes that it makes come from the line that called it."""
        event_log = self.event_log()
        log, outer = event_log.lines, event_log.backward
        event_log.backward = place = self.user.place(frame, event_log.innermost)
        log.until(peek_sequence(), outer)
        if self.calls.own.codes:
            self.calls.own.follow(event_log, frame, peek_sequence())

        def ended() -> None:
            log.until(peek_sequence(), place)
            event_log.backward = outer

        return ended

    def open(self) -> None:
        """One more recording, in the calling thread."""
        self._open += 1
        self.event_log()
        try:
            if self._open == 1:
                self.calls.start()
                self._nodes.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> bool:
        """One recording less. Returns whether it was the last, after which this session notes nothing more."""
        self._open -= 1
        if self._open:
            return False
        try:
            self._nodes.stop()
        finally:
            self.calls.stop()
        return True


_lock = threading.RLock()
_current: Session | None = None


def running() -> Session | None:
    """The session that is recording now, if one is."""
    return _current


def enter() -> Session:
    """The running session, joined, or a new one."""
    global _current
    with _lock:
        session = _current if _current is not None else Session()
        session.open()
        _current = session
        return session


def leave(session: Session) -> None:
    """Take one recording out of its session."""
    global _current
    with _lock:
        last = True
        try:
            last = session.close()
        finally:
            if last:
                _current = None
