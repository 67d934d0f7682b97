"""Sees each call of the torch API that the calling thread makes, so that nothing of the user's notices.

A mode of `torch.overrides` is told of every such call: in helpers, forwards and libraries alike. Three things would show it:

- *Its frame*, in warnings, tracebacks, anomaly stacks and traces. It has none: torch calls a built-in function, which calls
  from C what was asked for, and hands the result to Python afterwards. `ctypes` makes it of functions of Python's own interface.
- *The question for modes*: `nn.MultiheadAttention` and `nn.TransformerEncoder` leave their fast path where one is on, and
  functions of torch that are written in Python call themselves once more. The functions that answer leave this mode out.
- *The compiler*, which would compile it into the user's function: the mode is off for good before that runs.

What remains visible: that those functions are written in Python now, and two microseconds a call. Knows no graph, and not what is
done with a call.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from operator import methodcaller
from types import CodeType, FrameType
from typing import Any

import torch
import torch.jit._builtins as scripted

from gradviz.packages import is_foundation
from gradviz.walker.private import FunctionModes
from gradviz.walker.signals import uninterrupted
from gradviz.walker.taps import Ended, all_tapped

Given = tuple[Any, ...]

Seen = Callable[[Any, Given, Any, Any, FrameType], None]
"""Called with a function of torch, its arguments and options, what it returned, and the frame that called it."""

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Classes of tensors that answer like any tensor."""

FIRST, SEEN, EVERY = 32, 8, 128
"""Backward calls up to which all calls are seen; from then on those before `SEEN` of `EVERY` backward calls."""

ATTENDED = 2
"""How often what a line evaluates is seen, beside that."""

_PATIENCE, _AGAIN = 1.0, 0.001  # seconds

_IN_PYTHON = frozenset(("torch.functional", "torch.nn.functional"))
"""Modules of torch whose functions call others of it."""

_stack = FunctionModes()
_tracing, _transform = torch._C._get_tracing_state, torch._C._functorch.peek_interpreter_stack
_VARARGS = 1
_DATA: Any = torch.Tensor.data
_Slot = type(_DATA.__get__)
_builtin_table: Callable[[], dict[int, str]] = scripted._get_builtin_table
_python = ctypes.pythonapi


