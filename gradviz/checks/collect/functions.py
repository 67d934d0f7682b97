"""Replays custom Functions of the user's in a forked child, and compares their backward
with the slope of their forward.

Once for each class, with copies of the inputs in double precision: one thread,
`SECONDS` at most, then the child is gone. Nothing of the user's runs in this process,
and the state that the code keeps is the child's. Not once CUDA is initialised, nor
under ranks, nor where there is no fork; what was not compared is told.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from types import FrameType
from typing import Any

import torch

from gradviz.armour.isolation import isolated
from gradviz.armour.taps import Began
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.collect.slopes import faults_of, is_real
from gradviz.checks.run import Kind
from gradviz.graph import Graph
from gradviz.graph.kinds import kind
from gradviz.graph.model import column
from gradviz.packages import definition_of, is_foundation, package_of
from gradviz.rank import rank
from gradviz.source.search import keeps_on_first_argument, returned_by
from gradviz.variables.scanner import local_variables
from gradviz.walker.tensors import PLAIN

SECONDS = 5.0
"""How long replays may take, one or all of them."""
LARGEST = 1_000_000
"""Elements of what a Function is given, from which on it is not replayed."""
_NUMBERS = bool, int, float, str, type(None), torch.Size, torch.dtype, torch.device
_PLAIN = (*PLAIN, *_NUMBERS)
_LIMITING = "clamp", "clamp_", "clip", "hardtanh", "norm", "normalize"
APPLY = getattr(vars(torch.autograd.Function)["apply"], "__func__", None)
"""What every custom Function runs through, where that is Python: in torch 2.14.1
it is not, and one is seen where it saves tensors.
"""
_SAVE = torch.autograd.function.FunctionCtx.save_for_backward


class FunctionReplay:
    """Of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._seen, self._replaying = set[Any](), False  # classes
        self._shown = set[str]()  # names of classes that were seen saving tensors
        self._spent = 0.0  # seconds
        self.unknown: list[str] = []  # classes that could not be compared, and why

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        """Each class is replayed when it is applied for the first time."""
        if APPLY is not None:
            yield APPLY, self._began
        else:
            yield _SAVE, self._saves

    def unseen(self, graphs: Iterable[Graph]) -> Iterator[str]:
        """The Functions of the user's in these graphs that torch did not show."""
        if APPLY is None:
            for name in dict.fromkeys(chain.from_iterable(map(_users, graphs))):
                if name not in self._shown:
                    yield (
                        f"{name} was not seen when it was applied: torch {torch.__version__} shows only "
                        "Functions that call ctx.save_for_backward() themselves"
                    )

    def _saves(self, frame: FrameType, context: Any, *_: Any) -> None:
        """What forward() or setup_context() was given stands in its frame."""
        # whatever may be a context: no more than one that is a node is recorded
        kind, caller = getattr(type(context), "_forward_cls", None), frame.f_back
        if kind is None or caller is None or not context.next_functions:
            return
        # forward() may have let go of what it was given, or have another function save
        with self._recorder.reading("custom Functions"), suppress(LookupError):
            values = _given(caller, kind)
            self._shown.add(kind.__name__)
            self._applied(kind, values)

    def _began(self, _: FrameType, kind: Any, *values: Any, **__: Any) -> None:
        # without recording, its backward() never runs
        if torch.is_grad_enabled():
            self._applied(kind, values)

    def _applied(self, kind: Any, values: Sequence[Any]) -> None:
        with self._recorder.reading("custom Functions"):
            known = self._replaying or kind in self._seen
            if not known and _is_to_be_compared(kind, values):
                self._seen.add(kind)
                self._compare(kind, values)

    def _compare(self, kind: Any, values: Sequence[Any]) -> None:
        obstacle = self._obstacle(values)
        if obstacle:
            self.unknown.append(f"{kind.__name__} {obstacle}")
            return

        self._replaying, began = True, time.perf_counter()  # in the child, too
        try:
            with isolated():
                faults = _in_a_child(lambda: faults_of(kind, values))
        finally:
            self._replaying = False
            self._spent += time.perf_counter() - began

        if isinstance(faults, str):
            self.unknown.append(f"{kind.__name__} {faults}")
            return
        backward = kind.backward.__code__
        if _limits(kind):
            faults.pop(Kind.OTHER_SLOPE.value, None)
        for letter, measured in faults.items():
            line = returned_by(definition_of(backward))
            if letter == Kind.SECOND_SLOPE.value:
                line = keeps_on_first_argument(backward) or line
            self._recorder.note(Kind(letter), line, kind.__name__, *measured)

    def _obstacle(self, values: Sequence[Any]) -> str:
        """Why a Function is not replayed that is to be, "" where nothing speaks against
        it.
        """
        if self._spent > SECONDS:
            return "came after as many as are compared in one run"
        if any(value.numel() > LARGEST for value in values if type(value) in PLAIN):
            return f"is given more than {LARGEST:,} elements"
        if getattr(torch.cuda, "_initialized", False) or rank() is not None:
            return "is not replayed beside CUDA or several ranks"

        # a handler of the script's would be called for a child that it never started;
        # that of a DataLoader asks for its own workers alone
        handler = signal.getsignal(signal.SIGCHLD) if hasattr(os, "fork") else print
        loaders = getattr(handler, "__module__", "") or ""
        if handler != signal.SIG_DFL and not loaders.startswith("torch.utils.data"):
            return "would need a child process, which this system or script forbids"
        return ""


