"""Follows a script's backward calls after those that are read in full, at little cost, and says which to read as well.

That is one whose loss is not finite, one with an operation where gradients may not be, and one that left such gradients. What
it costs is measured: beyond a share of the script's time it looks at the loss only.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import CodeType, FrameType

import torch

from gradviz.checks.collect.gradients_left import largest_left
from gradviz.checks.collect.leaf_watch import is_broken, loss_of
from gradviz.checks.collect.poles import at_a_pole
from gradviz.packages import is_foundation
from gradviz.run.engine import EngineCall
from gradviz.walker.outputs import flatten
from gradviz.walker.private import Node
from gradviz.walker.walk import live_nodes

SHARE = 0.1
"""Of the time since the script began, what looking may take before it looks at less."""

FREE = 0.2
"""Seconds that it may take in any case."""

SUSPECTS = 3
"""Calls that are read because of an operation at a pole; more of them tell nothing new."""

KEPT = 1000
"""Losses that are kept."""

TIMES, MOST = 3, 9
"""How often each of several lines that call backward in turn is read, and how many calls in all: three of one step tell little."""


class CallWatch:
    """Of one run. `scaled` says whether the losses are scaled: then gradients that are not finite are part of the plan.

    `passed` is told of every call, and whether it is read; `quiet` is around what it does itself.
    """

    def __init__(
        self,
        scaled: Callable[[], bool],
        passed: Callable[[int, EngineCall, bool], None],
        quiet: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._scaled, self._passed, self._quiet = scaled, passed, quiet
        self._began = time.perf_counter()
        self._spent = 0.0
        self._left = SUSPECTS
        self._lines: Counter[tuple[CodeType, int]] = Counter()  # that called backward, while all calls were read
        self._in_a_row = True
        self._leaves: list[torch.Tensor] = []  # between a call and its end
        self.seen_enough = False
        self.reached: set[int] = set()  # identities of leaves that calls have led to
        self.nonzero: set[int] = set()  # identities of leaves that calls have left a gradient other than zero
        self.losses: list[tuple[int, float]] = []  # call and loss

    def before(self, number: int, call: EngineCall, reading: bool) -> bool:
        """Whether the call is to be read, for what its tensors show, or because it is read anyway."""
        self._leaves = []
        reading = reading or self._has_its_turn(call)
        self._lines[_line(call)] += 1
        self._in_a_row = self._in_a_row and reading
        self._passed(number, call, reading)
        with self._timed():
            loss = loss_of(call.outputs[0]) if len(call.outputs) == 1 else None
            if loss is not None:
                self.losses = [*self.losses[-KEPT:], (number, loss)]
            if is_broken(loss, scaled=self._scaled()):
                self.seen_enough = True
            elif not reading and self._spent <= max(FREE, SHARE * (time.perf_counter() - self._began)):
                reading = self._suspicious(live_nodes([output for _, output in flatten(list(call.outputs))]))
        return reading or self.seen_enough

    def _has_its_turn(self, call: EngineCall) -> bool:
        """Whether lines take turns, all calls so far were read, and one of the lines was not yet read often enough."""
        lines = {*self._lines, _line(call)}
        fewest = min(self._lines[line] for line in lines)
        return (
            self._in_a_row
            and len(lines) > 1
            and fewest < TIMES
            and self._lines.total() < MOST
            and not call.create_graph
        )

    def _suspicious(self, nodes: list[Node]) -> bool:
        self._leaves = [leaf for node in nodes if isinstance(leaf := leaf_of(node), torch.Tensor)]
        self.reached.update(map(id, self._leaves))
        suspicious = self._left > 0 and not self._scaled() and at_a_pole(nodes)
        self._left -= suspicious
        return suspicious

    def after(self, filled: bool | None) -> bool:
        """Whether the call that has run is to be read, for the gradients that it left."""
        leaves, self._leaves = self._leaves, []
        if not filled or not leaves or self._scaled():
            return False
        with self._timed():
            largest = largest_left(leaves)
            self.seen_enough = not all(map(math.isfinite, largest.values()))
            self.nonzero.update(key for key, most in largest.items() if most)
        return self.seen_enough

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            with self._quiet():
                yield
        except Exception:  # tensors of the user's own classes may refuse anything: this call is not looked at
            pass
        finally:
            self._spent += time.perf_counter() - began


def _line(call: EngineCall) -> tuple[CodeType, int]:
    """The line outside torch that makes a call."""
    frame: FrameType = call.frame
    while frame.f_back is not None and is_foundation(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code, frame.f_lineno


def leaf_of(node: Node) -> object:
    """The leaf of an AccumulateGrad; None for other nodes."""
    return getattr(node, "variable", None) if type(node).__name__ == "AccumulateGrad" else None
