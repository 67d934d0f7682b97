"""Sees every call of `backward()`, `torch.autograd.backward` and `torch.autograd.grad`
just before the engine runs.

All three meet in one function of torch, which is tapped while user code runs: from the
moment that the code imports torch, for importing it earlier would change what a script
sees that sets environment variables before. Knows nothing of scripts or of what is done
with a call.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple

from gradviz.packages import frames_from, is_foundation, package_of
from gradviz.variables.scanner import Namespace, name_of
from gradviz.wording import place_text

Afterwards = Callable[["bool | None"], None]
"""Called when the engine has ended, with whether it has filled the `.grad` of all
leaves; None when it raised.
"""


class EngineCall(NamedTuple):
    """The tensors that backward begins at, the frame that torch called the engine from,
    and how it was called.

    `accumulates` is whether gradients go to `.grad`, which they do unless
    `torch.autograd.grad` asked for them; `retains` whether the code said that the graph
    stays. `inputs` are the tensors whose gradient the code asked for, if it named some.
    """

    outputs: Sequence[Any]
    frame: FrameType
    create_graph: bool
    accumulates: bool
    retains: bool = False
    inputs: Sequence[Any] = ()


OnBackward = Callable[[EngineCall], "Afterwards | None"]

_NAME = "_engine_run_backward"
_PARAMETERS = ("grad_outputs", "retain_graph", "create_graph", "inputs")
"""Of that function, beside the outputs."""
_LEARNS_SHAPES = ("torch.distributed.pipelining.stage", "_backward_metadata_inference")
_COMPILERS = ("torch._dynamo.", "torch._functorch._aot_autograd.", "torch._inductor.")


@contextmanager
def watching_backward(seen: OnBackward) -> Iterator[None]:
    """Call `seen` before each backward that the user's code starts in this process.
    What `seen` raises goes to the user's code.

    Left out: backward calls from inside a running backward (a checkpoint recomputing),
    those of a compiler or of `make_fx` that trace the user's function, those inside a
    transform of torch.func, whose tensors have no numbers, and those of forked
    processes.
    """
    with ExitStack() as until, when_imported("torch", lambda: _watch(seen, until)):
        yield


def _watch(seen: OnBackward, until: ExitStack) -> None:
    import torch

    from gradviz.armour.hooks import pause_compiler
    from gradviz.armour.taps import Ended, tapped
    from gradviz.walker.private import is_traced

    engine_of_torch = getattr(torch.autograd.graph, _NAME, None)
    if engine_of_torch is None:
        raise RuntimeError(
            f"torch {torch.__version__} has no torch.autograd.graph.{_NAME}, so backward() cannot be seen"
        )
    process = os.getpid()

    def began(
        engine: FrameType, outputs: Sequence[Any], *arguments: Any, **options: Any
    ) -> Ended | None:
        frame = engine.f_back
        # a fork has the hooks of its parent; a task that runs already is a checkpoint
        # that recomputes
        ours = os.getpid() == process and torch._C._current_graph_task_id() == -1
        if not ours or frame is None or is_traced() or _compiling(frame):
            return None

        given = {**dict(zip(_PARAMETERS, arguments)), **options}
        chosen = given.get("inputs") or ()
        accumulates = bool(given.get("accumulate_grad"))
        # what is called here must not be compiled with the user's function
        compiler = pause_compiler()
        try:
            afterwards = seen(
                EngineCall(
                    outputs,
                    frame,
                    bool(given.get("create_graph")),
                    accumulates,
                    bool(given.get("retain_graph")),
                    chosen,
                )
            )
        finally:
            pause_compiler(compiler)

        if afterwards is None:
            return None

        # with `inputs=...` only some leaves get their gradient
        filled = accumulates and not chosen
        return lambda returned, _: afterwards(filled if returned else None)

    until.enter_context(tapped(engine_of_torch, began))


def _compiling(frame: FrameType | None) -> bool:
    """Whether torch's compiler is what called: its frames lie between the engine and
    the nearest code outside torch.

    Or a pipeline that learns the shapes of gradients, from tensors whose numbers nobody
    set.
    """
    for caller in frames_from(frame):
        name = _module(caller)
        if (
            name.startswith(_COMPILERS)
            or (name, caller.f_code.co_name) == _LEARNS_SHAPES
        ):
            return True
        # the user's code, or a library's, that the compiler did not call
        if not name.startswith("torch."):
            break
    return False


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


# -- once a module is there ------------------------------------------------------------


class _Watcher:
    """A finder that finds nothing itself: it lets the others find the module and
    watches its loader.
    """

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if name != self._name:
            return None

        sys.meta_path.remove(self)  # its work is done, unless nobody finds the module
        spec = find_spec(name)
        if spec is None:
            # a later import may find it
            sys.meta_path.insert(0, self)
        elif hasattr(spec.loader, "exec_module"):
            self._watch(spec.loader)
        return spec

    def _watch(self, loader: Any) -> None:
        load = loader.exec_module

        def load_and_act(module: ModuleType) -> None:
            # before the module's own code runs, so that the class's own shows again
            vars(loader).pop("exec_module", None)
            load(module)
            self._action()

        # some loaders take no attributes
        with suppress(AttributeError):
            loader.exec_module = load_and_act


@contextmanager
def when_imported(name: str, action: Callable[[], None]) -> Iterator[None]:
    """Run `action` once module `name` has been imported: now if it already is, else as
    soon as it is, or never.
    """
    if name in sys.modules:
        action()
        yield
        return
    watcher = _Watcher(name, action)
    sys.meta_path.insert(0, watcher)
    try:
        yield
    finally:
        if watcher in sys.meta_path:
            sys.meta_path.remove(watcher)


# -- what a call is called -------------------------------------------------------------

_NAMED = 3  # outputs of one call that are named
# `out.loss`, `losses[0]`; no call
_CALLED_ON = re.compile(r"(?<![\w.)\]])([A-Za-z_][\w.]*(?:\[\w+\])?)\.backward\(")


def call_words(
    call: EngineCall, variables: Sequence[Namespace], outermost: CodeType
) -> str:
    """The call as the user writes it: `out.loss.backward()`, `autograd.grad(y)`, or
    `backward()` of what has no name.
    """
    names = ", ".join(_names(call.outputs, variables))
    if not call.accumulates:
        return f"autograd.grad({names})"
    # `tensor.backward()`
    if call.frame.f_back is not None and _module(call.frame.f_back) == "torch._tensor":
        # the line says it where no variable holds the output
        names = names or _called_on(calling(call.frame, outermost))
        return f"{names}.backward()" if names else "backward()"
    return f"autograd.backward({names})"


def call_place(frame: FrameType, outermost: CodeType) -> str:
    """`file.py:12`, where the script's own code called; the nearest other code where
    none of the script's is on the stack.
    """
    nearest = calling(frame, outermost)
    if nearest is not None:
        return place_text(
            os.path.basename(nearest.f_code.co_filename), nearest.f_lineno or 0
        )
    return ""


def calling(frame: FrameType, outermost: CodeType) -> FrameType | None:
    """The frame of the user's own code that led here; the nearest of a library's where
    there is none.
    """
    nearest = None
    for caller in frames_from(frame, outermost):
        file = caller.f_code.co_filename
        if not is_foundation(file):
            # a library's function stands in until one of the script's comes
            nearest = nearest or caller
            if not package_of(file):
                return caller
    return nearest


def _called_on(frame: FrameType | None) -> str:
    """What the line says `backward` is called on, if it is said once and without a
    call.
    """
    if frame is not None:
        called = _CALLED_ON.findall(
            linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        )
    else:
        called = []
    return called[0] if len(called) == 1 else ""


def _names(outputs: Sequence[Any], variables: Sequence[Namespace]) -> list[str]:
    names = [name_of(output, variables) for output in outputs[:_NAMED]]
    if not all(names):
        return []
    return [*names, "..."] if len(outputs) > _NAMED else names
