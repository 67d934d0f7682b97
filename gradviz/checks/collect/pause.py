"""Lets a long training run unwatched: recording pauses after `CALM` backward calls, and
goes on for as many where something begins: another line that calls backward, an
optimizer, a switch of train() or eval().

How a step was made that nobody watched is known from the last one that was watched and
had the same operations in the same order.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch

from gradviz.armour.isolation import unseen
from gradviz.checks.collect.behind import leaf_of, names_behind, nodes_behind
from gradviz.checks.collect.recorder import Recorder
from gradviz.gradients.values import BASE
from gradviz.recording.session import running
from gradviz.walker.private import peek_sequence

CALM = 100
"""Backward calls that are watched from where something begins."""
_KEPT = 4
"""The last of these, whose steps are kept to compare later ones with: so many lines may
call backward in turn.
"""


class _Step(NamedTuple):
    """The numbers of the nodes made since the call before, with their names by their
    place among them.
    """

    numbers: range
    ops: dict[int, str]


class Pause:
    """Of one run, whose `number`-th backward call came last."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._until, self._began = CALM, 0
        self._watched: dict[Hashable, _Step] = {}  # by the line that called backward
        self._passed: tuple[Hashable, range] = None, range(0)
        self._begins = False  # what comes after this call is watched
        # backward comes to it last: what breaks on the way shows in its gradient
        self._last_leaf: Callable[[], torch.Tensor | None] = lambda: None

    def passes(self, number: int, line: Hashable, outputs: Any, is_known: bool) -> bool:
        """Whether nobody has watched the step that ends with call `number`."""
        before, self._began = self._began, peek_sequence()
        step = range(before, self._began)
        if self._recorder.paused:
            self._passed = line, step
            self._begins |= not is_known
            return True

        if number > self._until - _KEPT:
            self._watched[line] = _Step(step, _ops(outputs, step))
        if number >= self._until:
            self._last_leaf = _last_leaf(outputs)
            self._pause()
        return False

    def engine_ended(self) -> bool:
        """The call has run. Whether nobody watched it, and it has left a gradient that
        is not finite.
        """
        leaf = self._last_leaf() if self._recorder.paused else None
        if self._begins:
            self._resume()
        grad = leaf.grad if leaf is not None else None
        if type(grad) is not torch.Tensor:
            return False
        with unseen():
            return not math.isfinite(BASE.item(torch.sum(grad)))

    def news(self, *_: Any, **__: Any) -> None:
        """Something has begun: what follows is watched."""
        self._begins = True
        # a running engine is to find anomaly mode as the user has it
        if torch._C._current_graph_task_id() == -1:
            self._resume()

    def recall(self, outputs: Any) -> None:
        """What is behind these is to be read: what is known of the step that was watched
        holds for the one that was passed and was like it.
        """
        line, numbers = self._passed
        watched, session = self._watched.get(line), running()
        if watched is None or session is None or not watched.ops:
            return
        if watched.ops == _ops(outputs, numbers):
            session.event_log().repeat(watched.numbers, numbers.start)

    def _pause(self) -> None:
        self._recorder.paused = self._recorder.was_paused = True
        session = running()
        if session is not None:
            session.pause()

    def _resume(self) -> None:
        self._until, self._begins = self._recorder.number + CALM, False
        session = running()
        if self._recorder.paused and session is not None:
            session.resume()
        self._recorder.paused = False


def _ops(outputs: Any, step: range) -> dict[int, str]:
    """The names of the nodes of a step that are behind its outputs."""
    names = names_behind(outputs).items()
    return {number - step.start: name for number, name in names if number in step}


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
