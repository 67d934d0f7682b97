"""Follows a run beyond the backward calls that are read in full, at little cost: which
to read as well, and what is held in vain.

What looking costs is measured: beyond a share of the script's time it looks at less.
Concludes nothing.
"""

from __future__ import annotations

import math
import time
from array import array
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import CodeType, FrameType
from typing import Any

import torch

from gradviz.checks.collect.held import held_by, held_elsewhere, is_window
from gradviz.checks.collect.lines import (
    Variables,
    leaf_of,
    line_at,
    nodes_behind,
    users_frame,
)
from gradviz.checks.collect.numbers import is_broken, largest_left, loss_of
from gradviz.checks.collect.recorder import RunRecorder
from gradviz.checks.flow import at_a_pole
from gradviz.checks.record import RetainedHistory, Unused
from gradviz.checks.words import Names
from gradviz.graph import SourceLine
from gradviz.recording.event_log import Evaluation
from gradviz.recording.session import running
from gradviz.run.engine import EngineCall
from gradviz.source.code_line import assigned, read
from gradviz.source.search import addition_to
from gradviz.variables.scanner import as_written, namespaces
from gradviz.walker.isolation import isolated
from gradviz.walker.private import Node, peek_sequence
from gradviz.walker.walk import live_nodes

FREE = 0.2
"""Seconds that looking may take in any case."""

Quiet = Callable[[], AbstractContextManager[None]]
"""What is around all that a watch does itself."""


class _Looking:
    """The time that a watch takes. `share`: of the time since the script began, what
    that may be.
    """

    def __init__(self, quiet: Quiet, share: float) -> None:
        self._quiet, self._share = quiet, share
        self._began, self._spent = time.perf_counter(), 0.0

    def may_go_on(self) -> bool:
        return self._spent <= max(
            FREE, self._share * (time.perf_counter() - self._began)
        )

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Inside, tensors of the user's own classes may refuse anything: then nothing
        is seen.
        """
        began = time.perf_counter()
        try:
            with self._quiet(), suppress(Exception):
                yield
        finally:
            self._spent += time.perf_counter() - began


# -- which calls to read as well -------------------------------------------------------

SUSPECTS = 3
"""Calls that are read because of an operation at a pole; more of them tell nothing new.
"""

KEPT = 1000
"""Losses that are kept."""

TIMES, MOST = 3, 9
"""How often each of several lines that call backward in turn is read, and how many
calls in all: three of one step tell little.
"""

DEAD = 5
"""Calls in a row that leave a leaf a gradient of zeros, after which one call is read.
"""

NEW, STAGE = 6, 2
"""Calls that are read because a line calls backward for the first time later, or
parameters take part, or optimizers are made.