def is_real(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def name_of(function: Any, frame: FrameType) -> str:
    """How the code spells what it called: functions of torch that are written in Python call others."""
    name, around = function.__name__, frame
    while around.f_globals.get("__name__") in _IN_PYTHON and around.f_back is not None:
        name, around = around.f_code.co_name, around.f_back
    return str(name)


# -- calls without a frame -----------------------------------------------------------------------------------------------


class _Method(ctypes.Structure):
    """What Python's own interface calls PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("code", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("text", ctypes.c_char_p),
    )


_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object)(
    ("PyCFunction_NewEx", _python)
)
_keep: list[_Method] = []  # a built-in function refers to its own for ever


def _built_in(name: str, owner: object, module: str) -> Any:
    """A built-in function that calls `owner` with the tuple of its arguments."""
    method = _Method(name.encode(), ctypes.cast(_python.PyObject_CallOneArg, ctypes.c_void_p).value, _VARARGS, None)
    _keep.append(method)
    return _new_function(ctypes.addressof(method), owner, module)


def _mode(returned: Any) -> Any:
    """A mode of `torch.overrides` that has no frame while a function runs; `returned` gets each result, and hands it on.

    C++ calls a built-in function, which calls the mode; `PyObject_Call` then asks the mode for its `call` and calls that. A
    getter can be written in Python, since it has returned by then, and so can what `ctypes` calls afterwards.
    """
    waiting: list[Given] = []
    stash: Any = type("Stash", (), {"from_param": waiting.append})  # its None becomes the pointer to no options

    class CallMode:
        @property
        @uninterrupted
        def call(self) -> Callable[[], Any]:
            function, _, *given = waiting.pop()  # the last one: a finalizer may have called another before
            return partial(function, *given[0], **given[1]) if len(given) > 1 else partial(function, *given[0])

    call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.py_object, stash)(("PyObject_Call", _python))
    call.errcheck = returned
    kind: Any = CallMode
    mode = kind()
    kind.__call__ = staticmethod(partial(call, methodcaller("call"), (mode,)))
    mode.__torch_function__ = _built_in("__torch_function__", mode, __name__)
    return mode


# -- what torch answers about modes --------------------------------------------------------------------------------------


def _answers(mode: Any) -> dict[Any, Any]:
    """The functions of torch that say whether a mode is on, each with one that leaves `mode` out."""
    home: Any = torch._C
    depth, entry, enabled = home._len_torch_function_stack, home._get_function_stack_at, home._is_torch_function_enabled
    disabled = home._disabled_torch_function_impl
    one, several, many = home._has_torch_function_unary, home._has_torch_function_variadic, home._has_torch_function

    def alone() -> bool:
        return depth() == 1 and entry(0) is mode

    def positions() -> list[int]:
        return [i for i in range(depth()) if entry(i) is not mode]

    def overrides(arguments: Any) -> bool:
        for argument in arguments:
            kind = type(argument)
            if kind not in PLAIN and getattr(argument, "__torch_function__", disabled) is not disabled:
                return bool(enabled())
        return False

    @wraps(many)
    def has(arguments: Any) -> bool:
        return overrides(arguments) if alone() else many(arguments)

    @wraps(one)
    def has_unary(argument: Any) -> bool:
        return overrides((argument,)) if alone() else one(argument)

    @wraps(several)
    def has_variadic(*arguments: Any) -> bool:
        return overrides(arguments) if alone() else several(*arguments)

    is_on = home._is_torch_function_mode_enabled

    @wraps(is_on)
    def is_mode_on() -> bool:
        return not alone() and is_on()

    @wraps(depth)
    def others() -> int:
        return len(positions())

    @wraps(entry)
    def other(position: int) -> Any:
        known = positions()
        return entry(known[position] if 0 <= position < len(known) else position)

    return {many: has, one: has_unary, several: has_variadic, is_on: is_mode_on, depth: others, entry: other}


def _exchange(mine: dict[Any, Any]) -> None:
    """Put functions in the place of others, in every module that has them, but for those of gradviz."""
    known = {id(theirs): own for theirs, own in mine.items()}
    for home, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", {})
        if home.startswith("gradviz.") or known.keys().isdisjoint(map(id, list(names.values()))):
            continue  # as nearly all: there are a hundred thousand names
        for name, value in list(names.items()):
            if id(value) in known and callable(value):
                setattr(module, name, known[id(value)])


# -- the watch -----------------------------------------------------------------------------------------------------------


def is_decorated(frame: FrameType) -> bool:
    """Whether it is of the function that torch puts around one with a mode. Each is named after its mode since torch 2.15."""
    code = frame.f_code
    return code.co_firstlineno == _DECORATED.co_firstlineno and code.co_filename == _DECORATED.co_filename


_DECORATED: CodeType = torch.no_grad()(lambda: None).__code__


class TorchCalls:
    """Of one thread: `seen` is told of every call.

    `stepped` is called after each backward; with it no step is left out.
    """

    def __init__(self, seen: Seen, *, stepped: Callable[[], None] | None = None) -> None:
        self._seen, self._stepped = seen, stepped
        self._paused = self._backwards = 0
        self._seeing = True  # the mode is on
        self._attended: Counter[tuple[CodeType, int]] = Counter()  # lines that began an evaluation
        self._ended = False
        self._undo = ExitStack()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, calls of this thread are seen, until something is compiled."""
        self._ended, self._thread = False, threading.get_ident()
        mode = self._mode = _mode(self._returned)
        mine = {**_answers(mode), **self._watched()}
        theirs = {own: original for original, own in mine.items()}
        try:
            self._undo.callback(_exchange, theirs)
            _exchange(mine)
            self._scripts(mine)
            evaluates = (torch.nn.Module.train, torch.no_grad.__enter__, torch.inference_mode.__enter__)
            listeners: dict[Any, Any] = {
                torch.autograd.graph._engine_run_backward: self._backward_began,
                torch.nn.Parameter.__new__: self._parameter_began,
                **dict.fromkeys(evaluates, self._evaluation_began),
            }
            self._undo.enter_context(all_tapped(listeners.items()))
            self._undo.callback(self._leave)
            self._references = sys.getrefcount(mode)
            _enter(mode)
            _watching.add(self)
            yield
        finally:
            self.end()
            _exchange(theirs)  # where one of ours was kept by who replaced it meanwhile, and put back

    def end(self) -> None:
        """From here on nothing is seen, and everything is as it was before."""
        self._ended = True
        self._undo.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, nothing is told: it is not the user's code."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def _next_step(self) -> None:
        """A backward has run. A long run rests most of the time, and pays nothing for what it does then."""
        if self._ended or threading.get_ident() != self._thread:
            return
        self._backwards += 1
        if self._stepped is not None:
            self._stepped()
        elif self._seeing != (self._backwards < FIRST or self._backwards % EVERY < SEEN):
            self._seeing = not self._seeing
            if self._seeing:
                _enter(self._mode)
            else:
                self._leave()

    def _leave(self) -> None:
        """Work that torch gave to a thread of its own (gloo's, say) has a reference to the modes of that moment.

        To drop the last one it waits for the interpreter, and whoever waits for that thread and holds the interpreter, as the end
        of a process group does, would wait for ever. So nobody goes on before the work is done.
        """
        _take_out(self._mode)
        patience = time.monotonic() + _PATIENCE
        while sys.getrefcount(self._mode) > self._references and time.monotonic() < patience:
            time.sleep(_AGAIN)

    def _returned(self, result: Any, _: object, given: Given) -> Any:
        """A function of torch has returned. Written flat: every call of the torch API passes here."""
        function, _, *rest = given[2]
        read = type(function) is _Slot and function.__name__ == "__get__" and function.__self__ is not _DATA
        if not (read or self._paused) and _tracing() is None and _transform() is None:
            self._tell(function, rest[0], rest[1] if len(rest) > 1 else None, result, sys._getframe(1))
        return result

    def _tell(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        try:
            self._seen(function, arguments, options, result, frame)
        except Exception as error:
            if _is_the_users(error):
                raise

    def _aside(self, function: Any, arguments: Given, result: Any, frame: FrameType) -> None:
        """The same for what no mode is told of."""
        if not (self._paused or self._ended) and _tracing() is None and _transform() is None:
            with torch._C.DisableTorchFunction():
                self._tell(function, arguments, None, result, frame)

    # -- what no mode is told of ---------------------------------------------------------------------------------------

    def _watched(self) -> dict[Any, Any]:
        """The function that ends it, with one that is put in its place."""
        compiler = torch._C._dynamo.eval_frame
        theirs = compiler.set_eval_frame

        @wraps(theirs)
        def set_eval_frame(callback: Any) -> Any:
            if callable(callback):
                self.end()
            return theirs(callback)

        return {theirs: set_eval_frame}

    def _backward_began(self, engine: FrameType, outputs: Any, *arguments: Any, **options: Any) -> Ended:
        def ended(returned: bool, result: Any) -> None:
            if returned:
                self._next_step()
                if not options.get("accumulate_grad") and engine.f_back is not None:
                    self._aside(torch.autograd.grad, (outputs, arguments[3]), result, engine.f_back)

        return ended

    def _evaluation_began(self, frame: FrameType, _: Any, training: bool = False) -> None:
        """The user's code evaluates: what comes until the next backward call is seen, the first times for each line."""
        caller = frame.f_back
        if caller is not None and (caller.f_code.co_name == "eval" or is_decorated(caller)):
            caller = caller.f_back
        if training or self._seeing or self._ended or caller is None or is_foundation(caller.f_code.co_filename):
            return
        line = caller.f_code, caller.f_lineno or 0
        self._attended[line] += 1
        if self._attended[line] <= ATTENDED and threading.get_ident() == self._thread:
            self._seeing = True
            _enter(self._mode)

    def _parameter_began(self, frame: FrameType, kind: Any, data: Any = None, *_: Any, **__: Any) -> Ended:
        def ended(returned: bool, made: Any) -> None:
            if returned and frame.f_back is not None:
                self._aside(torch.nn.Parameter, (data,), made, frame.f_back)

        return ended

    def _scripts(self, mine: dict[Any, Any]) -> None:
        """Let TorchScript know the functions of ours as it knows those of torch."""
        table = _builtin_table()
        for original, own in mine.items():
            if id(original) in table:
                table[id(own)] = table[id(original)]
                self._undo.callback(table.pop, id(own))


_watching: weakref.WeakSet[TorchCalls] = weakref.WeakSet()


def _end_all() -> None:
    for calls in list(_watching):
        calls.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all)  # a worker that loads data


def _is_the_users(error: BaseException) -> bool:
    """Whether an exception comes from code that ran in between, as a handler of signals does."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and not is_foundation(trace.tb_frame.f_code.co_filename)


def _others(mode: Any) -> list[Any]:
    """Take all modes from the stack; those that are not `mode`, the lowest first."""
    taken = [_stack.pop() for _ in range(_stack.depth())]
    return [other for other in reversed(taken) if other is not mode]


def _take_out(mode: Any) -> None:
    for other in _others(mode):
        _stack.push(other)


def _enter(mode: Any) -> None:
    """Below those of the user's."""
    for one in (mode, *_others(mode)):
        _stack.push(one)
