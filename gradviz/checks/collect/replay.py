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
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import torch

from gradviz.checks.collect.slopes import AGAIN, is_real, judged
from gradviz.checks.run import Misuse
from gradviz.cuts.functions import PLAIN
from gradviz.packages import definition_of, is_foundation, package_of
from gradviz.rank import rank
from gradviz.source.search import keeps_on_first_argument, returned_by
from gradviz.walker.isolation import isolated
from gradviz.walker.taps import tapped

SECONDS, MOST, TRIES = 5.0, 12, 2
"""How long replays may take, one or all of them, how many there are, and how often one
begins that gives no answer.
"""
LARGEST = 1_000_000
"""Elements of what a Function is given, from which on it is not replayed."""
_PLAIN = (
    *PLAIN,
    bool,
    int,
    float,
    str,
    type(None),
    torch.Size,
    torch.dtype,
    torch.device,
)
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

    def __init__(self, run_anyway: bool = False) -> None:
        self._run_anyway, self._seen, self._replaying = run_anyway, set[object](), False
        self._spent = 0.0  # seconds
        self.found: list[Misuse] = []
        # what is wrong where a gradient is differentiated again
        self.once_more: list[Misuse] = []
        # why a class could not be compared, after its name; "" where one was
        self.unknown: dict[str, str] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, each class is replayed when it is applied for the first time to such
        shapes.
        """
        saving = torch.autograd.function.FunctionCtx.save_for_backward
        with (
            tapped(APPLY, self._began)
            if APPLY is not None
            else tapped(saving, self._saving)
        ):
            yield

    def _began(
        self,
        _: FrameType,
        kind: Any,
        *given: Any,
        **__: Any,
    ) -> None:
        if torch.is_grad_enabled():
            self._applied(kind, given)

    def _saving(
        self,
        frame: FrameType,
        ctx: Any,
        *_: Any,
    ) -> None:
        """What forward() or setup_context() was given stands in its frame."""
        by, kind = frame.f_back, getattr(type(ctx), "_forward_cls", None)
        if by is None or kind is None:
            return
        names, rest, _keywords, values = inspect.getargvalues(by)
        if by.f_code is getattr(kind.setup_context, "__code__", None):
            self._applied(kind, values[names[1]])
        elif by.f_code is getattr(kind.forward, "__code__", None):
            self._applied(
                kind,
                [*(values[name] for name in names[1:]), *values.get(rest or "", ())],
            )

    def _applied(self, kind: Any, given: Sequence[Any]) -> None:
        with suppress(Exception):
            if not all(type(value) in _PLAIN for value in given):
                return  # an object of the user's may do anything when it is asked

            shapes = tuple(
                (tuple(value.shape), value.dtype) if is_real(value) else None
                for value in given
            )
            if (
                (kind, shapes) in self._seen
                or self._replaying
                or not _is_to_be_compared(kind, given)
            ):
                return

            obstacle = self._obstacle(given)
            if obstacle:
                self.unknown.setdefault(kind.__name__, obstacle)
                return

            self._seen.add((kind, shapes))
            self._replaying, began = True, time.perf_counter()  # in the child, too
            try:
                with isolated():
                    told = _in_a_child(lambda: judged(kind, given))
                if isinstance(told, str):
                    self.unknown.setdefault(kind.__name__, told)
                    return
                # whatever comes of it in another shape
                self.unknown[kind.__name__] = ""
            finally:
                self._replaying = False
                self._spent += time.perf_counter() - began

            backward = kind.backward.__code__
            again = keeps_on_first_argument(backward)
            returns = returned_by(definition_of(backward))
            for fault, *words in told:
                found = self.once_more if fault == AGAIN else self.found
                source = (again if fault == AGAIN else None) or returns
                words = [kind.__name__, *words]
                found.append(
                    Misuse(fault, source, tuple(words), names=(kind.__name__,))
                )

    def _obstacle(self, given: Sequence[Any]) -> str:
        """Why a Function is not replayed that is to be, "" where nothing speaks against
        it.
        """
        sizes = [value.numel() for value in given if type(value) in PLAIN]
        handler = signal.getsignal(signal.SIGCHLD)
        alone = self._run_anyway or rank() is None
        obstacles = {
            "came after as many as are compared in one run": (
                self._spent > SECONDS or len(self._seen) >= MOST
            ),
            f"is given more than {LARGEST:,} elements": max(sizes, default=0) > LARGEST,
            "would need a child process, which this system has not": (
                not hasattr(os, "fork")
            ),
            "would need a child process, which this script waits for": (
                not _is_nobodys(handler)
            ),
            "is not replayed beside CUDA without --run-custom": (
                getattr(torch.cuda, "_initialized", False) and not self._run_anyway
            ),
            "is not replayed beside several ranks without --run-custom": not alone,
        }
        return next((why for why, holds in obstacles.items() if holds), "")


def _is_to_be_compared(kind: Any, given: Sequence[Any]) -> bool:
    file = kind.forward.__code__.co_filename
    users = not (is_foundation(file) or package_of(file))
    return users and any(is_real(value) and value.requires_grad for value in given)


def _is_nobodys(handler: Any) -> bool:
    """Whether the end of a child is told to nobody but a DataLoader, which asks for its
    own workers alone.
    """
    loaders = (
        getattr(handler, "__module__", "") == "torch.utils.data._utils.signal_handling"
    )
    return handler == signal.SIG_DFL or (
        loaders
        and inspect.getclosurevars(handler).nonlocals["previous_handler"] is None
    )


def _in_a_child(
    judge: Callable[[], list[list[str]]],
) -> list[list[str]] | str:
    """What a child process found before it ended, as it does in any case; why nothing
    is known, where it has found nothing out.

    One that hardly ran waits for a lock that a thread held at the fork, or for a busy
    machine: another one is tried.
    """
    for _ in range(TRIES):
        told, seconds = _forked(judge)
        if told is not None:
            return told
        if seconds > SECONDS / 2:
            break
    return f"gave no answer in {SECONDS:g} s"


def _forked(
    judge: Callable[[], list[list[str]]],
) -> tuple[list[list[str]] | str | None, float]:
    """What one child found, and the seconds that it ran on a processor."""
    reads, writes = os.pipe()
    child = os.fork()

    if child == 0:
        try:
            nothing = os.open(os.devnull, os.O_RDWR)
            for standard in (0, 1, 2):
                os.dup2(nothing, standard)
            gc.disable()
            torch.set_num_threads(1)
            try:
                with torch.enable_grad():
                    found: object = judge()
            except Exception as error:
                found = f"raises {type(error).__name__} in double precision"
            os.write(writes, json.dumps(found).encode())
        finally:
            os._exit(0)

    os.close(writes)
    seconds, told = 0.0, b"null"
    try:
        ready, _, _ = select.select(
            [reads],
            [],
            [],
            SECONDS,
        )
        # it died, and has found nothing out
        told = (os.read(reads, 65536) if ready else b"") or b"null"
    finally:
        os.close(reads)
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
        with suppress(OSError):
            seconds = os.wait4(child, 0)[2].ru_utime

    return json.loads(told), seconds


# -- in the child ----------------------------------------------------------------------