A second stage of a training does both: two calls show what its optimizer leaves as it
is.
"""


SAMPLED = (16, 130, 514, 2050, 8194, 32770)
"""Later calls of which one is read each, as far apart as the run is long; calls of
torch are seen there.
"""


class CallWatch:
    """Says which backward calls to read: with a loss or gradients that are not finite,
    or an operation where these may not be.

    Where losses are scaled, gradients that are not finite are part of the plan.
    `passed` is told of every call, and whether it is read.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        passed: Callable[[int, EngineCall, bool], None],
        quiet: Quiet,
    ) -> None:
        self._recorder, self._record, self._passed = recorder, recorder.record, passed
        self._known_stage, self._due = 0, 0  # calls that are to show the stage
        self._looking = _Looking(quiet, share=0.05)
        self._left, self._new = SUSPECTS, NEW
        self._number = 0
        self._line: tuple[CodeType, int]  # of the call that comes
        # that called backward, while all calls were read
        self._lines: Counter[tuple[CodeType, int]] = Counter()
        self._in_a_row = True
        self._leaves: list[torch.Tensor] = []  # between a call and its end
        self.seen_enough = False
        self.reached: set[int] = set()  # identities of leaves that calls have led to
        # the last call that left a leaf a gradient other than zero, by identity
        self.nonzero: dict[int, int] = {}
        self.looked: list[int] = []  # calls whose gradients were looked at
        # calls in a row that left a leaf nothing else, by identity
        self._zero: Counter[int] = Counter()
        # whether a leaf with a gradient has had none for a while, and one call was
        # read to show it
        self._died = self._shown = False
        self.losses = deque[tuple[int, float]](maxlen=KEPT)  # call and loss

    def before(
        self,
        number: int,
        call: EngineCall,
        reading: bool,
    ) -> bool:
        """Whether the call is to be read, for what its tensors show, or because it is
        read anyway.
        """
        self._leaves, self._number, self._line = [], number, _line(call)
        reading = reading or self._has_its_turn(call)
        stage = self._recorder.stage
        self._known_stage, self._due = (
            stage,
            STAGE if stage != self._known_stage else self._due - reading,
        )
        alone = not reading and (
            self._is_to_show_a_death()
            or self._begins_something(call)
            or self._samples(call)
        )
        self._lines[self._line] += 1
        self._in_a_row = self._in_a_row and reading
        self._passed(number, call, reading)

        with self._looking.timed():
            if self._breaks(number, call):
                self.seen_enough = True
            elif not reading and not alone and self._looking.may_go_on():
                nodes = nodes_behind(call.outputs)
                self._leaves = [
                    leaf
                    for node in nodes
                    if isinstance(leaf := leaf_of(node), torch.Tensor)
                ]
                self.reached.update(map(id, self._leaves))
                reading = self._thaws(call) or self._suspicious(nodes)

        return reading or alone or self.seen_enough

    def _breaks(self, number: int, call: EngineCall) -> bool:
        """Whether the loss, which is noted, is no number any more."""
        loss = loss_of(call.outputs[0]) if len(call.outputs) == 1 else None
        if loss is not None:
            self.losses.append((number, loss))
        return is_broken(loss, scaled=self._record.scaled)

    def _samples(self, call: EngineCall) -> bool:
        return (
            self._number in SAMPLED
            and not call.create_graph
            and self._looking.may_go_on()
        )

    def _has_its_turn(self, call: EngineCall) -> bool:
        """Whether lines take turns, all calls so far were read, and one of the lines
        was not yet read often enough.
        """
        if not self._in_a_row or call.create_graph or self._lines.total() >= MOST:
            return False
        lines = {*self._lines, self._line}
        return len(lines) > 1 and any(self._lines[line] < TIMES for line in lines)

    def _begins_something(self, call: EngineCall) -> bool:
        """Whether a line calls backward for the first time, long after others, or what
        trains or is trained is new.
        """
        begins = self._due > 0 or self._line not in self._lines
        if (
            self._in_a_row
            or not call.accumulates
            or call.create_graph
            or not begins
            or not self._new
        ):
            return False
        self._new, self._due = self._new - 1, self._due - 1
        return True

    def _is_to_show_a_death(self) -> bool:
        """Whether a gradient has become zero and stayed so, which one call is to show."""
        shows = self._died and not self._shown
        self._shown = self._died
        return shows

    def _thaws(self, call: EngineCall) -> bool:
        """Whether a parameter takes part that no call which was read has led to, as one
        that was frozen before.
        """
        known = self._record.leaves
        thaws = any(
            type(leaf) is torch.nn.Parameter and id(leaf) not in known
            for leaf in self._leaves
        )
        if not thaws or not call.accumulates or call.create_graph or not self._new:
            return False
        self._new, self._due = self._new - 1, STAGE - 1
        return True

    def _suspicious(self, nodes: list[Node]) -> bool:
        suspicious = self._left > 0 and not self._record.scaled and at_a_pole(nodes)
        self._left -= suspicious
        return suspicious

    @property
    def awaits_end(self) -> bool:
        """Whether the call that runs leads to leaves whose gradients are looked at."""
        return bool(self._leaves)

    def after(self, filled: bool | None) -> bool:
        """Whether the call that has run is to be read, for the gradients that it left."""
        leaves, self._leaves = self._leaves, []
        if not filled or not leaves or self._record.scaled:
            return False

        with self._looking.timed():
            largest = largest_left(leaves)
            self.seen_enough = not all(map(math.isfinite, largest.values()))
            self.looked.append(self._number)
            for key, most in largest.items():
                self._zero[key] = 0 if most else self._zero[key] + 1
                if most:
                    self.nonzero[key] = self._number
                elif self._zero[key] == DEAD and key in self.nonzero:
                    self._died = True

        return self.seen_enough


