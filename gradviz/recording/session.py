"""The one place where recording is switched on: the hooks of modules and nodes, shared by all recordings that are open.

Recordings may overlap in time, nest, and be opened in several threads; the first one switches on, the last one switches off.
What was noted lives as long as a recording refers to it. Does not know graphs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType

import torch

from gradviz.graph import columns
from gradviz.recording.calls import EventLog, LocalEventLog
from gradviz.recording.module_calls import ModuleCalls
from gradviz.recording.nodes import NO_STACK, Made, NodeWatch
from gradviz.source.lines import UserCode
from gradviz.walker.private import OWN_THREADS, peek_sequence

_APPLY = getattr(torch.autograd.Function.apply, "__code__", None)


class Session:
    """Notes of all threads while at least one recording is open."""

    def __init__(self) -> None:
        self.event_logs: list[EventLog] = []
        self._local = LocalEventLog()
        with columns.paused():  # up to Python 3.11 a collection in there may wait for a lock that its own thread holds
            self._older_threads = frozenset(sys._current_frames())
        self.user = UserCode()
        self.calls = ModuleCalls(self._local, self.event_log, self.user)
        self._nodes = NodeWatch(self._noticing(), self._around_backward)
        self._custom = False  # whether a custom Function was seen
        self._open = 0

    def event_log(self) -> EventLog:
        """The event log of the calling thread."""
        event_log = self._local.event_log
        if event_log is None:
            event_log = self._local.event_log = EventLog(self._first_number())
            if threading.get_ident() not in OWN_THREADS:
                self.event_logs.append(event_log)
            self._rest_where_threads_could_wait_for_each_other()
        return event_log

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
                    if maker is not None and maker.f_code is _APPLY and not self._custom:
                        self._custom = True
                        self._rest_where_threads_could_wait_for_each_other()
            except RecursionError:  # which the user's code is about to meet, or not: this node stays without a line
                pass
            return NO_STACK

        return made

    def _rest_where_threads_could_wait_for_each_other(self) -> None:
        """Ask for no more nodes once there are several threads and custom Functions.

        torch makes the AccumulateGrad of a leaf under a lock of that leaf. In a thread that was told to call Python meanwhile, it
        waits for the interpreter; a custom Function holds the interpreter and waits for the lock.
        """
        if len(self.event_logs) > 1 and (self._custom or _custom_functions_exist()):
            self._nodes.rest()

    def _around_backward(self, frame: FrameType | None) -> Callable[[], None]:
        """The calling thread runs a backward: the nodes that it makes come from the line that called it."""
        event_log = self.event_log()
        log, outer = event_log.lines, event_log.backward
        event_log.backward = place = self.user.place(frame, event_log.stack[-1] if event_log.stack else None)
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


def _custom_functions_exist() -> bool:
    """Whether somebody else than torch has defined a custom Function, whether or not it is used."""
    return any(not cls.__module__.startswith("torch.") for cls in torch.autograd.Function.__subclasses__())


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
        try:
            last = session.close()
        except BaseException:
            _current = None
            raise
        if last:
            _current = None
