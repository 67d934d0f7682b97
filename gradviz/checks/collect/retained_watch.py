"""Looks now and then, and when the script ends, for variables that hold the graphs of several earlier steps.

What grows from the very first step on shows in the calls that are read in full; this sees what begins later. Keeps no tensor.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from types import FrameType

from gradviz.checks.collect.retained import beyond, held_by, is_window
from gradviz.checks.context import RetainedHistory
from gradviz.graph import SourceLine
from gradviz.packages import is_foundation, with_text
from gradviz.recording.session import running
from gradviz.source.code_line import subtracts_from
from gradviz.source.location import addition_to
from gradviz.variables.scanner import Namespace, as_written, namespaces
from gradviz.walker.private import peek_sequence, without_subclasses
from gradviz.walker.walk import live_nodes

FIRST, TIMES = 16, 4
"""It looks at backward call 16, and whenever there were four times as many."""

SHARE, FREE = 0.05, 0.2
"""Of the time since the script began, what looking may take, and seconds that it may take in any case."""

STEPS = 3
"""Steps whose graphs a variable holds, from which it is said."""

LONG = 64
"""Calls with `create_graph` and no other, after which nothing is taken to differentiate all of them."""

_TENSORS = 200  # of one variable that are looked at


class RetainedWatch:
    """Of one run, in the thread that calls backward. `updates` counts steps of optimizers; `quiet` is around what it does."""

    def __init__(self, updates: Callable[[], int], quiet: Callable[[], AbstractContextManager[None]]) -> None:
        self._updates, self._quiet = updates, quiet
        self._starts = array("Q")  # the sequence number at the first backward call of each step
        self._parts = array("Q")  # and at each call with `create_graph`, until one comes that ends a step
        self._updated = -1
        self._found: dict[str, RetainedHistory] = {}
        self._began, self._spent = time.perf_counter(), 0.0
        self._next = FIRST
        self._ended = False

    def backward(self, number: int, frame: FrameType, create_graph: bool) -> None:
        """A call is about to run; one with `create_graph` is a part of a step."""
        updated = self._updates()
        if create_graph and not self._starts:
            self._parts.append(peek_sequence())
        if not create_graph and (updated != self._updated or not updated):
            self._starts.append(peek_sequence())
            self._updated = updated
        if number >= self._next:
            self._next = number * TIMES
            if self._spent <= max(FREE, SHARE * (time.perf_counter() - self._began)):
                around: FrameType | None = frame
                while around is not None and is_foundation(around.f_code.co_filename):
                    around = around.f_back
                self._look(namespaces(around))

    def ended(self, variables: Sequence[Namespace]) -> None:
        """The script has come to its end."""
        self._ended = True
        self._look(variables)

    def told(self, known: Sequence[RetainedHistory]) -> tuple[RetainedHistory, ...]:
        """What was found beside what is `known`, which other code may call by another name.

        Nothing where the outputs themselves carry old graphs along: a variable holds these because of that.
        """
        if not self._starts and not self._ended and len(self._parts) < LONG:
            return ()  # an unrolled loop may come to its end, and be differentiated
        told = {history.name.rpartition(".")[2] for history in known}
        if "" in told:
            return ()
        return tuple(history for name, history in self._found.items() if name.rpartition(".")[2] not in told)

    def _look(self, variables: Sequence[Namespace]) -> None:
        began = time.perf_counter()
        if len(self._starts or self._parts) > STEPS:
            with self._quiet(), without_subclasses(), suppress(Exception):  # classes of the user's may refuse anything
                for history in self._held(variables):
                    if self._starts or history.update:
                        self._found.setdefault(history.name, history)
        self._spent += time.perf_counter() - began

    def _held(self, variables: Sequence[Namespace]) -> Iterator[RetainedHistory]:
        for name, tensors in {**held_by([beyond(variables)]), **held_by(variables)}.items():
            starts = self._starts or self._parts
            numbers = [node._sequence_nr() for node in live_nodes(tensors[-_TENSORS:])]
            old = [number for number in numbers if number < starts[-1]]
            steps = {bisect_right(starts, number) for number in old}
            if len(steps) >= STEPS and not is_window(name, variables):
                newest = max(old if self._starts else (number for number in numbers if number < peek_sequence()))
                source = _line(newest)
                added = addition_to(source.file, name) if source is not None else None
                name = as_written(name, variables)
                update = subtracts_from(source, name) if not self._starts else ""
                yield RetainedHistory(name, len(old), None, source, (), added, steps=len(steps), update=update)


def _line(number: int) -> SourceLine | None:
    """Where the node of this number was made."""
    session = running()
    place = session.event_log().lines.at(number) if session is not None else None
    return with_text(place.script_line or place.source) if place is not None else None