def _line(call: EngineCall) -> tuple[CodeType, int]:
    """The line outside torch that makes a call."""
    frame = users_frame(call.frame) or call.frame
    return frame.f_code, frame.f_lineno


def _numbers(nodes: Iterable[Node]) -> list[int]:
    return [node._sequence_nr() for node in nodes]


# -- passes in eval() mode that nothing differentiates ---------------------------------

# backward calls after which what none of them has reached is taken for unused
_UNREACHED = 3
_LOOKS = 30  # graphs of backward calls that are looked at
_MOST_TENSORS = 1000  # of a variable that are asked whether they hold such a graph
_Row = list[Evaluation]


class EvaluationWatch:
    """Notes forward passes in eval() mode whose graphs no backward call of the run
    reaches, and which variables hold them.

    Looks at the graph of a backward call only where several such passes came before it.
    """

    def __init__(self, quiet: Quiet) -> None:
        self._quiet = quiet
        # passes in a row from one line, and calls that did not reach them
        self._waiting: list[tuple[_Row, int]] = []
        self._found: dict[SourceLine, Unused] = {}
        self._left = _LOOKS

    def backward(self, outputs: Sequence[Any], frame: FrameType) -> None:
        """A backward call is about to run."""
        self._take()
        if not self._left:
            self._waiting.clear()  # nobody has looked whether this graph reaches them

        if not self._waiting:
            return

        self._left -= 1
        # tensors of the user's own classes may refuse anything
        with self._quiet(), suppress(Exception):
            numbers = set(_numbers(nodes_behind(outputs)))
            aged = [
                (row, calls + 1)
                for row, calls in self._waiting
                if not _reached(row, numbers)
            ]
            self._waiting = [(row, calls) for row, calls in aged if calls < _UNREACHED]
            over = [row for row, calls in aged if calls >= _UNREACHED]
            self._add(over, namespaces(users_frame(frame)) if over else ())

    def ended(self, variables: Variables) -> None:
        """The script has come to its end: nothing will reach what is waiting."""
        self._take()
        rows, self._waiting = [row for row, _ in self._waiting], []
        with self._quiet():
            self._add(rows, variables)

    def result(self) -> tuple[Unused, ...]:
        """All that was found, one for each line."""
        return tuple(self._found.values())

    def _take(self) -> None:
        """What has run since the last backward call: several passes from one line are a
        pass over data.
        """
        session = running()
        noted = session.event_log().evaluations if session is not None else None
        rows: dict[int, _Row] = {}
        while noted:
            evaluation = noted.popleft()
            # places are made once for each line
            rows.setdefault(id(evaluation.place), []).append(evaluation)
        # one alone is a step in eval() mode
        self._waiting += [(row, 0) for row in rows.values() if len(row) > 1]

    def _add(self, rows: Sequence[_Row], variables: Variables) -> None:
        for row in rows:
            source = line_at(row[0].place)
            known = self._found.get(source)
            if known is None or len(row) > known.calls:
                holders: Names = ()
                with suppress(Exception), isolated():
                    holders = tuple(_holders(row, variables))
                nodes = sum(evaluation.ended - evaluation.began for evaluation in row)
                self._found[source] = Unused(
                    source, row[0].type, len(row), nodes, holders
                )


def _holders(row: _Row, variables: Variables) -> Iterator[str]:
    """The variables through which the graphs of several of these calls live, a list as
    one.
    """
    for name, held in held_by(variables).items():
        if (
            len(
                _reached(
                    row,
                    set(_numbers(live_nodes(held.tensors[:_MOST_TENSORS]))),
                )
            )
            > 1
        ):
            yield name


