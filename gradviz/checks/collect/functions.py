"""Replays custom Functions of the user's in a forked child, and compares their backward
with the slope of their forward.

Once for each class and shape, with copies of the inputs in double precision: one
thread, `SECONDS` at most, then the child is gone. Nothing of the user's runs in this
process, and the state that the code keeps is the child's. Not once CUDA is initialised,
nor under ranks, nor where there is no fork; what was not compared is told.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import torch

from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.collect.slopes import Fault, faults_of, is_real
from gradviz.checks.run import Kind
from gradviz.cuts.functions import PLAIN
from gradviz.packages import definition_of, is_foundation, package_of
from gradviz.rank import rank
from gradviz.source.search import keeps_on_first_argument, returned_by
from gradviz.walker.isolation import isolated
from gradviz.walker.taps import Began

SECONDS, MOST, TRIES = 5.0, 12, 2
"""How long replays may take, one or all of them, how many there are, and how often one
begins that gives no answer.
"""
LARGEST = 1_000_000
"""Elements of what a Function is given, from which on it is not replayed."""
_NUMBERS = bool, int, float, str, type(None), torch.Size, torch.dtype, torch.device
_PLAIN = (*PLAIN, *_NUMBERS)
APPLY = getattr(
    vars(torch.autograd.Function)["apply"],
    "__func__",
    None,
)
"""What every custom Function runs through, where that is Python: in torch 2.15 it is
not, and those that save tensors are seen.
"""


class FunctionReplay:
    """Of one run. `run_anyway`: also where CUDA is initialised or several ranks run."""

    def __init__(self, recorder: Recorder, run_anyway: bool = False) -> None:
        self._recorder, self._run_anyway = recorder, run_anyway
        self._seen, self._replaying = set[object](), False
        self._spent = 0.0  # seconds
        # classes whose derivative is wrong where it is differentiated again
        self._twice: list[Any] = []
        # why a class could not be compared, after its name; "" where one was
        self.unknown: dict[str, str] = {}

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        """Each class is replayed when it is applied for the first time to such shapes."""
        if APPLY is not None:
            yield APPLY, self._began
        else:
            yield torch.autograd.function.FunctionCtx.save_for_backward, self._saving

    def _began(
        self,
        _: FrameType,
        kind: Any,
        *values: Any,
        **__: Any,
    ) -> None:
        # without recording, its backward() never runs
        if torch.is_grad_enabled():
            self._applied(kind, values)

    def _saving(
        self,
        frame: FrameType,
        ctx: Any,
        *_: Any,
    ) -> None:
        """What forward() or setup_context() was given stands in its frame."""
        caller, kind = frame.f_back, getattr(type(ctx), "_forward_cls", None)
        if caller is None or kind is None:
            return

        names, rest, _keywords, variables = inspect.getargvalues(caller)
        if caller.f_code is getattr(kind.setup_context, "__code__", None):
            self._applied(kind, variables[names[1]])
        elif caller.f_code is getattr(kind.forward, "__code__", None):
            values = [variables[name] for name in names[1:]]
            self._applied(
                kind,
                [*values, *variables.get(rest or "", ())],
            )

    def _applied(self, kind: Any, values: Sequence[Any]) -> None:
        with suppress(Exception):
            # an object of the user's may do anything when it is asked
            if self._replaying or not all(type(value) in _PLAIN for value in values):
                return
            key = kind, tuple(map(_shape, values))
            if key in self._seen or not _is_to_be_compared(kind, values):
                return

            obstacle = self._obstacle(values)
            if obstacle:
                self.unknown.setdefault(kind.__name__, obstacle)
                return
            self._seen.add(key)
            self._replay(kind, values)

    def _replay(self, kind: Any, values: Sequence[Any]) -> None:
        self._replaying, began = True, time.perf_counter()  # in the child, too
        try:
            with isolated():
                faults = _in_a_child(lambda: faults_of(kind, values))
        finally:
            self._replaying = False
            self._spent += time.perf_counter() - began

        if isinstance(faults, str):
            self.unknown.setdefault(kind.__name__, faults)
            return
        # whatever comes of it in another shape
        self.unknown[kind.__name__] = ""
        line = returned_by(definition_of(kind.backward.__code__))
        for letter, place in faults:
            if letter == Kind.SECOND_SLOPE.value:
                self._twice.append(kind)
            else:
                self._recorder.note(
                    Kind(letter),
                    line,
                    kind.__name__,
                    str(place),
                )

    def differentiated_again(self) -> None:
        """A backward() that is differentiated is to be right in that, too."""
        for kind in self._twice:
            backward = kind.backward.__code__
            line = keeps_on_first_argument(backward)
            line = line or returned_by(definition_of(backward))
            self._recorder.note(Kind.SECOND_SLOPE, line, kind.__name__)

    def _obstacle(self, values: Sequence[Any]) -> str:
        """Why a Function is not replayed that is to be, "" where nothing speaks against
        it.
        """
        sizes = [value.numel() for value in values if type(value) in PLAIN]
        handler = signal.getsignal(signal.SIGCHLD)
        if self._spent > SECONDS or len(self._seen) >= MOST:
            return "came after as many as are compared in one run"
        if max(sizes, default=0) > LARGEST:
            return f"is given more than {LARGEST:,} elements"
        if not hasattr(os, "fork"):
            return "would need a child process, which this system has not"
        # a handler of the script's would be called for a child that it never started
        if not _is_nobodys(handler):
            return "would need a child process, which this script waits for"

        beside = ""
        if getattr(torch.cuda, "_initialized", False):
            beside = "CUDA"
        elif rank() is not None:
            beside = "several ranks"
        if beside and not self._run_anyway:
            return f"is not replayed beside {beside} without --run-custom"
        return ""


def _shape(value: Any) -> object:
    return (tuple(value.shape), value.dtype) if is_real(value) else None


def _is_to_be_compared(kind: Any, values: Sequence[Any]) -> bool:
    file = kind.forward.__code__.co_filename
    if is_foundation(file) or package_of(file):
        return False
    return any(is_real(value) and value.requires_grad for value in values)


def _is_nobodys(handler: Any) -> bool:
    """Whether the end of a child is told to nobody but a DataLoader, which asks for its
    own workers alone.
    """
    if handler == signal.SIG_DFL:
        return True
    loaders = "torch.utils.data._utils.signal_handling"
    if getattr(handler, "__module__", "") != loaders:
        return False
    return inspect.getclosurevars(handler).nonlocals["previous_handler"] is None


def _in_a_child(
    find: Callable[[], list[Fault]],
) -> list[Fault] | str:
    """What a child process found before it ended, as it does in any case; why nothing
    is known, where it has found nothing out.

    One that hardly ran waits for a lock that a thread held at the fork, or for a busy
    machine: another one is tried.
    """
    for _ in range(TRIES):
        found, seconds = _forked(find)
        if found is not None:
            return found
        # it was computing all the time, so a second one would not be faster
        if seconds > SECONDS / 2:
            break
    return f"gave no answer in {SECONDS:g} s"


def _forked(
    find: Callable[[], list[Fault]],
) -> tuple[list[Fault] | str | None, float]:
    """What one child found, and the seconds that it ran on a processor."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _be_the_child(find, writes)
        finally:
            # exit handlers and buffered output belong to the parent
            os._exit(0)

    os.close(writes)
    seconds, found = 0.0, b"null"
    try:
        ready, _, _ = select.select(
            [reads],
            [],
            [],
            SECONDS,
        )
        # it died, and has found nothing out
        found = (os.read(reads, 65536) if ready else b"") or b"null"
    finally:
        os.close(reads)
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
        with suppress(OSError):
            seconds = os.wait4(child, 0)[2].ru_utime

    return json.loads(found), seconds


def _be_the_child(
    find: Callable[[], list[Fault]],
    writes: int,
) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    # what the Function prints would appear in the script's output
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    # a collection would run finalizers of the parent's objects
    gc.disable()
    # worker threads do not survive a fork: waiting for them would never end
    torch.set_num_threads(1)
    try:
        with torch.enable_grad():
            found: object = find()
    except Exception as error:
        found = f"raises {type(error).__name__} in double precision"
    os.write(writes, json.dumps(found).encode())
