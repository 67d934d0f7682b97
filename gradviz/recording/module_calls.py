"""Notes which call of which module is running, from sequence number to sequence number,
while foreign code runs.

Owns the global module hooks, the calls seen, and the modules by identity. Does not know
source lines or graphs.
"""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dis import get_instructions
from functools import lru_cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointFunction

from gradviz.armour.hooks import hide_global_hooks
from gradviz.armour.signals import uninterrupted
from gradviz.armour.taps import Ended, tapped
from gradviz.packages import CallSite, UserCode, frames_from
from gradviz.recording.event_log import (
    Evaluation,
    EventLog,
    ModuleCall,
    ModuleInput,
    ModuleTree,
    SeenModule,
)
from gradviz.recording.running import running_call
from gradviz.variables.objects import is_a, tensors_in
from gradviz.variables.scanner import local_variables
from gradviz.walker.places import Argument
from gradviz.walker.private import peek_sequence

_Attention = torch.nn.MultiheadAttention
_FORWARD = getattr(CheckpointFunction.forward, "__code__", None)


def bare_checkpoint(frame: FrameType | None, outer: int) -> FrameType | None:
    """The frame of the innermost reentrant checkpoint, if no input of it requires grad,
    between a module's call and the call around it, which runs in frame `outer`.
    """
    for caller in frames_from(frame):
        if id(caller) == outer:
            break
        if caller.f_code is _FORWARD:
            inputs: Any = local_variables(caller).get("args", ())
            with torch._C.DisableTorchFunction():
                bare = not any(
                    is_a(value, torch.Tensor) and value.requires_grad
                    for value in inputs
                )
            # with no such input torch records nothing inside the checkpoint
            return caller if bare else None

    return None


_new = object.__new__
grad_enabled = torch.is_grad_enabled
_without_functions = torch._C.DisableTorchFunction  # runs nobody's `__torch_function__`