def _users(graph: Graph) -> Iterator[str]:
    """The names of the user's Functions in a graph."""
    for function in filter(None, column(graph.nodes, "function")):
        place = function.definition
        if place is not None and not (is_foundation(place.file) or place.package):
            yield function.name.rpartition(".")[2]


def used_functions(graph: Graph) -> Iterator[str]:
    """The names of the custom Functions from which a graph computes more than a sum."""
    for place, function in enumerate(column(graph.nodes, "function")):
        users = graph.consumers(place) if function is not None else ()
        if any(kind(graph, user.consumer) != "Add" for user in users):
            yield function.name.rpartition(".")[2]


def _given(frame: FrameType, kind: Any) -> Sequence[Any]:
    """What a Function was given whose forward() or setup_context() runs in a frame,
    unless that has assigned to its parameters.
    """
    names, rest, _ = inspect.getargs(frame.f_code)
    values: dict[str, Any] = local_variables(frame)
    if frame.f_code is getattr(kind.setup_context, "__code__", None):
        return tuple(values[names[1]])
    if frame.f_code is not inspect.unwrap(kind.forward).__code__:
        raise LookupError("a helper saves the tensors")
    return *(values[name] for name in names[1:]), *(values[rest] if rest else ())


def _is_to_be_compared(kind: Any, values: Sequence[Any]) -> bool:
    # a partial, or what C code computes
    code = getattr(kind.forward, "__code__", None)
    if code is None or is_foundation(code.co_filename) or package_of(code.co_filename):
        return False
    if any(type(value) not in _PLAIN for value in values):
        return False
    return any(is_real(value) and value.requires_grad for value in values)


def _limits(kind: Any) -> bool:
    """Whether backward() holds a gradient in bounds, and forward() nothing: somebody
    has chosen it, as AdderNet has.
    """
    names = {*kind.backward.__code__.co_names} - {*kind.forward.__code__.co_names}
    return not names.isdisjoint(_LIMITING)


def _in_a_child(find: Callable[[], dict[str, list[str]]]) -> dict[str, list[str]] | str:
    """What a child process found before it ended, as it does in any case; why nothing
    is known, where it has found nothing out.
    """
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _be_the_child(find, writes)
        finally:
            # exit handlers and buffered output belong to the parent
            os._exit(0)

    os.close(writes)
    try:
        ready, _, _ = select.select([reads], [], [], SECONDS)
        found = os.read(reads, 65536) if ready else b""
    finally:
        os.close(reads)
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    return json.loads(found) if found else f"gave no answer in {SECONDS:g} s"


def _be_the_child(find: Callable[[], object], writes: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    # what the Function prints would appear in the script's output
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    # a collection would run finalizers of the parent's objects
    gc.disable()
    # worker threads do not survive a fork: waiting for them would never end
    torch.set_num_threads(1)
    # what forward() makes without a dtype has that of its inputs, too
    torch.set_default_dtype(torch.float64)
    try:
        with torch.enable_grad():
            found = find()
    except Exception as error:
        found = f"raises {type(error).__name__} in double precision"
    os.write(writes, json.dumps(found).encode())
