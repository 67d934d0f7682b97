"""Notes which call of which module is running, from sequence number to sequence number, while foreign code runs.

Owns the global module hooks, the calls seen, and the modules by identity. Holds modules, parameters and tensors weakly, so a
recording keeps nothing alive. Does not know source lines or graphs.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradviz.capture.private import hide_global_hooks, peek_sequence
from gradviz.capture.steps import Steps

_CALL_NOTES = 1_000_000  # begins and ends of calls that a tape keeps, some 70 MB

_LAST = 8  # completed calls whose outputs a failed forward is shown from


class SeenModule:
    """A module that was called, by identity, held weakly."""

    __slots__ = ("ref", "type")

    def __init__(self, module: torch.nn.Module) -> None:
        self.ref = weakref.ref(module)
        self.type = type(module).__name__


class Tree:
    """An outermost module: the paths of the modules below it, and who owns which parameter."""

    __slots__ = ("owners", "parameters", "paths", "pending", "seen")

    def __init__(self, seen: SeenModule) -> None:
        self.seen = seen
        self.paths: dict[SeenModule, str] = {seen: ""}
        self.parameters: dict[SeenModule, int | None] = {}
        self.owners: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self.pending: list[Call] = []

    def settle(self) -> None:
        """Find paths and parameters of the modules called since the last time."""
        if not self.pending:
            return
        root = self.seen.ref()
        found = {} if root is None else {id(module): path for path, module in root.named_modules()}
        if root is not None:
            self._own("", root)
        for call in self.pending:  # outer calls come before inner ones, so the parent has its path
            module = call.module.ref()
            if call.module not in self.paths:
                self.paths[call.module] = self._path(call, found.get(id(module)) if module is not None else None)
                if module is not None and id(module) not in found:
                    self._own(self.paths[call.module], module)
            if module is not None:
                self.parameters[call.module] = elements(module.parameters())
        self.pending.clear()

    def _path(self, call: Call, path: str | None) -> str:
        """A module that is not registered below the outermost one is named by its class, below its caller."""
        if path is not None:
            return path
        outer = self.paths.get(call.parent.module, "") if call.parent is not None else ""
        return joined(outer, call.module.type)

    def _own(self, prefix: str, module: torch.nn.Module) -> None:
        for name, parameter in module.named_parameters():
            self.owners.setdefault(id(parameter), (weakref.ref(parameter), joined(prefix, name.rpartition(".")[0])))


def joined(outer: str, inner: str) -> str:
    """A module path below another; either may be empty."""
    return f"{outer}.{inner}" if outer and inner else outer or inner


def elements(parameters: Iterable[torch.Tensor]) -> int | None:
    """How many numbers these parameters hold; None when one of them has no shape yet."""
    try:
        return sum(parameter.numel() for parameter in parameters)
    except (RuntimeError, ValueError):  # a lazy parameter
        return None


class Call:
    """One call of one module."""

    __slots__ = ("frame", "module", "number", "output", "parent", "tree")

    def __init__(self, number: int, module: SeenModule, tree: Tree, parent: Call | None, frame: int) -> None:
        self.number = number
        self.module = module
        self.tree = tree
        self.parent = parent
        self.frame = frame
        self.output: OutputFacts | None = None


class OutputFacts(NamedTuple):
    shape: Any
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout


class Tape:
    """What one thread noted: lines and calls by sequence number, and the calls that run now."""

    __slots__ = ("calls", "failed", "last", "lines", "stack", "start")

    def __init__(self) -> None:
        self.start = start = peek_sequence()
        self.lines: Steps[Any] = Steps(start)
        self.calls: Steps[Call] = Steps(start, limit=_CALL_NOTES)
        self.stack: list[Call] = []
        self.last: deque[tuple[Call, list[weakref.ref[torch.Tensor]]]] = deque(maxlen=_LAST)
        self.failed: FailedCall | None = None

    @property
    def end(self) -> int:
        """The last sequence number noted: every node made under an earlier one is covered."""
        return max(self.lines.numbers[-1], self.calls.numbers[-1])


class FailedCall:
    """The innermost call that an exception left, with what it was given."""

    __slots__ = ("arguments", "call", "error", "reached")

    def __init__(self, call: Call, error: int, arguments: list[weakref.ref[torch.Tensor]]) -> None:
        self.call, self.error, self.arguments = call, error, arguments
        self.reached = call  # the outermost call that the same exception has left so far


class ModuleCalls:
    """The hooks. `tape` gives the log of the thread that calls it."""

    def __init__(self, tape: Callable[[], Tape]) -> None:
        self._tape = tape
        self._seen: dict[int, SeenModule] = {}
        self._trees: dict[SeenModule, Tree] = {}
        self._count = 0
        self._handles: list[Any] = []

    def start(self) -> None:
        register = torch.nn.modules.module
        self._handles.append(register.register_module_forward_pre_hook(self._enter))
        self._handles.append(register.register_module_forward_hook(self._leave, always_call=True))
        self._handles.append(hide_global_hooks({handle.id for handle in self._handles}))

    def stop(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def trees(self) -> list[Tree]:
        """Every outermost module so far, settled."""
        for tree in self._trees.values():
            tree.settle()
        return list(self._trees.values())

    # The two hooks return None, so that torch leaves arguments and result as they are. Under torch.compile they must do
    # nothing at all, or what they do is compiled into the user's function.

    def _enter(self, module: torch.nn.Module, arguments: Any) -> None:
        if torch.compiler.is_compiling():
            return
        tape = self._tape()
        frame = sys._getframe(1)
        stack = tape.stack
        while stack and not _runs_inside(frame, stack[-1].frame):
            stack.pop()  # a call that an interrupt left: hooks run for exceptions, not for KeyboardInterrupt
        seen = self._seen.get(id(module))
        if seen is None or seen.ref() is not module:
            seen = self._seen[id(module)] = SeenModule(module)
        parent = stack[-1] if stack else None
        tree = parent.tree if parent is not None else self._tree(seen)
        self._count += 1
        call = Call(self._count, seen, tree, parent, id(frame))
        if seen not in tree.parameters:
            tree.parameters[seen] = None
            tree.pending.append(call)
        stack.append(call)
        tape.calls.add(peek_sequence(), call)

    def _leave(self, module: torch.nn.Module, arguments: Any, *result: Any) -> None:
        if torch.compiler.is_compiling():
            return
        tape = self._tape()
        call = _closed(tape.stack, module)
        if call is None:
            return
        tape.calls.add(peek_sequence(), call.parent)
        error = _error_that_left(sys._getframe(1)) if result[-1] is None else None
        if error is not None:
            _note_failure(tape, call, error, arguments)
        if torch._C._get_tracing_state() is not None:
            return  # torch.jit.trace would record that a shape is read
        if error is None:
            _note_output(tape, call, _tensors(result[-1]))
        if call.parent is None:
            call.tree.settle()

    def _tree(self, seen: SeenModule) -> Tree:
        tree = self._trees.get(seen)
        if tree is None:
            tree = self._trees[seen] = Tree(seen)
        return tree


def _runs_inside(frame: FrameType, outer: int) -> bool:
    """Whether the module call that runs in `frame` was made inside the one whose frame has the identity `outer`.

    A frame that ended may pass its identity on, but only to a call that began later, and that one was then asked itself.
    """
    code = frame.f_code
    around = frame.f_back
    while around is not None:
        if id(around) == outer and around.f_code is code:
            return True
        around = around.f_back
    return False


def _closed(stack: list[Call], module: torch.nn.Module) -> Call | None:
    """Take the innermost call of `module` from the stack, and whatever was left open inside it."""
    for i in range(len(stack) - 1, -1, -1):
        if stack[i].module.ref() is module:
            call = stack[i]
            del stack[i:]
            return call
    return None


def _error_that_left(frame: FrameType) -> BaseException | None:
    """The exception that a module call is ending with, when the hook runs for that: its traceback begins in that call."""
    error = sys.exc_info()[1]
    trace = error.__traceback__ if error is not None else None
    return error if trace is not None and trace.tb_frame is frame else None


def _note_output(tape: Tape, call: Call, tensors: list[torch.Tensor]) -> None:
    if tensors:
        call.output = _facts(tensors[0])
    tape.last.append((call, [weakref.ref(tensor) for tensor in tensors]))


def _note_failure(tape: Tape, call: Call, error: BaseException, arguments: Any) -> None:
    known = tape.failed
    if known is not None and known.error == id(error) and known.reached.parent is call:
        known.reached = call
    else:
        tape.failed = FailedCall(call, id(error), [weakref.ref(tensor) for tensor in _tensors(arguments)])


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a result or in arguments, one container deep."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (tuple, list)):
        return []
    return [item for item in value if isinstance(item, torch.Tensor)]


def _facts(tensor: torch.Tensor) -> OutputFacts | None:
    """Shape and type of an output. Runs nobody's `__torch_function__`."""
    with torch._C.DisableTorchFunction():
        try:
            return OutputFacts(tensor.shape, tensor.dtype, tensor.device, tensor.layout)
        except RuntimeError:  # a strided nested tensor has no shape
            return None
