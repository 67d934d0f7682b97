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

import dis
import inspect
import linecache
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, Protocol

import torch
import torch.distributions as distributions
import torch.jit._builtins as scripted

from gradviz.packages import is_foundation
from gradviz.source.cut import METHODS, DetachKind
from gradviz.walker.isolation import isolated
from gradviz.walker.private import is_traced
from gradviz.walker.taps import Began, Ended, all_tapped

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Classes of tensors that answer like any tensor."""


_builtin_table: Any = scripted._get_builtin_table


class Watch(Protocol):
    """What is told of the calls that cut."""

    def cutting(
        self,
        kind: DetachKind,
        name: str,
        tensors: Sequence[torch.Tensor],
        frame: FrameType,
        into: torch.Tensor | None,
    ) -> None:
        """A function cuts off these tensors, which have a graph. `into` is a leaf that
        gets their numbers.
        """

    def switched(self, frame: FrameType | None) -> None:
        """A call that is no block has switched recording off; None: or on again."""


_OPERATORS: dict[str, DetachKind] = {
    **dict.fromkeys(("__float__", "__int__", "__index__", "__complex__"), "number"),
    **dict.fromkeys(
        ("__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__"), "integer"
    ),
}


# a mode of the user's would see that a tensor is asked
_count_modes = torch._C._len_torch_function_stack
_count_dispatch_modes = torch._C._len_torch_dispatch_stack
_MOST = 4  # elements of a list
_NOT_SEEN = ("torch", "gradviz")
"""Packages whose own calls cut nothing of the user's."""


class _Attribute:
    """An attribute of `torch.Tensor` that hands out torch's own, and says so first."""

    def __init__(
        self,
        name: str,
        theirs: Any,
        asked: Callable[[str, Any, FrameType], None],
    ) -> None:
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
            error.__traceback__ = _without_ours(error.__traceback__)
            raise


class CutCalls:
    """Of one thread: `watch` is told of each call that cuts. `stepped` is called after
    each backward.
    """

    def __init__(
        self,
        watch: Watch,
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
            for name in (*METHODS, *_OPERATORS, "copy_"):
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
                    made = _on_its_line(caller, theirs, given, options)
            except BaseException as error:
                error.__traceback__ = _without_ours(error.__traceback__)
                raise

            data = given[0] if given else options.get("data")
            if (
                made is not data and not isinstance(data, torch.Tensor)
            ) or theirs is not torch.as_tensor:
                self._tell(
                    "new",
                    theirs.__name__,
                    list(_elements(data)),
                    caller,
                    made,
                )

            return made

        wrapper.__module__, wrapper.__qualname__ = "torch", theirs.__name__
        # what TorchScript knows functions of torch by
        table: dict[int, str] = _builtin_table()
        table[id(wrapper)] = table[id(theirs)]
        self._undo.callback(table.pop, id(wrapper))
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
        elif name in _OPERATORS:
            self._tell(_OPERATORS[name], name, (tensor,), frame)
        elif name == "data" and _reads(frame):
            self._tell("data", name, (tensor,), frame)
        elif name == "copy_" and _calls(frame):
            self._writes(tensor, _first_argument(frame), frame)
        elif name in METHODS and _calls(frame):
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
                lost = [
                    one for one in tensors if type(one) in PLAIN and one.requires_grad
                ]
                if lost:
                    self._watch.cutting(kind, name, lost, frame, into)
        except Exception as error:
            if _is_the_users(error):
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
        for draws in dict.fromkeys(_samples()):
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
            self._tell("sample", "sample", list(_parameters(distribution)), frame)

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
            self._watch.switched(None if mode or _begins_block(caller) else caller)

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


def _is_the_users(error: BaseException) -> bool:
    """Whether an exception comes from code that ran in between, as a handler of signals
    does.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return not is_foundation(frames[-1].f_code.co_filename)


def _samples() -> Iterator[Any]:
    """The functions of torch that draw from a distribution."""
    waiting: list[Any] = [distributions.Distribution]
    for kind in waiting:  # grows while it is read
        waiting += (
            one for one in kind.__subclasses__() if one.__module__.startswith("torch.")
        )
        if inspect.isfunction(sample := vars(kind).get("sample")):
            yield inspect.unwrap(sample)


def _begins_block(frame: FrameType) -> bool:
    line = linecache.getline(
        frame.f_code.co_filename,
        frame.f_lineno or 0,
    ).strip()
    return line.startswith(("with ", "async with ", "@"))


def _parameters(distribution: Any) -> Iterator[Any]:
    """The tensors that a distribution holds, and those that it is made of do."""
    for value in list(vars(distribution).values()):
        if type(value) in PLAIN:
            yield value
        elif isinstance(value, distributions.Distribution):
            yield from _parameters(value)


def _elements(data: Any) -> Iterator[Any]:
    """The first elements of lists in lists, those of the outer ones first."""
    waiting = [data]
    for value in waiting:  # grows while it is read
        if type(value) in (list, tuple):
            waiting += value[:_MOST]
        else:
            yield value


def _on_its_line(
    caller: FrameType,
    function: Any,
    given: Any,
    options: Any,
) -> Any:
    """What a function returns, called from a line that is the caller's to whoever asks,
    so that a warning is issued there.
    """
    code = _CALL.__code__.replace(
        co_filename=caller.f_code.co_filename,
        co_firstlineno=caller.f_lineno or 1,
        co_name=_OURS,
    )
    return FunctionType(code, caller.f_globals)(function, given, options)


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the functions of this module, to which a bare `raise` adds
    none again, from Python 3.11 on.
    """
    while trace is not None and (
        trace.tb_frame.f_globals is globals() or trace.tb_frame.f_code.co_name == _OURS
    ):
        trace = trace.tb_next
    return trace


_OURS = "<gradviz>"
_CALL: Any = lambda function, given, options: function(*given, **options)  # noqa: E731 - of one line

# -- what the code does with an attribute ----------------------------------------------

_METHOD_BIT = sys.version_info >= (3, 12)
_LOAD_ATTR, _LOAD_METHOD = dis.opmap["LOAD_ATTR"], dis.opmap.get("LOAD_METHOD")


def _calls(frame: FrameType) -> bool:
    """Whether the running instruction reads a method to call it, other than
    `hasattr(x, "detach")`.
    """
    code, at = frame.f_code.co_code, frame.f_lasti
    if _METHOD_BIT:
        return bool(code[at] == _LOAD_ATTR and code[at + 1] & 1)
    return code[at] == _LOAD_METHOD


def _reads(frame: FrameType) -> bool:
    return frame.f_code.co_code[frame.f_lasti] == _LOAD_ATTR


def _first_argument(frame: FrameType) -> Any:
    """What a method is about to be called with, where that is a name."""
    code: CodeType = frame.f_code
    after = (
        one
        for one in dis.get_instructions(code)
        if one.offset > frame.f_lasti and one.opname != "CACHE"
    )
    first = next(after, None)
    if first is not None and first.opname.startswith("LOAD_"):
        return _value(frame, first)
    return None


def _value(frame: FrameType, load: dis.Instruction) -> Any:
    for names in (
        (frame.f_locals, frame.f_globals) if isinstance(load.argval, str) else ()
    ):
        if load.argval in names:
            return names[load.argval]
    return None
