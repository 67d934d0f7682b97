"""Sees numbers that change where autograd does not look: through `.data`, `detach()` and NumPy, in hooks, and in recomputation.

Of what a line hands out so, a few elements are kept until the next backward call has run, and no tensor.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch.multiprocessing.reductions import StorageWeakRef

from gradviz.checks.collect.calls import Observer, TorchCall, reads, taps
from gradviz.checks.ops import kind
from gradviz.cuts.torch_calls import PLAIN
from gradviz.graph import Graph
from gradviz.packages import Place, package_of
from gradviz.source.statements import body_of
from gradviz.variables.scanner import local_variables
from gradviz.walker.isolation import isolated, unrecorded
from gradviz.walker.names import flatten
from gradviz.walker.private import peek_sequence
from gradviz.walker.taps import Ended
from gradviz.walker.tensors import is_plain, storage_of
from gradviz.walker.walk import Walked

_ELEMENTS, _LOOKS, _FRAMES = 1024, 32, 12
"""Elements that are compared, times that one looks at a line, and frames between a change and the hook that makes it."""
_TO_NUMPY = frozenset(("numpy", "__array__"))
_WRITES = frozenset(("__setitem__", *(f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "div", "pow"))))
_ENGINE, _CALL = torch.autograd.graph._engine_run_backward.__name__, torch.nn.Module._call_impl.__code__
_WeakRef: Any = StorageWeakRef
_MODULE_HOOKS = os.path.join("torch", "utils", "hooks.py")


class _Write(NamedTuple):
    """A change of numbers: the number that the next node would have got, its line, and whether a forward hook made it."""

    at: int
    place: Place | None
    hooked: bool = False


class _Alias(NamedTuple):
    """Numbers that a line has handed out, with some of them; `made` is the number of the node that made them, None for a leaf."""

    ref: Any  # to the storage
    few: torch.Tensor
    how: str
    made: int | None
    taken: _Write
    writes: list[_Write]

    def changed(self) -> bool:
        whole = _whole(self.ref, self.few.dtype)
        return whole is not None and not torch.equal(_few(whole), self.few)


class OverwriteWatch(Observer):
    """Of one run."""

    def _begin(self) -> None:
        self._aliases: dict[int, _Alias] = {}  # by identity of the storage
        self._running = 0  # backward calls
        self._of_leaves: set[object] = set()  # hooks on leaves, whose gradient nobody else is given

    def ran(self) -> None:
        self._aliases.clear()

    # -- numbers that are handed out ------------------------------------------------------------------------------------

    @reads("numpy", "array", "get", "detach")
    def _hands_out(self, call: TorchCall) -> None:
        name, tensor, frame = call.function.__name__, call.first, call.frame
        if type(tensor) not in PLAIN or package_of(frame.f_code.co_filename):
            return
        looks = self._looks((frame.f_code, frame.f_lineno), _LOOKS) and is_plain(tensor)
        storage = storage_of(tensor) if looks else None
        if storage is None or not storage[1]:
            return
        if storage[0] in self._aliases:
            if name in _TO_NUMPY:
                self._aliases[storage[0]] = self._aliases[storage[0]]._replace(how=name, taken=self._now(frame))
        elif tensor.requires_grad:
            self._keep(name, tensor, storage[0], frame)

    def _keep(self, name: str, tensor: torch.Tensor, storage: int, frame: FrameType) -> None:
        made = tensor.grad_fn._sequence_nr() if tensor.grad_fn is not None else None
        with unrecorded():
            ref: Any = _WeakRef(tensor.untyped_storage())
            whole = _whole(ref, tensor.dtype)
            if whole is not None:
                self._aliases[storage] = _Alias(ref, _few(whole).clone(), name, made, self._now(frame), [])

    def _now(self, frame: FrameType) -> _Write:
        return _Write(peek_sequence(), self._place(frame), _is_forward_hook(frame))

    @reads()
    def _writes(self, call: TorchCall) -> None:
        """A function may have changed a tensor in place."""
        if not (self._aliases or self._running):
            return
        name, frame = call.function.__name__, call.frame
        writes = (name in _WRITES or name[-1] == "_" != name[-2:-1]) and type(call.first) in PLAIN
        storage = storage_of(call.first) if writes else None
        if storage is None:
            return
        alias = self._aliases.get(storage[0])
        with unrecorded():
            if alias is not None and not alias.ref.expired() and alias.changed():
                alias.writes.append(self._now(frame))
                return
        hook = _hook_around(frame) if self._running else None
        if hook is not None and hook.f_code not in self._of_leaves and storage in map(storage_of, _gradients_of(hook)):
            self._note("gradient overwritten", self._place(frame), hook.f_code.co_name)

    def read(self, walked: Walked) -> None:
        """What was changed of what the graph has saved, or has gone on with."""
        for alias in self._aliases.values():
            with unrecorded():
                by_numpy = alias.how in _TO_NUMPY and not alias.writes and alias.changed()
                whole = _whole(alias.ref, alias.few.dtype)
                number = walked.storage_id(whole) if whole is not None else None
            for write in alias.writes or [alias.taken] * by_numpy:
                savers = _savers(walked.graph, number, write.at)
                made = _maker(walked.graph, alias.made, write.at) if write.hooked or alias.how == "detach" else None
                if savers:
                    self._note("saved overwritten", write.place, kind(walked.graph, savers[0]).lower())
                elif made is not None:
                    self._note("value overwritten", write.place, kind(walked.graph, made).lower())

    # -- backward calls ---------------------------------------------------------------------------------------------------

    @taps(torch.autograd.graph._engine_run_backward)
    def _backward(self, frame: FrameType, *_: Any, **__: Any) -> Ended:
        self._running += 1

        def ended(returned: bool, result: object) -> None:
            self._running -= 1

        return ended

    @taps(torch.Tensor.register_hook)
    def _hooked(self, frame: FrameType, tensor: torch.Tensor, hook: Any) -> None:
        if tensor.is_leaf:
            self._of_leaves.add(getattr(hook, "__code__", None))

    @taps(inspect.unwrap(torch.utils.checkpoint.checkpoint))
    def _checkpointed(self, frame: FrameType, *_: Any, preserve_rng_state: bool = True, **__: Any) -> Ended | None:
        """A checkpoint begins: whether what it runs draws numbers, where these will not be the same the second time."""
        if preserve_rng_state:
            return None
        with isolated():
            before = torch.get_rng_state()

        def ended(returned: bool, result: object) -> None:
            with isolated():
                drawn = returned and torch.is_grad_enabled() and not torch.equal(before, torch.get_rng_state())
            if drawn:
                self._note("drawn anew", self._place(frame.f_back))

        return ended


def _savers(graph: Graph, storage: int | None, before: int) -> list[int]:
    """The nodes that have saved what is in a storage, before the node of this number."""
    nodes = (node for node in graph.nodes if storage is not None and (node.sequence or 0) < before)
    return [node.id for node in nodes if any((slot.storage, slot.state) == (storage, "live") for slot in node.saved)]


def _maker(graph: Graph, number: int | None, since: int) -> int | None:
    """The node of this number, where later nodes go on with what it made."""
    made = next((node.id for node in graph.nodes if number is not None and node.sequence == number), None)
    users = graph.consumers(made) if made is not None else ()
    return made if any((graph.nodes[edge.consumer].sequence or 0) >= since for edge in users) else None


def _gradients_of(hook: FrameType) -> list[Any]:
    """The gradients that a hook was given which returns nothing, as one does that only looks."""
    code, body = hook.f_code, body_of(hook.f_code)
    if package_of(code.co_filename) or not body.statements or body.returns:
        return []
    given = (local_variables(hook).get(name) for name in code.co_varnames[: code.co_argcount])
    tensors: list[Any] = [one for _, one in flatten([*given]) if type(one) in PLAIN]
    return [one for one in tensors if not (one.is_leaf and one.requires_grad)]


def _whole(ref: Any, dtype: torch.dtype) -> torch.Tensor | None:
    """All of the memory, as far as it is there."""
    storage = torch.UntypedStorage._new_with_weak_ptr(ref.cdata)
    return None if storage is None else torch.empty(0, dtype=dtype, device=storage.device).set_(storage)


def _few(whole: torch.Tensor) -> torch.Tensor:
    return whole[:: max(1, whole.numel() // _ELEMENTS)][:_ELEMENTS]


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _is_forward_hook(frame: FrameType) -> bool:
    """Whether a module calls what runs here, which is not its forward()."""
    for inner in _frames(frame):
        around = inner.f_back
        if around is not None and around.f_code.co_filename == _CALL.co_filename:
            called = local_variables(around).get("forward_call")
            return inner.f_code.co_filename != _CALL.co_filename and inner.f_code is not getattr(
                called, "__code__", None
            )
    return False


def _hook_around(frame: FrameType) -> FrameType | None:
    """The hook of a tensor, node or module that runs here, called by the engine."""
    inner: FrameType | None = None
    for around in _frames(frame):
        if inner is not None and (
            around.f_code.co_name == _ENGINE or around.f_code.co_filename.endswith(_MODULE_HOOKS)
        ):
            return inner
        inner = around
    return None
