"""Where recording is switched on: the hooks of modules and nodes, shared by all
recordings that are open.

Recordings may overlap in time, nest, and be opened in several threads; the first one
switches on, the last one switches off. What was noted lives as long as a recording
refers to it. Does not know graphs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from types import FrameType
from typing import Any

import torch
import torch.fx.traceback

from gradviz.armour.signals import HANDLERS, uninterrupted
from gradviz.armour.taps import Ended, tapped
from gradviz.packages import CallSite, UserCode
from gradviz.recording.event_log import NOWHERE, EventLog, LocalEventLog, Moment
from gradviz.recording.module_calls import ModuleCalls
from gradviz.recording.other_threads import OtherThreads, replace
from gradviz.recording.running import RESUMED, RunningCall, running_call, unmark
from gradviz.walker.private import (
    LAST,
    OWN_THREADS,
    peek_sequence,
    wrappers_are_preserved,
)

NO_STACK: list[str] = []
"""The answer that costs nothing: one object for all nodes."""

NodeMade = Callable[[], list[str]]
"""Called for each node, by torch itself, in the thread that makes it. Answers
`NO_STACK`, and must not raise.
"""

AroundBackward = Callable[["FrameType | None"], Callable[[], None]]
"""Called with the frame that starts a backward. What it returns is called when the
engine has ended.
"""

_set, _is_on, _checks_nan = (
    torch.set_anomaly_enabled,
    torch.is_anomaly_enabled,
    torch.is_anomaly_check_nan_enabled,
)


def _by_number(stack_for: Callable[[dict[int, list[str]], int], list[str]]) -> NodeMade:
    """`stack_for` for each number that the next node would get, once; nothing of Python
    runs where it is the latest one.

    So none runs for an AccumulateGrad, which takes no number: a signal handler that
    Python called at such a moment, and that uses the same leaf, would wait for the lock
    that its own thread holds.
    """
    latest = type("Latest", (dict,), {"__missing__": stack_for})()
    return map(latest.__getitem__, iter(peek_sequence, None)).__next__


class NodeWatch:
    """Between `start` and `stop`, `node_made` is called for every node of this process
    and `around_backward` for every backward.

    With anomaly mode on, torch asks `torch.fx.traceback.format_stack` for the stack of
    each node that it makes, from Python 3.10 to 3.13 and torch 2.6 to 2.15 alike. That
    is the one place where torch tells of a node without wrapping or running anything,
    so this switches the mode on, answers that call, and hides both: user code that asks
    for the mode sees, and sets, its own. While backward runs the mode is the user's,
    since the engine would then print more when it fails, and hold more.

    While another thread may make nodes it is the user's, too. Torch makes the
    AccumulateGrad of a leaf under a lock of that leaf, and a thread that is asked for
    its stack meanwhile waits for the interpreter. Another one holds that and waits for
    the lock, in any operation on the same leaf: for ever.

    Source: https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection
    """

    def __init__(
        self,
        node_made: NodeMade,
        around_backward: AroundBackward,
        thread_ends: Callable[[], None],
    ) -> None:
        self._node_made, self._around_backward = node_made, around_backward
        self._open = False
        # a signal handler, and what is collected, come back to it
        self._lock = threading.RLock()
        self.others = OtherThreads(self._changed, thread_ends)
        self._running = 0  # backward calls
        # the mode as the user has it: on, and looking for nan
        self._users_on, self._users_check = False, True
        self._undo = ExitStack()

    def start(self) -> None:
        self._users_on, self._users_check = _is_on(), _checks_nan()
        self._undo.enter_context(HANDLERS.replaced())
        self._stack_of_the_users = torch.fx.traceback.format_stack
        replace(self._undo, torch.fx.traceback, "format_stack", self._format_stack())
        answers: tuple[tuple[Any, Any], ...] = (
            (_set, lambda *mode, **by_name: self._users_set(*mode, **by_name)),
            (_is_on, lambda: self._users_on),
            (_checks_nan, lambda: self._users_check),
        )
        for function, answer in answers:
            replace(self._undo, torch, function.__name__, wraps(function)(answer))
        self._undo.enter_context(
            # the user's mode holds while the engine runs
            tapped(torch.autograd.graph._engine_run_backward, self._backward_began)
        )
        self.others.start()
        # from here on the mode is ours: see `_mode`
        self._open = True
        self._changed()

    def stop(self) -> None:
        """Leave everything as it was, and the mode as the user set it last."""
        self.others.stop()
        self._undo.close()
        self._open = False
        self._changed()

    def _format_stack(self) -> NodeMade:
        """What torch asks for the stack of a node. None is formatted, which is slow,
        unless the user wants to read them.
        """
        return self._with_stack if self._users_on else self._node_made

    @uninterrupted
    def _with_stack(self) -> list[str]:
        """While the user has anomaly mode on: note the node, and answer as torch would."""
        self._node_made()
        stack = self._stack_of_the_users()
        # the last frame is this function, which torch's own answer would not have
        return stack[:-1] if stack and __file__ in stack[-1] else stack

    def _users_set(self, enabled: bool, check_nan: bool = True) -> None:
        with self._lock:
            self._users_on, self._users_check = bool(enabled), bool(check_nan)
            torch.fx.traceback.format_stack = self._format_stack()
            self._apply()

    def _apply(self) -> None:
        done = None
        # a signal handler may change it in between
        while done != (mode := self._mode()):
            _set(*mode)
            done = mode

    def _mode(self) -> tuple[bool, bool]:
        """On or off, and whether looking for nan."""
        if self._open and not (self._users_on or self._running or self.others):
            # on, so that torch tells of each node that it makes
            return True, False
        return self._users_on, self._users_check

    def _changed(self) -> None:
        with self._lock:
            self._apply()

    @uninterrupted
    def _backward_began(self, engine: FrameType, *_: Any, **__: Any) -> Ended:
        after = self._around_backward(engine.f_back)
        # in anomaly mode the engine prints more when it fails, and holds more: from now
        # on, until it has ended, the mode is the user's
        self._count(1)

        @uninterrupted
        def ended(returned: bool, result: object) -> None:
            self._count(-1)
            after()

        return ended

    def _count(self, more: int) -> None:
        with self._lock:
            self._running += more
            self._apply()


class Session:
    """Notes of all threads while at least one recording is open."""

    def __init__(self) -> None:
        self.event_logs: list[EventLog] = []
        self._local = LocalEventLog()
        # of threads that run and never called anything that is seen
        self._unseen = EventLog(0)
        self.user = UserCode()
        self.calls = ModuleCalls(self.event_log, self.user)
        self._nodes = NodeWatch(
            self._noticing(), self._around_backward, self._thread_ends
        )
        self.others = self._nodes.others
        self._open, self._paused = 0, False

    def event_log(self, first: int = 0) -> EventLog:
        """The event log of the calling thread. Of its nodes those from number `first`
        on may be this session's.
        """
        event_log = self._local.event_log
        if event_log is None:
            event_log = self._local.event_log = EventLog(first)
            # a thread of gradviz makes no node of the user's
            if threading.get_ident() not in OWN_THREADS:
                self.event_logs.append(event_log)
        return event_log

    def ends(self) -> dict[EventLog, int]:
        """The number up to which the nodes of each thread have been made, as far as the
        calling thread knows.

        Another one that has made nodes and still runs may have made any number of them.
        """
        ends = {event_log: event_log.end for event_log in self.event_logs}
        for event_log, end in ends.items() if self.others.names else ():
            # it may be making nodes right now, so any number may be one of its
            if (self.others or not event_log.ended) and end > event_log.start:
                ends[event_log] = LAST
        ends[self._unseen] = self.others.numbers
        ends[self.event_log()] = peek_sequence()
        return ends

    def _thread_ends(self) -> None:
        """Called in a thread as what it was given to run ends."""
        # a thread that numbered no node needs no log
        if peek_sequence():
            event_log = self.event_log()
            event_log.made_until(peek_sequence(), None, None)
            event_log.ended = True

    def _noticing(self) -> NodeMade:
        """What torch calls for every node. Written flat: a loop of small operations
        meets it every few microseconds.
        """
        local, user, frame = self._local, self.user, sys._getframe

        @uninterrupted
        def made(latest: dict[int, list[str]], following: int) -> list[str]:
            # only the latest number has an entry, and the next question about it is
            # answered without Python
            latest.clear()
            latest[following] = NO_STACK
            try:
                event_log = local.event_log or self.event_log()
                log = event_log.lines
                # else it is an AccumulateGrad, which takes no number
                if following > log.seen:
                    number, maker, site = following - 1, frame().f_back, None
                    running: Any = maker.f_trace if maker is not None else None
                    if type(running) is RunningCall and running.user is user:
                        instruction = maker.f_lasti  # type: ignore[union-attr]
                        site = running.sites.get((running.function, instruction))
                    if site is None:
                        site, running = self._running(event_log, maker, number)
                    log.made(number, site)
                    event_log.functions.made(number, running)
            except RecursionError:
                # which the user's code is about to meet, or not: this node stays
                # without a line
                pass

            return NO_STACK

        return _by_number(made)

    def _running(
        self, event_log: EventLog, frame: FrameType | None, number: int
    ) -> tuple[CallSite | None, RunningCall | None]:
        """Where the user's code is at in a frame, and in which call of a function. The
        call then knows its sites, and is not looked for again, unless another function
        may resume it.
        """
        module = event_log.stack[-1] if event_log.stack else None
        site = self.user.site(frame, module)
        call = running_call(frame, number, module)
        if call is None or site is None or site.code.co_flags & RESUMED:
            return site, call
        if call.code is site.code:
            call.user = self.user
            call.function, call.sites = self.user.beside(site)
        return site, call

    def now(self, frame: FrameType) -> Moment:
        """Where the calling thread is at in a frame; nowhere while a backward runs,
        which is noted already.
        """
        event_log = self.event_log()
        if event_log.backward[1] is not None:
            return NOWHERE
        return event_log.moment(*self._running(event_log, frame, peek_sequence()))

    @uninterrupted
    def _around_backward(self, frame: FrameType | None) -> Callable[[], None]:
        """The calling thread runs a backward: the nodes that it makes come from the
        line that called it.
        """
        event_log = self.event_log()
        outer, first = event_log.backward, peek_sequence()
        site, caller = self._running(event_log, frame, first)
        engine = RunningCall(None, first, caller) if caller is not None else None

        # what nobody saw until now was made by the backward around this one, if any
        event_log.made_until(first, *outer)
        event_log.backward = site, engine
        event_log.backwards.append((first, event_log.moment(site, engine)))

        @uninterrupted
        def ended() -> None:
            # with `create_graph=True` this backward made nodes of its own
            event_log.made_until(peek_sequence(), site, engine)
            event_log.backward = outer

        return ended

    def open(self) -> None:
        """One more recording, in the calling thread."""
        self._open += 1
        try:
            if self._open == 1:
                # makes a node of its own, which must not come between those of the
                # user's
                wrappers_are_preserved()
                self._start()
            self.resume()

            first = peek_sequence()
            # nodes that a thread made before this recording are not of this session
            self.event_log(first if threading.get_ident() in self.others.older else 0)
            # functions that run already began before it
            running_call(sys._getframe(), first - 1)
        except BaseException:
            self.close()
            raise

    def close(self) -> bool:
        """One recording less. Returns whether it was the last, after which this session
        notes nothing more.
        """
        self._open -= 1
        if self._open:
            return False
        try:
            if not self._paused:
                self._stop()
        finally:
            unmark(sys._getframe())
        return True

    def _start(self) -> None:
        self.calls.start()
        self._nodes.start()

    def _stop(self) -> None:
        try:
            self._nodes.stop()
        finally:
            self.calls.stop()

    def pause(self) -> None:
        """Note nothing until `resume`, or until one more recording is opened. For a
        recording that is alone.
        """
        if self._open == 1 and not self._paused:
            self._paused = True
            self._stop()

    def resume(self) -> None:
        """Go on noting, from the next node on."""
        if self._paused:
            self._paused = False
            self._start()


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
            # also where closing failed: the next recording must not join a broken
            # session
            if last:
                _current = None
