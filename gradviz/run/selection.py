"""Which of a script's backward calls are read.

A selection is told of every call, says which it wants, and when it has had enough.
Knows nothing of how a call is read.
"""

from __future__ import annotations

import _thread
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import CodeType

from gradviz.packages import users_frame
from gradviz.run.engine import EngineCall

PARTS = 4
"""Of several calls, at most this many for each: a call with `create_graph` is a part of
a step, read with the one that ends it.
"""

SECONDS = (10.0, 60.0)
"""How long a script runs on after what was read, to see what follows: as long as it
took to get there, within these bounds.
"""
LONGER = 10.0
"""And so much longer at most where it had the processor for less than half of that."""

TURNS = 10
"""Calls of one line, after which no other line is expected to follow."""

CALLS = 1000
"""For how many calls of `autograd.grad` at most."""


class CallWatch:
    """What follows calls that are not read, at little cost. `seen_enough`: whatever
    comes now follows from what was read.
    """

    seen_enough = False

    def passes(self, number: int, call: EngineCall) -> bool:
        """Whether call `number`, which is about to run, is passed over."""
        return False

    def before(self, number: int, call: EngineCall, reading: bool) -> bool:
        """Whether call `number`, which is about to run, is to be read; `reading` when
        it is anyway.
        """
        return False

    def engine_ended(self) -> bool:
        """Whether to look at what a call left that has run."""
        return False

    def after(self, filled: bool | None, call: EngineCall) -> bool:
        """The same as `before` when it has run. `filled` as in `Afterwards`."""
        return False


class OneTurn(CallWatch):
    """The watch of one turn of a training: of each line the first call. It is over when
    one of them calls for the `TURNS`-th time.
    """

    def __init__(self) -> None:
        self._lines = Counter[tuple[CodeType, int]]()

    def before(self, number: int, call: EngineCall, reading: bool) -> bool:
        frame = users_frame(call.frame) or call.frame
        line = frame.f_code, frame.f_lineno
        self._lines[line] += 1
        self.seen_enough |= self._lines[line] >= TURNS
        return self._lines[line] == 1 and (call.accumulates or number == 1)


class Selection:
    """Wants no call. `standing_in` says that what was read gives way to a later call,
    if one comes.

    `timed_out`: it had enough because there was no time left. `out_of_patience` is
    then called from a thread of its own, for a call may never come.
    """

    standing_in = timed_out = False

    def __init__(self, out_of_patience: Callable[[], None] = lambda: None) -> None:
        self.enough = False
        self._out_of_patience = out_of_patience
        self._began = time.monotonic()
        self._over = threading.Event()

    def wants(self, number: int, call: EngineCall) -> bool:
        """Whether to read call `number`, counted from 1. Not asked once it was
        `enough`.
        """
        return False

    def took(self, call: EngineCall) -> None:
        """The call was read, or reading it failed."""

    def ended(self, filled: bool | None, call: EngineCall) -> bool:
        """The engine has ended after a call that was not read. Whether to read it now:
        its tensors are there still.
        """
        return False

    def remarks(self, number: int, call: EngineCall, place: str) -> tuple[str, ...]:
        """What to know about a call that is to be read and that nobody chose."""
        return ()

    def settle(self) -> None:
        """Nothing more will be read."""
        self.enough = True
        self._over.set()

    def _wait_for_more(self) -> None:
        least, most = SECONDS
        seconds = min(max(least, time.monotonic() - self._began), most)
        _thread.start_new_thread(self._wait, (seconds,))

    def _wait(self, seconds: float) -> None:
        began = time.process_time()
        if self._over.wait(seconds):
            return
        # where other processes had the machine, the script has hardly run
        hardly_ran = time.process_time() - began < seconds / 2
        if hardly_ran and self._over.wait(min(seconds, LONGER)):
            return
        self.timed_out = True
        self._out_of_patience()


class Chosen(Selection):
    """The calls with these numbers."""

    def __init__(self, numbers: Collection[int]) -> None:
        super().__init__()
        self._left = set(numbers)

    def wants(self, number: int, call: EngineCall) -> bool:
        wanted = number in self._left
        self._left.discard(number)
        return wanted

    def took(self, call: EngineCall) -> None:
        self.enough = not self._left


class InARow(Selection):
    """So many steps in a row, from call `first` on; and after those the calls that
    `watch` asks for, until the time is over (`SECONDS`), or `to_end` of the script.

    When it is over, the next call ends the run; `out_of_patience` is called from a
    thread of its own where none comes.
    """

    def __init__(
        self,
        first: int,
        steps: int,
        watch: CallWatch | None,
        to_end: bool,
        out_of_patience: Callable[[], None],
    ) -> None:
        super().__init__(out_of_patience)
        self._first, self._steps = first, steps
        # where every call builds a graph, their number has to end it
        self._calls = 1 if steps == 1 else steps * PARTS
        self._watch, self._to_end = watch, to_end
        self._watching = False

    def wants(self, number: int, call: EngineCall) -> bool:
        reading = not self._watching and number >= self._first
        if self._watch is None:
            return reading
        # asked at every call, since it counts what it sees
        return self._watch.before(number, call, reading) and (self._watching or reading)

    def took(self, call: EngineCall) -> None:
        # a call that builds a graph of gradients is a part of its step, as in a
        # gradient penalty
        self._steps -= not call.create_graph
        self._calls -= 1
        over = self._steps <= 0 or self._calls <= 0
        if self._watch is None:
            self.enough = over
            return

        if over and not self._watching:
            self._watching = True
            if not self._to_end:
                self._wait_for_more()
        self.enough = self._watch.seen_enough or self.timed_out

    def ended(self, filled: bool | None, call: EngineCall) -> bool:
        if self._watch is None:
            return False
        wanted = self._watching and (self._watch.after(filled, call) or filled is None)
        self.enough = self.enough or self._watch.seen_enough
        return wanted


class FirstBackward(Selection):
    """The first backward(). A call of `autograd.grad` before it stands in for it, for
    as long as the step lasts.

    The step is over when an optimizer has stepped, which `Run` sees, after `SECONDS`
    and after `CALLS`.
    """

    def __init__(self, out_of_patience: Callable[[], None]) -> None:
        super().__init__(out_of_patience)
        self._first_place = ""  # of the call that a backward() is preferred to

    def wants(self, number: int, call: EngineCall) -> bool:
        # a program that calls autograd.grad only: the first call is what was meant
        if number > CALLS and not call.accumulates:
            self.settle()
            return False
        return call.accumulates or not self.standing_in

    def took(self, call: EngineCall) -> None:
        if call.accumulates:
            self.settle()
        elif not self.standing_in:
            # autograd.grad may be a part of a step whose backward() comes later
            self.standing_in = True
            self._wait_for_more()

    def remarks(self, number: int, call: EngineCall, place: str) -> tuple[str, ...]:
        """Which calls were passed over for it, or what it stands in for."""
        if not call.accumulates:
            self._first_place = place
            return (
                "no backward() followed it in the same step; --at 2 shows the next call, if there is one",
            )

        if number == 1:
            return ()

        if number > 2:
            before = f"{number - 1} calls of autograd.grad"
        else:
            before = "a call of autograd.grad"

        return (
            f"{before} came before this backward(), the first at {self._first_place}: --at 1 shows it",
        )


@contextmanager
def after_optimizer_step(action: Callable[..., None]) -> Iterator[None]:
    """Inside, act when any optimizer has stepped."""
    hook = getattr(
        sys.modules.get("torch.optim.optimizer"),
        "register_optimizer_step_post_hook",
        None,
    )
    handle = hook(action) if hook is not None else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()
