"""Lets a long training run unwatched, most of the time.

Where `CALM` backward calls in a row have told nothing new, recording rests. It is
resumed for `AWAKE` of every `PERIOD` calls, and where something
begins: another line that calls backward, an optimizer, a switch of train() or eval().
How a step was made that nobody watched is known from the last one that was watched and
had the same operations in the same order.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch

from gradviz.checks.collect.lines import leaf_of, names_behind, nodes_behind
from gradviz.checks.collect.recorder import Recorder
from gradviz.recording.session import running
from gradviz.walker.isolation import unseen
from gradviz.walker.private import peek_sequence

CALM = 100
AWAKE, PERIOD = 4, 512
KEPT = 8
"""Steps that nobody watched and of which a later call may show nodes."""


class _Step(NamedTuple):
    """The numbers of the nodes made since the call before, and the line that then
    called backward.
    """

    line: Hashable
    numbers: range

    def ops(self, name_of: dict[int, str]) -> dict[int, str]:
        """Names of the nodes of this step, by their place in it."""
        return {
            number - self.numbers.start: name
            for number, name in name_of.items()
            if number in self.numbers
        }


class Rest:
    """Of one run, whose `number`-th backward call came last."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._until, self._began = CALM, 0
        self._watched: dict[Hashable, tuple[_Step, dict[int, str]]] = {}  # by line
        self._passed: deque[_Step] = deque(maxlen=KEPT)
        # for how many calls everything is to be watched from now on, if so
        self._awake = 0
        # backward comes to it last: what breaks on the way shows in its gradient
        self._last_leaf: Callable[[], torch.Tensor | None] = lambda: None

    def passes(self, number: int, line: Hashable, outputs: Any, is_known: bool) -> bool:
        """Whether nobody has watched the step that ends with call `number`."""
        before, self._began = self._began, peek_sequence()
        step = _Step(line, range(before, self._began))
        if self._recorder.rests:
            self._passed.append(step)
            if not is_known or number >= self._until:
                self._awake = AWAKE if is_known else CALM
            return True

        if number > self._until - AWAKE:
            self._watched[line] = step, step.ops(names_behind(outputs))
        if number >= self._until:
            self._last_leaf, self._until = _last_leaf(outputs), number + PERIOD
            self._rest()
        return False

    def engine_ended(self) -> bool:
        """The call has run. Whether nobody watched it, and it has left a gradient that
        is not finite.
        """
        leaf = self._last_leaf() if self._recorder.rests else None
        if self._awake:
            self._resume()
        if leaf is None or type(leaf.grad) is not torch.Tensor:
            return False
        with unseen():
            return not math.isfinite(leaf.grad.sum().item())

    def news(self, *_: Any, **__: Any) -> None:
        """Something has begun: what follows is watched."""
        self._awake = CALM
        # a running engine is to find anomaly mode as the user has it
        if torch._C._current_graph_task_id() == -1:
            self._resume()

    def recall(self, outputs: Any) -> None:
        """What is behind these is to be read: what is known of steps that were watched
        holds for those that were passed and were like them.
        """
        name_of, session = names_behind(outputs), running()
        while session is not None and self._passed:
            step = self._passed.popleft()
            watched, ops = self._watched.get(step.line, (step, {}))
            if ops and ops == step.ops(name_of):
                session.event_log().repeat(watched.numbers, step.numbers.start)

    def _rest(self) -> None:
        self._recorder.rests = self._recorder.rested = True
        self._passed.clear()
        session = running()
        if session is not None:
            session.rest()

    def _resume(self) -> None:
        until, self._awake = self._recorder.number + self._awake, 0
        if not self._recorder.rests:
            self._until = max(self._until, until)
            return

        self._recorder.rests, self._until = False, until
        session = running()
        if session is not None:
            session.resume()


def _last_leaf(outputs: Any) -> Callable[[], torch.Tensor | None]:
    """The smallest leaf of the op that ran first, held weakly; None where there is no
    plain one.
    """
    found: dict[tuple[int, int], torch.Tensor] = {}
    for node in nodes_behind(outputs):
        for producer, _ in node.next_functions:
            leaf = leaf_of(producer)
            if type(leaf) is torch.nn.Parameter and leaf.layout == torch.strided:
                found.setdefault((node._sequence_nr(), leaf.numel()), leaf)
    return weakref.ref(found[min(found)]) if found else lambda: None
