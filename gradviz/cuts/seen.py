"""Sees the few functions of torch that cut a tensor off from its graph, and leaves
every other call alone.

Those of `torch.Tensor` are written in C. While somebody watches, an attribute stands in
the place of each: it hands out torch's own function to whoever asks for it, and says so
when a tensor with a graph is asked. So no frame of gradviz's is there while the
function runs, and its class still has torch's own: warnings, tracebacks, signatures,
pickles and overrides are as without. Those that are written in Python are tapped
(`walker.taps`).

What somebody has taken before, as `cut = torch.Tensor.detach`, is not seen.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from types import FrameType
from typing import Any

import torch
import torch.jit._builtins as scripted

from gradviz.cuts.frames import (
    begins_block,
    first_argument,
    hide_ours,
    is_the_users,
    on_its_line,
    reads,
)
from gradviz.cuts.functions import PLAIN, forget, samples, tensors_in
from gradviz.cuts.lines import CutWatch
from gradviz.source.cut import METHODS, DetachKind
from gradviz.walker.isolation import isolated
from gradviz.walker.private import is_traced
from gradviz.walker.taps import Began, Ended, all_tapped

# a mode of the user's would see that a tensor is asked
_count_modes = torch._C._len_torch_function_stack
_count_dispatch_modes = torch._C._len_torch_dispatch_stack
_NOT_SEEN = ("torch", "gradviz")
"""Packages whose own calls cut nothing of the user's."""


Asked = Callable[[str, Any, FrameType], None]


class _Attribute:
    """An attribute of `torch.Tensor` that hands out torch's own, and says so first."""

    def __init__(
        self,
        name: str,
        original: Any,
        asked: Asked,
    ) -> None:
        self._name, self._original, self._asked = name, original, asked

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        # most tensors have no graph to lose: this is all that a call costs then
        if type(tensor) in PLAIN and (_count_modes() or tensor.requires_grad):
            self._asked(self._name, tensor, sys._getframe(1))
        return self._original.__get__(tensor, kind)


class _Data(_Attribute):
    """The same for `.data`, to which somebody may assign."""

    def __set__(self, tensor: Any, value: Any) -> None:
        self._asked("data =", (tensor, value), sys._getframe(1))
        try:
            self._original.__set__(tensor, value)
        except BaseException as error:
            hide_ours(error)
            raise


