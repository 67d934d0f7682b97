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
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from types import FrameType
from typing import Any

import torch
import torch.jit._builtins as scripted

from gradviz.cuts.frames import (
    begins_block,
    calls,
    first_argument,
    is_the_users,
    on_its_line,
    reads,
    without_ours,
)
from gradviz.cuts.functions import (
    OPERATORS,
    PLAIN,
    elements,
    forget,
    parameters_of,
    samples,
)
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

    def __init__(self, name: str, theirs: Any, asked: Asked) -> None:
        self._name, self._theirs, self._asked = name, theirs, asked

    def __get__(self, tensor: Any, kind: Any = None) -> Any:
        if type(tensor) in PLAIN and (_count_modes() or tensor.requires_grad):
            self._asked(self._name, tensor, sys._getframe(1))
        return self._theirs.__get__(tensor, kind)


class _Data(_Attribute):
    """The same for `.data`, to which somebody may assign."""

    def __set__(self, tensor: Any, value: Any) -> None:
        self._asked("data =", (tensor, value), sys._getframe(1))
        try:
            self._theirs.__set__(tensor, value)
        except BaseException as error:
            error.__traceback__ = without_ours(error.__traceback__)
            raise


class CutCalls:
    """Of one thread: `watch` is told of each call that cuts. `stepped` is called after
    each backward.
    """

    def __init__(
        self,
        watch: CutWatch,
        stepped: Callable[[], None] | None = None,
    ) -> None:
        self._watch, self._stepped = watch, stepped
        self._paused, self._undo = 0, ExitStack()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, calls of this thread are seen, until something is compiled."""
        self._thread, self._undo = threading.get_ident(), ExitStack()
        try:
            self._undo.enter_context(all_tapped(self._listeners()))
            for name in (*METHODS, *OPERATORS, "copy_"):
                self._stand_in(name, _Attribute)
            self._stand_in("data", _Data)
            for function in (torch.tensor, torch.as_tensor):
                self._wrap(function)
            yield
        finally:
            self._end()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is told: it is not the user's code."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def _stand_in(self, name: str, attribute: type[_Attribute]) -> None:
        tensor, theirs = torch.Tensor, inspect.getattr_static(torch.Tensor, name)
        if name in vars(tensor):
            self._undo.callback(setattr, tensor, name, theirs)
        else:
            self._undo.callback(delattr, tensor, name)
        setattr(tensor, name, attribute(name, theirs, self._asked))

    def _wrap(self, theirs: Any) -> None:
        """Put a function in the place of one of torch's that makes a tensor of numbers."""

        @wraps(theirs)
        def wrapper(*given: Any, **options: Any) -> Any:
            caller = sys._getframe(1)
            if not self._is_watched(caller):
                return theirs(*given, **options)

            try:
                with self.paused():
                    tensor = on_its_line(caller, theirs, given, options)
            except BaseException as error:
                error.__traceback__ = without_ours(error.__traceback__)
                raise

            data = given[0] if given else options.get("data")
            # as_tensor keeps a tensor, or the graph of one
            copies = theirs.__name__ == "tensor" or not isinstance(data, torch.Tensor)
            if copies:
                self._tell("new", theirs.__name__, list(elements(data)), caller, tensor)
            return tensor

        wrapper.__module__, wrapper.__qualname__ = "torch", theirs.__name__
        # what TorchScript knows functions of torch by
        table: dict[int, str] = scripted._get_builtin_table()  # type: ignore[no-untyped-call]
        table[id(wrapper)] = table[id(theirs)]
        self._undo.callback(table.pop, id(wrapper))
        self._undo.callback(forget, wrapper, theirs)
        self._undo.callback(setattr, torch, theirs.__name__, theirs)
        setattr(torch, theirs.__name__, wrapper)

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
            self._writes(into, value, frame)
        elif name in OPERATORS:
            self._tell(OPERATORS[name], name, (tensor,), frame)
        elif name == "data" and reads(frame):
            self._tell("data", name, (tensor,), frame)
        elif name == "copy_" and calls(frame):
            self._writes(tensor, first_argument(frame), frame)
        elif name in METHODS and calls(frame):
            self._tell(METHODS[name], name, (tensor,), frame)

    def _is_watched(self, frame: FrameType | None) -> bool:
        """Whether code that is to be seen runs in a frame: what torch asks its tensors
        for is its own affair.
        """
        if frame is None or self._paused or threading.get_ident() != self._thread:
            return False
        home = frame.f_globals.get("__name__") or ""
        return home.partition(".")[0] not in _NOT_SEEN and not is_traced()

    def _tell(
        self,
        kind: DetachKind,
        name: str,
        tensors: Sequence[Any],
        frame: FrameType,
        into: Any = None,
    ) -> None:
        try:
            with _guard():
                lost = list(filter(_has_graph, tensors))
                if lost:
                    self._watch.cutting(kind, name, lost, frame, into)
        except Exception as error:
            if is_the_users(error):
                raise

    def _writes(
        self,
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
                self._tell("written", "written", (value,), frame, into)

    # -- what is written in Python -----------------------------------------------------

    def _listeners(self) -> Iterator[tuple[Any, Began]]:
        tensor = torch.Tensor
        yield torch.autograd.graph._engine_run_backward, self._backward
        yield torch.nn.Parameter.__new__, self._parameter
        yield torch.set_grad_enabled.__init__, self._switched
        yield tensor.__array__, self._array
        for copied in {tensor.__deepcopy__, torch.nn.Parameter.__deepcopy__}:
            yield copied, self._copied
        for draws in dict.fromkeys(samples()):
            yield draws, self._drawn
        for compiles in (torch.compile, torch.export.export):
            yield compiles, self._compiled

    def _backward(
        self, engine: FrameType, outputs: Any, *given: Any, **options: Any
    ) -> Ended:
        def ended(returned: bool, result: Any) -> None:
            if returned and threading.get_ident() == self._thread:
                if self._stepped is not None:
                    self._stepped()

                # which is that of `autograd.grad`
                graph, around = len(given) > 2 and given[2], engine.f_back
                if (
                    around is not None
                    and not options.get("accumulate_grad")
                    and (not graph or not any(_has_graph(one) for one in result))
                    and self._is_watched(around.f_back)
                ):
                    self._tell("grad", "grad", outputs, engine)

        return ended

    def _parameter(
        self,
        frame: FrameType,
        _: Any,
        data: Any = None,
        *__: Any,
        **___: Any,
    ) -> Ended:
        return self._given("parameter", "Parameter", data, frame)

    def _array(
        self,
        frame: FrameType,
        tensor: Any,
        *_: Any,
    ) -> None:
        if self._is_watched(frame.f_back):
            self._tell("numpy", "__array__", (tensor,), frame)

    def _copied(
        self,
        frame: FrameType,
        tensor: Any,
        *_: Any,
    ) -> Ended:
        return self._given("deepcopy", "deepcopy", tensor, frame)

    def _given(
        self, kind: DetachKind, name: str, tensor: Any, frame: FrameType
    ) -> Ended:
        """A function makes a leaf with the numbers of a tensor."""

        def ended(returned: bool, made: Any) -> None:
            if returned and type(made) in PLAIN and self._is_watched(frame.f_back):
                self._tell(kind, name, (tensor,), frame, made)

        return ended

    def _drawn(
        self,
        frame: FrameType,
        distribution: Any,
        *_: Any,
        **__: Any,
    ) -> None:
        if self._is_watched(frame.f_back):
            self._tell("sample", "sample", list(parameters_of(distribution)), frame)

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
            self._watch.switched(None if mode or begins_block(caller) else caller)

    def _compiled(self, *_: Any, **__: Any) -> None:
        """The compiler looks into what it compiles."""
        self._end()

    def _end(self) -> None:
        """From here on nothing is seen, and everything is as it was before."""
        self._thread = 0
        self._undo.close()


def _guard() -> AbstractContextManager[object]:
    """Where the user has a mode, it does not see that a tensor is asked; else nothing
    of the user's would.
    """
    return isolated() if _count_modes() or _count_dispatch_modes() else nullcontext()


def _has_graph(tensor: Any) -> bool:
    return type(tensor) in PLAIN and bool(tensor.requires_grad)
