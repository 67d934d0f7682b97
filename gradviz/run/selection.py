"""Which of a script's backward calls are read.

A selection is told of every call, says which it wants, and when it has had enough. Knows nothing of how a call is read.
"""

from __future__ import annotations

import _thread
import linecache
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from gradviz.packages import is_foundation, package_of
from gradviz.run.engine import EngineCall
from gradviz.variables.scanner import Namespace, name_of

# What a call of backward is called: what the user wrote, and where.

_NAMED = 3  # outputs of one call that are named
_CALLED_ON = re.compile(r"(?<![\w.)\]])([A-Za-z_][\w.]*(?:\[\w+\])?)\.backward\(")  # `out.loss`, `losses[0]`; no call


def call_words(call: EngineCall, variables: Sequence[Namespace], outermost: CodeType) -> str:
    """The call as the user writes it: `out.loss.backward()`, `autograd.grad(y)`, or `backward()` of what has no name."""
    names = ", ".join(_names(call.outputs, variables))
    if not call.accumulates:
        return f"autograd.grad({names})"
    if _is_method(call.frame):
        names = names or _called_on(_calling(call.frame, outermost))
        return f"{names}.backward()" if names else "backward()"
    return f"autograd.backward({names})"


def call_place(frame: FrameType, outermost: CodeType) -> str:
    """`file.py:12`, where the script's own code called; the nearest other code where none of the script's is on the stack."""
    nearest = _calling(frame, outermost)
    return f"{os.path.basename(nearest.f_code.co_filename)}:{nearest.f_lineno}" if nearest is not None else ""


def _calling(frame: FrameType, outermost: CodeType) -> FrameType | None:
    nearest = None
    at: FrameType | None = frame
    while at is not None and at.f_code is not outermost:
        file = at.f_code.co_filename
        if not is_foundation(file):
            nearest = nearest or at
            if not package_of(file):
                return at
        at = at.f_back
    return nearest


def _called_on(frame: FrameType | None) -> str:
    """What the line says `backward` is called on, if it is said once and without a call."""
    called = (
        _CALLED_ON.findall(linecache.getline(frame.f_code.co_filename, frame.f_lineno)) if frame is not None else []
    )
    return called[0] if len(called) == 1 else ""


def _names(outputs: Sequence[Any], variables: Sequence[Namespace]) -> list[str]:
    names = [name_of(output, variables) for output in outputs[:_NAMED]]
    if not all(names):
        return []
    return [*names, "..."] if len(outputs) > _NAMED else names


def _is_method(frame: FrameType) -> bool:
    """Whether `tensor.backward()` is what called `torch.autograd.backward`."""
    caller = frame.f_back
    return caller is not None and caller.f_globals.get("__name__") == "torch._tensor"


class Microbatch(NamedTuple):
    """The part of a batch that a stage of `torch.distributed.pipelining` calls backward for, of so many that there are."""

    stage: int
    number: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs


_OF_STAGES = "torch.distributed.pipelining.stage", ("backward_one_chunk", "backward_weight_one_chunk")


def microbatch_of(frame: FrameType | None) -> Microbatch | None:
    """What a backward call is for that a pipeline makes; None for other calls, and where this torch does not tell."""
    module, functions = _OF_STAGES
    while frame is not None:
        if frame.f_code.co_name in functions and frame.f_globals.get("__name__") == module:
            stage, number = frame.f_locals.get("self"), frame.f_locals.get("bwd_chunk_id")
            index, count = getattr(stage, "stage_index", None), getattr(stage, "chunks", None)
            if isinstance(index, int) and isinstance(number, int) and isinstance(count, int):
                return Microbatch(index, number, count)
            return None
        frame = frame.f_back
    return None


PARTS = 4
"""Of several calls, at most this many for each: a call with `create_graph` is a part of a step, read with the one that ends it."""

SECONDS = (5.0, 60.0)
"""How long a script runs on after what was read, to see what follows: as long as it took to get there, within these bounds."""

CALLS = 1000
"""For how many calls of `autograd.grad` at most."""


class Look(Protocol):
    """What follows calls that are not read, at little cost. `seen_enough`: whatever comes now follows from what was read."""

    seen_enough: bool

    def before(self, number: int, call: EngineCall, reading: bool) -> bool:
        """Whether call `number`, which is about to run, is to be read; `reading` when it is anyway."""

    def after(self, filled: bool | None) -> bool:
        """The same when it has run. `filled` as in `Afterwards`."""


class Selection:
    """Wants no call. `standing_in` says that what was read gives way to a later call, if one comes.

    `out_of_patience` is called from a thread of its own where `_wait_for_more` was called and nothing has settled it in time.
    """

    standing_in = False

    def __init__(self, out_of_patience: Callable[[], None] = lambda: None) -> None:
        self.enough = False
        self._out_of_patience = out_of_patience
        self._began = time.monotonic()
        self._over = threading.Event()

    def wants(self, number: int, call: EngineCall) -> bool:
        """Whether to read call `number`, counted from 1. Not asked once it was `enough`."""
        return False

    def took(self, call: EngineCall) -> None:
        """The call was read, or reading it failed."""

    def settle(self) -> None:
        """Nothing more will be read."""
        self.enough = True
        self._over.set()

    def close(self) -> None:
        """The script has ended: undo whatever was hooked up."""
        self.settle()

    def _wait_for_more(self) -> None:
        least, most = SECONDS
        _thread.start_new_thread(self._wait, (min(max(least, time.monotonic() - self._began), most),))

    def _wait(self, seconds: float) -> None:
        if not self._over.wait(seconds):
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


