"""Follows a run beyond the backward calls that are read in full, at little cost: which
to read as well, and what is held or recorded in vain.

What looking costs is measured: beyond a share of the script's time it looks at less.
Keeps numbers of nodes, and no node. Concludes nothing.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from types import CodeType

import torch

from gradviz.checks.collect.calls import Misuses
from gradviz.checks.collect.held import held_since
from gradviz.checks.collect.lines import (
    Variables,
    leaf_of,
    line_at,
    nodes_behind,
    users_frame,
)
from gradviz.checks.collect.numbers import is_broken, largest_left, loss_of
from gradviz.checks.collect.recorder import RunRecorder
from gradviz.checks.poles import at_a_pole
from gradviz.checks.run import RetainedHistory, Unused
from gradviz.graph import SourceLine
from gradviz.packages import Place, PlaceOf
from gradviz.recording.event_log import Evaluation
from gradviz.recording.session import running
from gradviz.run.engine import EngineCall
from gradviz.variables.scanner import namespaces
from gradviz.walker.private import Node, peek_sequence

FREE, SHARE = 0.2, 0.05
"""Seconds that looking may take in any case, and of the time since the script began."""

SUSPECTS = 3
"""Calls that are read because of an operation at a pole; more of them tell nothing new.
"""

KEPT = 1000
"""Losses that are kept."""

TIMES, MORE = 3, 9
"""How often each line that calls backward is read, again when an optimizer is made or a
parameter takes part for the first time; and how many calls are read for that.
"""

DEAD = 5
"""Calls in a row that leave a leaf a gradient of zeros, after which one call is read.
"""

FIRST, APART = 16, 4
"""It looks for what is held at call 16, and whenever there were four times as many."""

STEPS = 3
"""Steps whose graphs a variable holds, from which it is said."""

_UNREACHED = 3
"""Backward calls after which a pass that none of them has reached is taken for unused.
"""
_LOOKS = 30
"""Calls whose nodes are compared with those of passes, and of retained graphs."""
_IN_VAIN = 3  # calls of one line that retain a graph which nobody needs

_Passes = list[Evaluation]


@dataclass
class _Retaining:
    """A line whose backward calls retain their graphs."""

    place: Place
    numbers: set[int] = field(default_factory=set)
    calls: int = 0
    needed: bool = False


class RunWatch:
    """Of one run. `passed` is told of every call, and whether it is read. Where losses
    are scaled, gradients that are not finite are part of the plan.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        place: PlaceOf,
        misuses: Misuses,
        passed: Callable[[int, EngineCall, bool], None],
        quiet: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._recorder, self._record, self._passed = recorder, recorder.record, passed
        self._place, self._misuses, self._quiet = place, misuses, quiet
        self._began, self._spent = time.perf_counter(), 0.0
        self._suspects, self._more, self._looks = SUSPECTS, MORE, _LOOKS
        self._stage = 0
        # that called backward, in calls that were read
        self._lines: Counter[tuple[CodeType, int]] = Counter()
        self._in_a_row, self._number = True, 0
        self._leaves: list[torch.Tensor] = []  # between a call and its end
        # calls in a row that left a leaf a gradient of zeros, by identity
        self._zero: Counter[int] = Counter()
        # passes in a row from one line, and calls that did not reach them
        self._waiting: list[tuple[_Passes, int]] = []
        self._retaining: dict[object, _Retaining] = {}
        # the sequence number at the first backward call of each step
        self._starts, self._updates, self._fills = array("Q"), -1, False
        self._next = FIRST
        self._held: dict[str, RetainedHistory] = {}
        self.unused: dict[SourceLine, Unused] = {}
        self.seen_enough = False
        self.reached: set[int] = set()  # identities of leaves that calls have led to
        # the last call that left a leaf a gradient other than zero, by identity
        self.nonzero: dict[int, int] = {}
        self.looked: list[int] = []  # calls whose gradients were looked at
        self.losses = deque[tuple[int, float]](maxlen=KEPT)  # call and loss

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Inside, tensors of the user's own classes may refuse anything: then nothing
        is seen.
        """
        began = time.perf_counter()
        try:
            with self._quiet(), suppress(Exception):
                yield
        finally:
            self._spent += time.perf_counter() - began

    def _may_look(self) -> bool:
        elapsed = time.perf_counter() - self._began
        return self._spent <= max(FREE, SHARE * elapsed)

    # -- which calls to read as well ---------------------------------------------------

    def before(self, number: int, call: EngineCall, reading: bool) -> bool:
        """Whether the call is to be read, for what its tensors show, or because it is
        read anyway.
        """
        self._leaves, self._number, line = [], number, _line(call)
        # what trains is new: each line is read anew
        if self._recorder.stage != self._stage:
            self._stage = self._recorder.stage
            self._lines.clear()

        plain = call.accumulates and not call.create_graph
        few = plain and self._lines[line] < TIMES
        wanted = not reading and (few or self._shows_a_death())
        more = wanted and self._more > 0
        self._more -= more
        reading = reading or more
        self._lines[line] += reading
        self._in_a_row = self._in_a_row and reading
        self._passed(number, call, self._in_a_row)

        with self._timed():
            self._look(number, call)
            self.seen_enough |= self._breaks(number, call)
            if not (reading or self.seen_enough) and self._may_look():
                reading = self._shows(call, plain)
        return reading or self.seen_enough

    def _shows(self, call: EngineCall, plain: bool) -> bool:
        """Whether the nodes that a call runs through show why to read it."""
        nodes = nodes_behind(call.outputs)
        leaves = map(leaf_of, nodes)
        self._leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.reached.update(map(id, self._leaves))
        return (plain and self._thaws()) or self._is_suspicious(nodes)

    def _breaks(self, number: int, call: EngineCall) -> bool:
        """Whether the loss, which is noted, is no number any more."""
        loss = loss_of(call.outputs[0]) if len(call.outputs) == 1 else None
        if loss is not None:
            self.losses.append((number, loss))
        return is_broken(loss, scaled=self._record.scaled)

    def _thaws(self) -> bool:
        """Whether a parameter takes part that no call which was read has led to."""
        known = self._record.leaves
        thaws = self._more > 0 and any(
            type(leaf) is torch.nn.Parameter and id(leaf) not in known
            for leaf in self._leaves
        )
        if thaws:
            self._more -= 1
            self._lines.clear()
        return thaws

    def _shows_a_death(self) -> bool:
        """Whether a gradient has become zero and stayed so, which one call is to show."""
        dead = [key for key in self.nonzero if self._zero[key] == DEAD]
        self._zero.update(dead)
        return bool(dead)

    def _is_suspicious(self, nodes: list[Node]) -> bool:
        unscaled = not self._record.scaled and self._suspects > 0
        suspicious = unscaled and at_a_pole(nodes)
        self._suspects -= suspicious
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

        with self._timed():
            largest = largest_left(leaves)
            self.seen_enough = not all(map(math.isfinite, largest.values()))
            self.looked.append(self._number)
            for key, most in largest.items():
                self._zero[key] = 0 if most else self._zero[key] + 1
                if most:
                    self.nonzero[key] = self._number

        return self.seen_enough

    # -- what is recorded and held in vain ---------------------------------------------

    def _look(self, number: int, call: EngineCall) -> None:
        """A call is about to run."""
        self._counts_step(call)
        self._take_passes()
        plain = call.retains and not call.create_graph
        if self._looks and (self._waiting or self._retaining or plain):
            self._looks -= 1
            self._compare(call, plain)
        if not self._looks:
            self._waiting.clear()  # nobody has looked whether this graph reaches them

        if number >= self._next:
            self._next = number * APART
            if self._may_look():
                self._look_for_held(namespaces(users_frame(call.frame)))

    def ended(self, variables: Variables) -> None:
        """The script has come to its end: nothing will use what is retained, or reach
        what is waiting.
        """
        with self._timed():
            self._take_passes()
            for passes, _ in self._waiting:
                self._add(passes)
            self._look_for_held(variables)
        for line in self._retaining.values():
            if not line.needed and line.calls >= _IN_VAIN:
                self._misuses.note("retains in vain", line.place, line.calls)

    def _compare(self, call: EngineCall, retains: bool) -> None:
        """Which passes, and which graphs that were retained, a call reaches."""
        nodes = nodes_behind(call.outputs)
        numbers = {one._sequence_nr() for one in nodes if leaf_of(one) is None}
        aged = [
            (passes, calls + 1)
            for passes, calls in self._waiting
            if not any(_reaches(numbers, one) for one in passes)
        ]
        self._waiting = [
            (passes, calls) for passes, calls in aged if calls < _UNREACHED
        ]
        for passes, calls in aged:
            if calls >= _UNREACHED:
                self._add(passes)

        for line in self._retaining.values():
            line.needed |= not line.numbers.isdisjoint(numbers)
        place = self._place(call.frame) if retains else None
        if place is not None:
            key = place.script_line or place.source
            line = self._retaining.setdefault(key, _Retaining(place))
            line.numbers |= numbers
            line.calls += 1

    def _take_passes(self) -> None:
        """Those in eval() mode since the last backward call: several from one line are
        a pass over data, one alone is a step.
        """
        session = running()
        noted = session.event_log().evaluations if session is not None else None
        passes: dict[int, _Passes] = {}
        while noted:
            evaluation = noted.popleft()
            # places are made once for each line
            passes.setdefault(id(evaluation.place), []).append(evaluation)
        self._waiting += [(one, 0) for one in passes.values() if len(one) > 1]

    def _add(self, passes: _Passes) -> None:
        source, calls = line_at(passes[0].place), len(passes)
        known = self.unused.get(source)
        if known is None or calls > known.calls:
            nodes = sum(one.ended - one.began for one in passes)
            self.unused[source] = Unused(source, passes[0].type, calls, nodes)

    def _counts_step(self, call: EngineCall) -> None:
        """One with `create_graph`, or that fills no `.grad` where others do, is a part
        of a step.
        """
        if call.accumulates and not self._fills:
            self._fills, self._starts = True, array("Q")
        ends = (call.accumulates or not self._fills) and not call.create_graph
        updates = self._record.updates
        if ends and (updates != self._updates or not updates):
            self._starts.append(peek_sequence())
            self._updates = updates

    def _look_for_held(self, variables: Variables) -> None:
        """Note the variables that hold the graphs of several earlier steps: what began
        to grow after the calls that are read in full.
        """
        if len(self._starts) > STEPS:
            for history in held_since(variables, self._starts, STEPS):
                self._held.setdefault(history.name, history)

    def histories(
        self, known: Sequence[RetainedHistory]
    ) -> tuple[RetainedHistory, ...]:
        """What was found beside what is `known`, which other code may call by another
        name.

        Nothing where the outputs themselves carry old graphs along: a variable holds
        these because of that.
        """
        told = {history.name.rpartition(".")[2] for history in known}
        found = self._held.items() if "" not in told else ()
        return tuple(
            history for name, history in found if name.rpartition(".")[2] not in told
        )


def _line(call: EngineCall) -> tuple[CodeType, int]:
    """The line outside torch that makes a call."""
    frame = users_frame(call.frame) or call.frame
    return frame.f_code, frame.f_lineno


def _reaches(numbers: set[int], evaluation: Evaluation) -> bool:
    """Whether a pass made one of the nodes with these numbers."""
    return not numbers.isdisjoint(range(evaluation.began, evaluation.ended))
