"""Sees every call of `backward()`, `torch.autograd.backward` and `torch.autograd.grad` just before the engine runs.

All three meet in one function of torch, which is replaced while user code runs and put back afterwards. Knows nothing of
scripts or of what is done with a call.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

from gradviz.recording.late import when_imported

Afterwards = Callable[["bool | None"], None]
"""Called when the engine has ended, with whether it has filled the `.grad` of all leaves; None when it raised."""


class EngineCall(NamedTuple):
    """The tensors that backward begins at, the frame that torch called the engine from, and how it was called.

    `accumulates` is whether gradients go to `.grad`, which they do unless `torch.autograd.grad` asked for them.
    """

    outputs: Sequence[Any]
    frame: FrameType
    create_graph: bool
    accumulates: bool


OnBackward = Callable[[EngineCall], "Afterwards | None"]

_NAME = "_engine_run_backward"
_LEARNS_SHAPES = ("torch.distributed.pipelining.stage", "_backward_metadata_inference")
_COMPILERS = ("torch._dynamo.", "torch._functorch._aot_autograd.", "torch._inductor.")


@contextmanager
def watching_backward(seen: OnBackward) -> Iterator[None]:
    """Call `seen` before each backward that the user's code starts in this process. What `seen` raises goes to the user's code.

    Left out: backward calls from inside a running backward (a checkpoint recomputing), those of a compiler that traces the
    user's function, those inside a transform of torch.func, whose tensors have no numbers, and those of forked processes.
    """
    undo: list[Callable[[], None]] = []
    with when_imported("torch", lambda: undo.append(_replace(seen))):
        try:
            yield
        finally:
            for action in undo:
                action()


def _replace(seen: OnBackward) -> Callable[[], None]:
    import torch

    from gradviz.walker.private import keep_from_compiler, pause_compiler

    homes = [home for home in (torch.autograd, torch.autograd.graph) if hasattr(home, _NAME)]
    if not homes:
        raise RuntimeError(f"torch {torch.__version__} has no torch.autograd.{_NAME}, so backward() cannot be seen")
    original = getattr(homes[0], _NAME)
    process = os.getpid()

    def before_the_engine(outputs: Sequence[Any], *arguments: Any, **options: Any) -> Any:
        if (
            torch.compiler.is_compiling()
        ):  # it traces the caller: what is seen here would become part of the user's graph
            return original(outputs, *arguments, **options)
        frame = sys._getframe(1)
        ours = os.getpid() == process and torch._C._current_graph_task_id() == -1
        if ours and torch._C._functorch.peek_interpreter_stack() is None and not _compiling(frame):
            create_graph = arguments[2] if len(arguments) > 2 else options.get("create_graph")
            compiler = pause_compiler()
            try:
                afterwards = seen(EngineCall(outputs, frame, bool(create_graph), bool(options.get("accumulate_grad"))))
            finally:
                pause_compiler(compiler)
            if afterwards is not None:
                return _run_and_tell(afterwards, original, outputs, arguments, options)
        return original(outputs, *arguments, **options)

    keep_from_compiler(before_the_engine)
    for home in homes:
        setattr(home, _NAME, before_the_engine)

    def put_back() -> None:
        for home in homes:
            setattr(home, _NAME, original)

    return put_back


def _run_and_tell(afterwards: Afterwards, original: Any, outputs: Sequence[Any], arguments: Any, options: Any) -> Any:
    try:
        result = original(outputs, *arguments, **options)
    except BaseException:
        afterwards(None)
        raise
    chosen = arguments[3] if len(arguments) > 3 else options.get("inputs")
    afterwards(bool(options.get("accumulate_grad")) and not chosen)
    return result


def _compiling(frame: FrameType | None) -> bool:
    """Whether torch's compiler is what called: its frames lie between the engine and the nearest code outside torch.

    Or a pipeline that learns the shapes of gradients, from tensors whose numbers nobody set.
    """
    name = _module(frame)
    while frame is not None and name.startswith("torch."):
        if name.startswith(_COMPILERS) or (name, frame.f_code.co_name) == _LEARNS_SHAPES:
            return True
        frame = frame.f_back
        name = _module(frame)
    return False


def _module(frame: FrameType | None) -> str:
    return str(frame.f_globals.get("__name__", "")) if frame is not None else ""