class WholeStep(Selection):
    """What another selection chooses and, where a pipeline calls, the other microbatches of that stage in the same step."""

    def __init__(self, chosen: Selection) -> None:
        super().__init__()
        self._chosen = chosen
        self._stage: int | None = None
        self._left: set[int] = set()

    def wants(self, number: int, call: EngineCall) -> bool:
        if self._stage is None:
            wanted = self._chosen.wants(number, call)
            self.enough = self._chosen.enough
            return wanted
        microbatch = microbatch_of(call.frame)
        return microbatch is not None and microbatch.stage == self._stage and microbatch.number in self._left

    def took(self, call: EngineCall) -> None:
        microbatch = microbatch_of(call.frame)
        if self._stage is None:
            self._chosen.took(call)
            if microbatch is None:
                self.standing_in, self.enough = self._chosen.standing_in, self._chosen.enough
                return
            self._chosen.settle()
            self._stage, self._left = microbatch.stage, set(range(microbatch.number, microbatch.count))
        if microbatch is not None:
            self._left.discard(microbatch.number)
        self.enough = not self._left

    def settle(self) -> None:
        super().settle()
        self._chosen.settle()

    def close(self) -> None:
        super().close()
        self._chosen.close()


class InARow(Selection):
    """So many steps, from call `first` on."""

    def __init__(self, first: int, steps: int, out_of_patience: Callable[[], None] = lambda: None) -> None:
        super().__init__(out_of_patience)
        self._first = first
        self._steps = steps
        self._calls = 1 if steps == 1 else steps * PARTS

    def wants(self, number: int, call: EngineCall) -> bool:
        return number >= self._first

    def took(self, call: EngineCall) -> None:
        self._steps -= not call.create_graph
        self._calls -= 1
        self.enough = self._steps <= 0 or self._calls <= 0


class RunOn(InARow):
    """So many steps, and after those the calls that `look` asks for, until the time is over (`SECONDS`).

    When it is over, the next call ends the run; `out_of_patience` is called from a thread of its own where none comes.
    """

    def __init__(self, first: int, steps: int, look: Look, out_of_patience: Callable[[], None]) -> None:
        super().__init__(first, steps, out_of_patience)
        self._look = look
        self._watching = self.timed_out = False

    def wants(self, number: int, call: EngineCall) -> bool:
        reading = not self._watching and super().wants(number, call)
        return self._look.before(number, call, reading) and (self._watching or reading)

    def took(self, call: EngineCall) -> None:
        super().took(call)
        if self.enough and not self._watching:
            self._watching = True
            self._wait_for_more()
        self.enough = self._look.seen_enough or self.timed_out

    def ended(self, call: EngineCall, filled: bool | None) -> bool:
        """The engine has ended after a call that was not read. Whether to read it now: its tensors are there still."""
        wanted = self._watching and (self._look.after(filled) or filled is None)
        self.enough = self.enough or self._look.seen_enough
        return wanted

    def _wait(self, seconds: float) -> None:
        if not self._over.wait(seconds):
            self.enough = self.timed_out = True
            super()._wait(seconds)


class FirstIf(Selection):
    """The first call, if `condition` holds there."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        super().__init__()
        self._condition = condition

    def wants(self, number: int, call: EngineCall) -> bool:
        return number == 1 and self._condition()

    def took(self, call: EngineCall) -> None:
        self.enough = True


class FirstBackward(Selection):
    """The first backward(). A call of `autograd.grad` before it stands in for it, for as long as the step lasts.

    The step is over when an optimizer has stepped, after `SECONDS` and after `CALLS`. `out_of_patience` is called where no
    call of backward would tell: by an optimizer, or from a thread of its own.
    """

    def __init__(self, out_of_patience: Callable[[], None]) -> None:
        super().__init__(out_of_patience)
        self._unhook: Callable[[], None] = lambda: None

    def wants(self, number: int, call: EngineCall) -> bool:
        if number > CALLS and not call.accumulates:
            self.settle()
            return False
        return call.accumulates or not self.standing_in

    def took(self, call: EngineCall) -> None:
        if call.accumulates:
            self.settle()
        elif not self.standing_in:
            self.standing_in = True
            self._unhook = _after_optimizer_step(self._out_of_patience)
            self._wait_for_more()

    def close(self) -> None:
        super().close()
        self._unhook()  # not before, for torch may be going through the hooks


def _after_optimizer_step(action: Callable[[], None]) -> Callable[[], None]:
    """Act when any optimizer has stepped. Returns what ends that."""
    hook = getattr(sys.modules.get("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    if hook is None:
        return lambda: None

    def stepped(*_: Any) -> None:
        action()

    remove: Callable[[], None] = hook(stepped).remove
    return remove