class CutCalls:
    """Of one thread: `watch` is told of each call that cuts, and of each backward."""

    def __init__(self, watch: CutWatch) -> None:
        self.watch, self._paused, self._undo = watch, 0, ExitStack()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, calls of this thread are seen, until something is compiled."""
        self._thread = threading.get_ident()
        try:
            self._begin()
            yield
        finally:
            self._end()

    def _begin(self) -> None:
        self._undo.enter_context(all_tapped(self._listeners()))
        for name in (*METHODS, "copy_"):
            self._stand_in(name, _Attribute)
        self._stand_in("data", _Data)
        for function in (torch.tensor, torch.as_tensor):
            self._wrap(function)

    def rest(self) -> None:
        """See nothing until `resume`."""
        self._undo.close()

    def resume(self) -> None:
        """See calls again, unless something was compiled."""
        if self._thread:
            self.watch.next_step()
            self._begin()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is told: it is not the user's code."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def _end(self, *_: Any, **__: Any) -> None:
        """From here on nothing is seen, and everything is as it was before."""
        self._thread = 0
        self._undo.close()

    def _is_watched(self, frame: FrameType | None) -> bool:
        """Whether code that is to be seen runs in a frame: what torch asks its tensors
        for is its own affair.
        """
        if frame is None or self._paused or threading.get_ident() != self._thread:
            return False
        module = frame.f_globals.get("__name__") or ""
        return module.partition(".")[0] not in _NOT_SEEN and not is_traced()

    def _tell(
        self,
        kind: DetachKind,
        name: str,
        tensors: Iterable[Any],
        frame: FrameType,
        into: Any = None,
    ) -> None:
        try:
            with _guard():
                lost = list(filter(_has_graph, tensors))
                if lost:
                    self.watch.cutting(kind, name, lost, frame, into)
        except Exception as error:
            if is_the_users(error):
                raise

    # -- what is written in C ----------------------------------------------------------

    def _stand_in(self, name: str, attribute: type[_Attribute]) -> None:
        tensor, original = torch.Tensor, inspect.getattr_static(torch.Tensor, name)
        # some are inherited from the class in C
        if name in vars(tensor):
            self._undo.callback(setattr, tensor, name, original)
        else:
            self._undo.callback(delattr, tensor, name)
        setattr(tensor, name, attribute(name, original, self._asked))

    def _asked(
        self,
        name: str,
        tensor: Any,
        frame: FrameType,
    ) -> None:
        """An attribute of a tensor is read, mostly to be called."""
        if not self._is_watched(frame):
            return

        if name == "data =":
            into, value = tensor
            self._writes(name, into, value, frame)
        elif name == "data":
            if reads(frame, to_call=False):
                self._tell("data", name, (tensor,), frame)
        elif not name.startswith("__") and not reads(frame, to_call=True):
            return  # `hasattr(x, "item")`, or a method that is kept for later
        elif name == "copy_":
            self._writes(name, tensor, first_argument(frame), frame)
        else:
            self._tell(METHODS[name], name, (tensor,), frame)

    def _writes(
        self,
        name: str,
        into: Any,
        value: Any,
        frame: FrameType,
    ) -> None:
        """A tensor is written into another one: by `.data = value`, or by `copy_` while
        recording is off.
        """
        if type(into) in PLAIN and type(value) in PLAIN:
            with _guard():
                is_history = into.is_leaf and into.requires_grad and not value.is_leaf
            if is_history:
                self._tell("written", name, (value,), frame, into)

    def _wrap(self, original: Any) -> None:
        """Put a function in the place of one of torch's that makes a tensor of numbers."""
        name = original.__name__

        @wraps(original)
        def wrapper(*args: Any, **options: Any) -> Any:
            caller = sys._getframe(1)
            if not self._is_watched(caller):
                return original(*args, **options)

            try:
                with self.paused():
                    tensor = on_its_line(caller, original, args, options)
            except BaseException as error:
                hide_ours(error)
                raise

            data = args[0] if args else options.get("data")
            # as_tensor keeps a tensor, or the graph of one
            if name == "tensor" or not isinstance(data, torch.Tensor):
                self._tell("new", name, tensors_in(data), caller, tensor)
            return tensor

        wrapper.__module__, wrapper.__qualname__ = "torch", name
        # what TorchScript knows functions of torch by
        table: dict[int, str] = scripted._get_builtin_table()  # type: ignore[no-untyped-call]
        table[id(wrapper)] = table[id(original)]
        self._undo.callback(table.pop, id(wrapper))
        self._undo.callback(forget)
        self._undo.callback(setattr, torch, name, original)
        setattr(torch, name, wrapper)

    # -- what is written in Python -----------------------------------------------------

    def _listeners(self) -> Iterator[tuple[Any, Began]]:
        parameter = torch.nn.Parameter
        yield torch.autograd.graph._engine_run_backward, self._backward
        yield torch.set_grad_enabled.__init__, self._switched
        yield parameter.__new__, self._listener("parameter", "Parameter", 1)
        for draws in dict.fromkeys(samples()):
            yield draws, self._listener("sample", "sample")
        for compiles in (torch.compile, torch.export.export):
            # the compiler looks into what it compiles
            yield compiles, self._end

    def _listener(
        self,
        kind: DetachKind,
        name: str,
        position: int = 0,
    ) -> Began:
        """What is called for a function that cuts off what it gets at a position."""

        def began(
            frame: FrameType,
            *args: Any,
            **_: Any,
        ) -> Ended | None:
            if not self._is_watched(frame.f_back):
                return None
            tensors = tensors_in(args[position])

            def ended(returned: bool, result: Any) -> None:
                if returned:
                    self._tell(kind, name, tensors, frame, result)

            return ended

        return began

    def _backward(
        self, engine: FrameType, outputs: Any, *args: Any, **options: Any
    ) -> Ended:
        def ended(returned: bool, result: Any) -> None:
            if not returned or threading.get_ident() != self._thread:
                return
            self.watch.next_step()

            # of `autograd.grad`, which may leave a graph behind its results
            caller, create_graph = engine.f_back, len(args) > 2 and args[2]
            if caller is None or options.get("accumulate_grad"):
                return
            if create_graph and any(map(_has_graph, result)):
                return
            if self._is_watched(caller.f_back):
                self._tell("grad", "grad", outputs, engine)

        return ended

    def _switched(
        self,
        frame: FrameType,
        _: Any,
        mode: Any,
        *__: Any,
    ) -> None:
        """Recording is switched: by a block, or by a call that nothing takes back."""
        caller = frame.f_back
        if caller is not None and self._is_watched(caller):
            self.watch.switched(None if mode or begins_block(caller) else caller)


def _guard() -> AbstractContextManager[object]:
    """Where the user has a mode, it does not see that a tensor is asked; else nothing
    of the user's would, and a handler of signals may come at any time.
    """
    return isolated() if _count_modes() or _count_dispatch_modes() else nullcontext()


def _has_graph(tensor: Any) -> bool:
    return type(tensor) in PLAIN and bool(tensor.requires_grad)
