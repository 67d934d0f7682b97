"""Runs a TARGET of the command line and reads the graph it leads to, while the tensors are alive.

The door to `program`, `engine`, `run` and their neighbours: later code needs only what this module offers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, TypeVar, overload

from gradviz.errors import TargetError
from gradviz.graph import Graph
from gradviz.recording.late import recording_from_torch_on
from gradviz.run.live import Captured, LiveOutputs, read_graph
from gradviz.run.program import Program
from gradviz.run.run import Run
from gradviz.run.selection import Look
from gradviz.run.target_name import Target, parse_module, parse_target
from gradviz.variables.scanner import Namespace

__all__ = ["Captured", "LiveOutputs", "Target", "parse_module", "parse_target", "read_graph", "run_target"]

T = TypeVar("T")


@overload
def run_target(
    target: str | Target,
    arguments: Sequence[str] = ...,
    *,
    at: int | Sequence[int] | None = ...,
    keep_going: bool = ...,
    record: bool = ...,
    around: Callable[[], AbstractContextManager[object]] = ...,
) -> Captured[Graph]: ...


@overload
def run_target(
    target: str | Target,
    arguments: Sequence[str] = ...,
    *,
    at: int | Sequence[int] | None = ...,
    keep_going: bool = ...,
    read: Callable[[LiveOutputs], T],
    record: bool = ...,
    need_graph: bool = ...,
    steps: int | None = ...,
    afterwards: Callable[[T, bool | None], T] | None = ...,
    around: Callable[[], AbstractContextManager[object]] = ...,
    nothing: Callable[[], T] | None = ...,
    look: Look | None = ...,
    ended: Callable[[Sequence[Namespace]], None] | None = ...,
    whole_step: bool = ...,
) -> Captured[T]: ...


def run_target(
    target: str | Target,
    arguments: Sequence[str] = (),
    *,
    at: int | Sequence[int] | None = None,
    keep_going: bool = False,
    read: Callable[[LiveOutputs], Any] = read_graph,
    record: bool = True,
    need_graph: bool = True,
    steps: int | None = None,
    afterwards: Callable[[Any, bool | None], Any] | None = None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
    nothing: Callable[[], Any] | None = None,
    look: Look | None = None,
    ended: Callable[[Sequence[Namespace]], None] | None = None,
    whole_step: bool = False,
) -> Captured[Any]:
    """Run a script or import a module, and `read` what it leads to.

    Args:
        target: `script.py`, `script.py:name` or `package.module:name`; `parse_module` makes one to run as `python -m` does.
        arguments: the script's own arguments.
        at: which call of backward to look at, counted from 1, or several: the first is `Captured.result`, others are
            `Captured.later`, in the order in which they come. With a name: look the name up at that call, among the local
            variables too, and not when the script has ended. Without: the first `backward()`; a call of `autograd.grad` before
            it is read only if no backward() follows in the same step (`gradviz.run.selection`).
        keep_going: let the script run on to its end after the call.
        read: called while everything is alive, once for each call that is looked at; its results are `Captured.result` and
            `Captured.later`. Where a backward() takes the place of a call of `autograd.grad`, the result of the latter is dropped.
        record: note module calls and source lines while the script runs, which takes some time.
        need_graph: without it, a script is read when it has ended, all its variables and whatever they hold, unless `at` is
            given, or no global variable holds a tensor at the first call: then there. A name may stand for anything.
        steps: how many backward calls in a row to read, from the first one looked at on. Those with `create_graph` are
            read in addition, as parts of a step. A script may end before.
        afterwards: called when the engine has ended after a call that was read, with that result and whether all leaves got
            their `.grad`; what it returns takes the result's place. The script then is stopped after the engine, not before.
        nothing: makes the result where the script raised before anything was read; without it that raises ScriptError.
        look: lets the script run on after those steps, and says which later calls to read (`gradviz.run.selection`). A call
            at which the engine raises is read, too.
        ended: called with the variables when the script has come to its end by itself; it must not raise.
        whole_step: where a pipeline calls backward, read its other microbatches of that step, too, as `Captured.later`.
        around: makes a context that is entered while tensors are read, and left while the user's code runs.

    Raises:
        TargetError, NotATensorError, NoGraphError: there is nothing to look at; the message says why.
        ScriptError: the script failed before anything was captured. Its traceback has been printed.
    """
    parsed = parse_target(target) if isinstance(target, str) else target
    if parsed.kind == "graph":
        raise TargetError(f"{parsed.place!r} is a saved graph. This needs the script, because it reads live tensors.")
    numbers = () if at is None else (at,) if isinstance(at, int) else tuple(at)
    if any(number < 1 for number in numbers):
        raise TargetError(f"backward calls are counted from 1, so there is no call {min(numbers)}")
    program = Program(parsed)
    with ExitStack() as stack:
        stack.enter_context(program.interpreter(arguments))
        recording = stack.enter_context(recording_from_torch_on()) if record else lambda: None
        run = Run(
            parsed,
            program,
            numbers,
            keep_going,
            read,
            recording,
            need_graph,
            steps,
            afterwards,
            around,
            nothing,
            look,
            ended,
            whole_step,
        )
        return run.captured()