class ModuleCalls:
    """The hooks. `event_log` gives that of the running thread."""

    def __init__(self, event_log: Callable[[], EventLog], user: UserCode) -> None:
        self._event_log = event_log
        self._user = user
        self._seen: dict[int, SeenModule] = {}
        self._trees: dict[SeenModule, ModuleTree] = {}
        self._count = 0
        self._handles: list[Any] = []
        self._until = ExitStack()

    def start(self) -> None:
        self._hook()
        for name in ("export", "draft_export"):
            export = getattr(torch.export, name, None)  # the second from torch 2.7 on
            if export is not None:
                self._until.enter_context(tapped(export, self._exports))

    def stop(self) -> None:
        self._until.close()
        self._unhook()

    def _hook(self) -> None:
        register = torch.nn.modules.module
        self._handles.append(register.register_module_forward_pre_hook(self._enter))
        self._handles.append(
            register.register_module_forward_hook(self._leave, always_call=True)
        )
        self._handles.append(hide_global_hooks({handle.id for handle in self._handles}))

    def _unhook(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _exports(self, *_: Any, **__: Any) -> Ended | None:
        """Called as an export begins; what it returns is called as it ends."""
        # inside another export, which brings the hooks back at its own end
        if not self._handles:
            return None
        # an export would make global hooks a part of the exported program
        self._unhook()
        return lambda *_: self._hook()

    def seen(self, module: torch.nn.Module) -> SeenModule | None:
        """What is known of a module, None when it was not called."""
        entry = self._seen.get(id(module))
        return entry if entry is not None and entry.ref() is module else None

    def called(self) -> Iterator[tuple[torch.nn.Module, SeenModule]]:
        """The modules that were called and are still there."""
        for seen in list(self._seen.values()):
            module = seen.ref()
            if module is not None:
                yield module, seen

    def trees(self) -> list[ModuleTree]:
        """Every outermost module so far, settled."""
        for tree in self._trees.values():
            tree.settle()
        return list(self._trees.values())

    # The two hooks return None, so that torch leaves arguments and result as they are.
    # Under torch.compile they must do nothing at all, or what they do is compiled into
    # the user's function. Near the limit of recursion they note nothing: the user's
    # code is about to meet it, or not.

    @uninterrupted
    def _enter(self, module: torch.nn.Module, arguments: Any) -> None:
        try:
            if not torch.compiler.is_compiling():
                self._note_entered(module, arguments, sys._getframe(1))
        except RecursionError:
            pass

    @uninterrupted
    def _leave(self, module: torch.nn.Module, arguments: Any, *result: Any) -> None:
        try:
            if not torch.compiler.is_compiling():
                self._note_left(module, result[-1])
        except RecursionError:
            pass

    def _note_entered(
        self, module: torch.nn.Module, arguments: Any, frame: FrameType
    ) -> None:
        event_log = self._event_log()
        stack = event_log.stack
        # an interrupt ends calls, too: hooks run for exceptions, but not for
        # KeyboardInterrupt
        while stack and not _runs_in(frame.f_back, stack[-1]):
            stack.pop()

        call = self._begin(event_log, module, frame, peek_sequence())
        if call.module.recording:  # else no graph has what it is given
            # attention is given its masks by keyword, by modules of torch's, too
            has_keywords = call.parent is None or is_a(module, _Attention)
            by_keyword = local_variables(frame).get("kwargs") if has_keywords else None
            _note_arguments(event_log, arguments, by_keyword)

    def _begin(
        self,
        event_log: EventLog,
        module: torch.nn.Module,
        frame: FrameType,
        next_node: int,
    ) -> ModuleCall:
        """A call that runs in this frame begins, before node number `next_node`."""
        stack = event_log.stack
        outer = stack[-1] if stack else None
        site = self._user.site(frame.f_back, outer)
        function = running_call(frame.f_back, next_node, outer)

        seen = self.seen(module)
        if seen is None:
            seen = self._seen[id(module)] = SeenModule(module)

        call = self._new_call(seen, outer, frame, site, next_node)
        call.function = function
        stack.append(call)
        seen.checkpoint = None if seen.recording else self._checkpoint(frame, call)
        event_log.note_call(next_node)
        return call

    def _new_call(
        self,
        seen: SeenModule,
        outer: ModuleCall | None,
        frame: FrameType,
        site: CallSite | None,
        next_node: int,
    ) -> ModuleCall:
        # filled in by hand: this runs for every call of a module, and a constructor
        # with so many arguments would take longer than the rest
        call = _new(ModuleCall)
        call.module, call.frame, call.code = seen, id(frame), frame.f_code
        call.site, call.began, call.parent = site, next_node, outer
        call.output = None
        call.is_replaced = False

        if outer is not None:
            call.tree = outer.tree
        else:
            call.tree = self._trees.setdefault(seen, ModuleTree(seen))

        self._count = call.number = self._count + 1
        call.root = root = None if outer is None else outer.root or outer
        if root is None:
            call.calls = Counter()

        calls = (root or call).calls
        calls[seen] += 1
        call.nth = calls[seen]
        if seen not in call.tree.parameters:
            call.tree.parameters[seen] = None
            # its path is found when the outermost call is over: that walks all modules
            call.tree.pending.append(call)

        seen.calls += 1
        seen.began, seen.recording = next_node, grad_enabled()
        seen.site = site
        return call

    def _checkpoint(self, frame: FrameType, call: ModuleCall) -> Any:
        """The line of the checkpoint that is why this call does not record."""
        outer = call.parent
        if outer is not None and not outer.module.recording:
            # the call around it does not record either, and for the same reason
            return outer.module.checkpoint
        bare = bare_checkpoint(frame, outer.frame if outer is not None else 0)
        place = self._user.place(bare.f_back, outer) if bare is not None else None
        return place.source if place is not None else None

    def _note_left(self, module: torch.nn.Module, output: Any) -> None:
        event_log = self._event_log()
        call = _closed(event_log.stack, module)
        # it began before the recording did
        if call is None:
            return

        # the module's own run after this one, and may replace what it returns
        hooks = module.__dict__.get("_forward_hooks")
        if hooks:
            call.is_replaced = not all(map(_gives_nothing, hooks.values()))
        number = peek_sequence()
        event_log.note_call(number)
        if output is not None and number == call.began and _records_nothing(call):
            return

        # torch runs this hook for exceptions, too, and has no result then;
        # torch.jit.trace would record that a shape is read
        if output is not None and torch._C._get_tracing_state() is None:
            _note_outputs(call, output)

        if call.parent is None:
            if module.__dict__.get("training") is False:
                _note_evaluation(event_log, call, number)
            if call.tree.pending and torch._C._get_tracing_state() is None:
                call.tree.settle()


def _gives_nothing(hook: Any) -> bool:
    """Whether a function returns None, as its code says, so that a hook which it is
    leaves the result as it is.
    """
    code = getattr(hook, "__code__", None)
    return code is not None and _returns_none(code)


@lru_cache(maxsize=1024)
def _returns_none(code: CodeType) -> bool:
    instructions = list(get_instructions(code))
    methods = [one.argval for one in instructions if one.opname in _ATTRIBUTES]
    # `kept.append(output)`, all that a lambda does
    is_adding = any(name in _ADDING for name in methods[:1] + methods[-1:])
    for before, last in pairwise(instructions):
        value = last if last.opname == "RETURN_CONST" else before
        is_constant = value.opname in ("LOAD_CONST", "RETURN_CONST")
        is_none = is_constant and value.argval is None
        if last.opname.startswith("RETURN_") and not is_none:
            return (
                is_adding
                and before.opname.startswith("CALL")
                and not any("JUMP" in one.opname for one in instructions)
            )
    return True


_ATTRIBUTES = ("LOAD_METHOD", "LOAD_ATTR")
_ADDING = ("append", "add", "extend", "update", "insert", "__setitem__")
"""Methods that return None."""


def _note_evaluation(event_log: EventLog, call: ModuleCall, number: int) -> None:
    """Note a call of an outermost module in eval() mode, if it was recorded."""
    module = call.module
    # autocast records how it casts weights under no_grad(), too: nodes alone do not
    # say that the call was recorded
    place = call.site.place if call.site is not None else None
    if number > call.began and module.gave_graph and place is not None:
        evaluation = Evaluation(module.type, place, call.began, number)
        event_log.evaluations.append(evaluation)


def _runs_in(frame: FrameType | None, call: ModuleCall) -> bool:
    """Whether a frame is that of a call, or inside it."""
    identity, code = call.frame, call.code
    while frame is not None and (id(frame) != identity or frame.f_code is not code):
        frame = frame.f_back
    return frame is not None


def _closed(stack: list[ModuleCall], module: torch.nn.Module) -> ModuleCall | None:
    """Take the innermost call of `module` from the stack, and whatever was left open
    inside it.
    """
    for i in range(len(stack) - 1, -1, -1):
        if stack[i].module.ref() is module:
            call = stack[i]
            # with the calls inside it that an interrupt ended without running their
            # hooks
            del stack[i:]
            return call
    return None


def _records_nothing(call: ModuleCall) -> bool:
    """Whether a call that made no node is in no graph, as in a rollout, and its
    module's path is known already.
    """
    return not call.module.recording and not call.tree.pending


def _note_outputs(call: ModuleCall, output: Any) -> None:
    """Note the tensors of a result; the first one stands for its shape."""
    tensors = [output] if type(output) is torch.Tensor else tensors_in(output)
    with _without_functions():
        gradients = [tensor.requires_grad for tensor in tensors]
        call.module.gave_graph = not tensors or True in gradients
        for first in tensors[:1]:
            try:
                call.output = (first.shape, first.dtype, first.device, first.layout)
            except RuntimeError:  # a strided nested tensor has no shape
                pass


def _note_arguments(event_log: EventLog, arguments: Any, keywords: Any) -> None:
    """Note the data that a module is called with, as the parameters of its forward are
    called.
    """
    named: list[tuple[str, Any]] = []
    with _without_functions():
        if any(_is_data(one) or type(one) is tuple for one in arguments):
            code = event_log.stack[-1].module.forward
            if code is not None:
                # without self
                parameters = code.co_varnames[1 : code.co_argcount]
                named += zip(parameters, arguments)

        if type(keywords) is dict:
            named += keywords.items()

        for name, value in named:
            # the state of an LSTM is a pair
            parts = value if type(value) is tuple and name == "hx" else (value,)
            for tensor in filter(_is_data, parts):
                call = event_log.stack[-1]
                argument = Argument(name, call.parent is not None)
                given = ModuleInput(call, argument, weakref.ref(tensor))
                event_log.arguments.append(given)


def _is_data(value: object) -> bool:
    return type(value) is torch.Tensor and not value.requires_grad