def _reached(row: _Row, numbers: set[int]) -> _Row:
    """The passes that made one of the nodes with these numbers."""
    return [
        evaluation
        for evaluation in row
        if not numbers.isdisjoint(range(evaluation.began, evaluation.ended))
    ]


# -- variables that hold the graphs of earlier steps -----------------------------------

FIRST, APART = 16, 4
"""It looks at backward call 16, and whenever there were four times as many."""

STEPS = 3
"""Steps whose graphs a variable holds, from which it is said."""

_TENSORS = 200  # of one variable that are looked at


class RetainedWatch:
    """Looks now and then, and when the script ends, for variables that hold the graphs
    of several earlier steps.

    What grows from the very first step on shows in the calls that are read in full;
    this sees what begins later. `updates` counts steps of optimizers.
    """

    def __init__(
        self,
        updates: Callable[[], int],
        quiet: Quiet,
    ) -> None:
        self._updates, self._looking = updates, _Looking(quiet, share=0.05)
        # the sequence number at the first backward call of each step
        self._starts = array("Q")
        # and at each call with `create_graph`, until one comes that ends a step
        self._parts = array("Q")
        self._updated, self._fills = -1, False  # whether a call has filled `.grad`
        self._found: dict[str, RetainedHistory] = {}
        self._next = FIRST

    def backward(self, number: int, call: EngineCall) -> None:
        """A call is about to run; one with `create_graph`, or that fills no `.grad`
        where others do, is a part of a step.
        """
        updated, ends = self._updates(), call.accumulates or not self._fills
        if call.accumulates and not self._fills:
            self._fills = True  # the calls before were parts of this step
            self._found.clear()
            self._starts = array("Q")

        if call.create_graph and not self._starts:
            self._parts.append(peek_sequence())

        if ends and not call.create_graph and (updated != self._updated or not updated):
            self._starts.append(peek_sequence())
            self._updated = updated

        if number >= self._next:
            self._next = number * APART
            if self._looking.may_go_on():
                self._look(namespaces(users_frame(call.frame)))

    def ended(self, variables: Variables) -> None:
        """The script has come to its end."""
        # nothing comes that differentiates all of them
        self._starts = self._starts or self._parts
        self._look(variables)

    def result(
        self,
        known: Sequence[RetainedHistory],
    ) -> tuple[RetainedHistory, ...]:
        """What was found beside what is `known`, which other code may call by another
        name.

        Nothing where the outputs themselves carry old graphs along: a variable holds
        these because of that.
        """
        told = {history.name.rpartition(".")[2] for history in known}
        if "" in told:
            return ()
        return tuple(
            history
            for name, history in self._found.items()
            if name.rpartition(".")[2] not in told
        )

    def _look(self, variables: Variables) -> None:
        with self._looking.timed(), isolated():
            for history in self._held(variables) if len(self._starts) > STEPS else ():
                self._found.setdefault(history.name, history)

    def _held(self, variables: Variables) -> Iterator[RetainedHistory]:
        starts, update = self._starts, self._starts is self._parts
        for name, held in {
            **held_elsewhere(variables),
            **held_by(variables),
        }.items():
            numbers = _numbers(live_nodes(held.tensors[-_TENSORS:]))
            old = [
                number
                for number in numbers
                if number < (peek_sequence() if update else starts[-1])
            ]
            steps = {bisect_right(starts, number) for number in old}

            if len(steps) >= STEPS and not is_window(name, variables):
                source = _made_at(max(old))
                if update and name not in {*assigned(source)} & {*read(source)}:
                    continue  # a derivative of a derivative
                added = addition_to(source.file, name) if source is not None else None
                name = as_written(name, variables)
                history = RetainedHistory(
                    name,
                    len(old),
                    None,
                    source,
                    (),
                    added,
                    steps=len(steps),
                )
                yield history._replace(depth=held.depth, update=update)


def _made_at(number: int) -> SourceLine | None:
    """Where the node of this number was made."""
    session = running()
    site = session.event_log().lines.at(number) if session is not None else None
    return line_at(site.place) if site is not None and site.place is not None else None
