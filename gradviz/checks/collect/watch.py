"""Follows a run beyond the backward calls that are read in full, at little cost: which
to read as well, and what is held or recorded in vain.

What looking costs is measured: beyond a share of the script's time it looks at less.
Keeps numbers of nodes, and no node. Concludes nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch

from gradviz.armour.taps import Began
from gradviz.checks.collect.behind import (
    Variables,
    leaves_behind,
    leaves_of,
    names_behind,
    nodes_behind,
)
from gradviz.checks.collect.copies import rebound
from gradviz.checks.collect.numbers import at_poles, gradients_left, is_broken, loss_of
from gradviz.checks.collect.pause import Pause
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.graph import SourceLine
from gradviz.packages import users_frame
from gradviz.recording.event_log import Evaluation
from gradviz.recording.session import running
from gradviz.run.engine import EngineCall
from gradviz.run.selection import CallWatch
from gradviz.variables.scanner import namespaces

FREE, SHARE = 0.2, 0.05
"""Seconds that looking may take in any case, and of the time since the script began."""
SUSPECTS = 3
"""Calls that are read because of an operation at a pole; more of them tell nothing new.
"""
TIMES, MORE = 3, 9
"""How often each line that calls backward is read, and again when an optimizer is made;
and how many calls are read for that.
"""
CHANGES = 4
"""Calls that are read because a parameter is reached that was not there before."""
DEAD = 5
"""Calls in a row that leave a leaf a gradient of zeros, after which one call is read.
"""
FIRST, APART = 16, 4
"""It looks for what is held at call 16, and whenever there were four times as many."""
_LOOKS = 30
"""Calls whose nodes are compared with those of passes, and of retained graphs; what
none of them met is taken for unused.
"""
_IN_VAIN = 3  # calls of one line that retain a graph which nobody needs


@dataclass
class _Unmet:
    """Graphs that a line has made or retained: the numbers of their nodes, and how many
    in a row; and whether a later call met one.
    """

    numbers: list[range] = field(default_factory=list)
    times: int = 0
    met: bool = False


class RunWatch(CallWatch):
    """Of one run. Where losses are scaled, gradients that are not finite are part of
    the plan.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._run = recorder, recorder.run
        self._began, self._spent = time.perf_counter(), 0.0
        self._suspects, self._more, self._looks = SUSPECTS, MORE, _LOOKS
        self._changes = CHANGES
        # that called backward, in calls that were read
        self._lines: Counter[tuple[CodeType, int, int]] = Counter()
        # by identity, between a call and its end
        self._leaves: dict[int, torch.Tensor] = {}
        # calls in a row that left a leaf a gradient of zeros, after one that did not, by
        # identity
        self._zero: Counter[int] = Counter()
        # by line, with what is said of it
        self._unmet: dict[tuple[Kind, SourceLine, str], _Unmet] = {}
        self._next = FIRST
        self._pause = Pause(recorder)
        self._broke = False  # a call that nobody watched left a gradient that is NaN

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        """Reads one part of what is known at a call."""
        began = time.thread_time()  # not what other processes take meanwhile
        try:
            with self._recorder.reading(part):
                yield
        finally:
            self._spent += time.thread_time() - began

    def _may_look(self) -> bool:
        elapsed = time.perf_counter() - self._began
        return self._spent <= max(FREE, SHARE * elapsed)

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        """What says that another part of the script begins."""
        yield torch.nn.Module.train, self._pause.news
        yield torch.optim.Optimizer.__init__, self._pause.news

    # -- which calls to read as well ---------------------------------------------------

    def passes(self, number: int, call: EngineCall) -> bool:
        """Whether nothing of the call is looked at but its loss, which is a number."""
        line = self._line(call)
        is_known = line in self._lines
        if not self._pause.passes(number, line, call.outputs, is_known):
            return False

        self._leaves = {}
        loss = loss_of(call.outputs)
        # of a line that is new, the next call shows more
        if is_known and is_broken(loss, self._run.scaled):
            self._recall(call)
            return False
        self._recorder.backward(number, call, loss)
        return True

    def _recall(self, call: EngineCall) -> None:
        """A call that nobody watched is to be looked at."""
        with self._timed("an unwatched call"):
            self._pause.recall(call.outputs)
            self._leaves = leaves_behind(call.outputs)

    def before(self, number: int, call: EngineCall, reading: bool) -> bool:
        """Whether the call is to be read, for what its tensors show, or because it is
        read anyway.
        """
        self._leaves, line = {}, self._line(call)
        plain = call.accumulates and not call.create_graph
        few = plain and self._lines[line] < TIMES
        if not reading and self._more > 0 and (few or self._shows_a_death()):
            self._more -= 1
            reading = True
        self._lines[line] += reading
        with self._timed("losses and graphs"):
            loss = loss_of(call.outputs)
            self._recorder.backward(number, call, loss)
            if reading and call.inputs:
                asked = leaves_behind(call.inputs)
                self._run.differentiated_by.update(asked, map(id, call.inputs))
            self.seen_enough |= is_broken(loss, self._run.scaled)
            self._look(number, call)
            if not (reading or self.seen_enough) and self._may_look():
                reading = self._shows(call)
        return reading or self.seen_enough

    def _line(self, call: EngineCall) -> tuple[CodeType, int, int]:
        """The line outside torch that makes a call."""
        frame = users_frame(call.frame) or call.frame
        # where an optimizer was made, what trains is new, and each line read anew
        return frame.f_code, frame.f_lineno, len(self._run.optimizers)

    def _shows(self, call: EngineCall) -> bool:
        """Whether the nodes that a call runs through show why to read it."""
        nodes = nodes_behind(call.outputs)
        self._leaves = leaves_of(nodes)
        for key in self._leaves:
            self._run.used.update(self._run.names.get(key, ()))
        suspicious = (
            self._suspects > 0 and not self._run.scaled and bool(at_poles(nodes))
        )
        self._suspects -= suspicious
        # a layer that was replaced, or a model that was copied
        changed = False
        if self._changes > 0:
            changed = any(map(self._is_new, self._leaves.values()))
            self._changes -= changed
        return suspicious or changed

    def _is_new(self, leaf: torch.Tensor) -> bool:
        """Whether a parameter is met only now, after an optimizer was made; until calls
        with it have shown whether it is trained.
        """
        if not self._run.stepped or type(leaf) is not torch.nn.Parameter:
            return False
        row = self._run.leaves.get(id(leaf))
        return row is None or row.reached < TIMES

    def _shows_a_death(self) -> bool:
        """Whether a gradient has become zero and stayed so, which one call is to show."""
        dead = [key for key, times in self._zero.items() if times == DEAD]
        self._zero.update(dead)
        return bool(dead)

    def engine_ended(self) -> bool:
        """The call has run: whether to look at what it left."""
        self._broke = self._pause.engine_ended()
        return bool(self._leaves) or self._broke

    def after(self, filled: bool | None, call: EngineCall) -> bool:
        """Whether the call that has run is to be read, for the gradients that it left."""
        if filled is None or self._broke:
            self._recall(call)
        leaves, self._leaves = self._leaves, {}
        if not filled or not leaves or self._run.scaled:
            return False

        with self._timed("gradients of later calls"):
            left = gradients_left(leaves)
            self.seen_enough = any(gradient.nonfinite for gradient in left)
            self._run.looked.append(self._recorder.number)
            self._recorder.left(left, leaves)
            for gradient in left:
                if gradient.norm:
                    self._zero[gradient.node] = 0
                elif gradient.node in self._zero:
                    self._zero[gradient.node] += 1

        return self.seen_enough

    # -- what is recorded and held in vain ---------------------------------------------

    def _look(self, number: int, call: EngineCall) -> None:
        """A call is about to run."""
        self._take_passes()
        retains = call.retains and not call.create_graph
        if not self._looks:
            self._unmet.clear()  # nobody looks whether a call meets them
        elif self._unmet or retains:
            self._looks -= 1
            self._compare(call, retains)
            if not self._looks:
                self._note_unmet()

        if number >= self._next:
            self._next = number * APART
            if self._may_look():
                self._look_at(namespaces(users_frame(call.frame)))

    def ended(self, variables: Variables) -> None:
        """The script has come to its end: nothing more will meet a graph."""
        with self._timed("what variables hold"):
            self._take_passes()
            self._note_unmet()
            self._look_at(variables)

    def _look_at(self, variables: Variables) -> None:
        self._recorder.look(variables)
        for note in rebound(variables):
            self._recorder.note(*note)

    def _compare(self, call: EngineCall, retains: bool) -> None:
        """Which passes, and which graphs that were retained, a call meets."""
        numbers = names_behind(call.outputs).keys()
        for unmet in self._unmet.values():
            unmet.met |= not all(map(numbers.isdisjoint, unmet.numbers))

        source = self._recorder.script_line(call.frame) if retains else None
        if source is not None and numbers:
            unmet = self._unmet.setdefault((Kind.RETAINED, source, ""), _Unmet())
            unmet.numbers.append(range(min(numbers), max(numbers) + 1))
            unmet.times += 1

    def _take_passes(self) -> None:
        """Those in eval() mode since the last backward call: several from one line are
        a pass over data, one alone is a step.
        """
        session = running()
        noted = session.event_log().evaluations if session is not None else None
        passes: dict[int, list[Evaluation]] = {}
        while noted:
            evaluation = noted.popleft()
            # places are made once for each line
            passes.setdefault(id(evaluation.place), []).append(evaluation)

        for first, *others in passes.values():
            if others:
                key = Kind.UNUSED, first.place.own_line, first.type
                unmet = self._unmet.setdefault(key, _Unmet())
                ranges = (range(each.began, each.ended) for each in (first, *others))
                unmet.numbers += ranges
                unmet.times = max(unmet.times, 1 + len(others))

    def _note_unmet(self) -> None:
        for (kind, source, about), unmet in self._unmet.items():
            if not unmet.met and (kind is Kind.UNUSED or unmet.times >= _IN_VAIN):
                self._recorder.note(kind, source, about, times=unmet.times)
        self._unmet.clear()
