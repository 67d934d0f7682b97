"""Notes every storage that code makes and frees, with its line and module, until the second optimizer step. Runs in a child only.

A dispatch mode sees the tensors of each op, and a weak reference tells when a storage is freed. What kernels allocate inside
is not seen. Nothing here is installed in a process of the user's own: a mode changes which fast paths torch takes.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves
from torch.utils.data import dataloader

from gradviz.graph.files import dump
from gradviz.packages import UserCode, with_text
from gradviz.recording.record import Recording
from gradviz.run.ending import Stopped
from gradviz.run.engine import Afterwards, EngineCall
from gradviz.run.program import Program
from gradviz.variables.scanner import variables_at
from gradviz.walker.private import peek_sequence
from gradviz.walker.walk import capture

_STEPS = 2
_DENSE = {torch.bool: False, **dict.fromkeys((torch.float32, torch.float64, torch.float16, torch.bfloat16), 0.5)}


class Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What is live from `with` on, as columns of plain data in `notes`.

    `gpu` has optimizers step as they do there, with all parameters in one call; `autocast` runs the forward pass in bfloat16.
    """

    def __init__(self, recording: Recording | None = None, *, gpu: bool = False, autocast: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.paused = False
        self.events: list[int] = []
        self.storages: list[list[Any]] = []
        self.phases: list[tuple[int, str]] = [(0, "setup")]
        self.calls: list[dict[str, Any]] = []
        self._recording, self._gpu, self._autocast = recording, gpu, autocast
        self.autocast_seen = False
        self._graph = ""
        self._live: dict[int, tuple[int, Any]] = {}
        self._stack: list[tuple[int, int]] = []
        self._user = UserCode()
        self._places: dict[Any, int] = {}
        self._of_node: dict[int, tuple[int, int]] = {}
        self._roots: dict[int, Any] = {}
        self._names: dict[int, str] = {}
        self._steps: dict[int, int] = {}
        self._optimizers: dict[int, Any] = {}
        self._backwards = 0
        self._sequence: int | None = None
        self._undo: list[Callable[[], object]] = []

    def notes(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        self._mark_all()
        places = [(with_text(place.source)._asdict() if place else None) for place in self._places]
        return {
            "storages": self.storages,
            "events": self.events,
            "phases": self.phases,
            "calls": self.calls,
            "places": places,
            "steps": max(self._steps.values(), default=0),
            "graph": self._graph,
            "autocast": self.autocast_seen,
        }

    # -- what runs while the script does -------------------------------------------------------------------------------

    def __enter__(self) -> Tracker:
        modules, optimizers = torch.nn.modules.module, sys.modules["torch.optim.optimizer"]
        for handle in (
            modules.register_module_forward_pre_hook(self._enter_module),
            modules.register_module_forward_hook(self._leave_module, always_call=True),
            optimizers.register_optimizer_step_pre_hook(lambda *_: self.phase("step")),
            optimizers.register_optimizer_step_post_hook(self._stepped),
        ):
            self._undo.append(handle.remove)
        self._replace(dataloader._BaseDataLoaderIter, "__next__", self._loading)
        self._replace(torch.optim.Optimizer, "__init__", self._optimizer)
        if self._gpu:
            devices = "_get_foreach_kernels_supported_devices"
            self._replace(optimizers, devices, lambda known: lambda: [*known(), "cpu"])
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for undo in reversed(self._undo):
            undo()

    def _replace(self, owner: Any, name: str, wrapped: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, wrapped(original))
        self._undo.append(lambda: setattr(owner, name, original))

    def _loading(self, original: Any) -> Any:
        """A batch is loaded in host memory, sample by sample: it counts from its first use on."""

        def loading(*arguments: Any) -> Any:
            before, self.paused = self.paused, True
            try:
                return original(*arguments)
            finally:
                self.paused = before

        return loading

    def _optimizer(self, original: Any) -> Any:
        def create(optimizer: Any, *arguments: Any, **options: Any) -> None:
            self._optimizers[id(optimizer)] = weakref.ref(optimizer)
            original(optimizer, *arguments, **options)

        return create

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and is_fake(args[0]):
            return _DENSE.get(args[0].dtype, 0)
        if self.phases[-1][1] != "backward" and peek_sequence() != self._sequence:
            self._sequence = peek_sequence()
            self._of_node[(self._sequence or 0) - 1] = self._here()
        result = func(*args, **(kwargs or {}))
        if not self.paused:
            for value in tree_leaves((args, kwargs, result)):
                if isinstance(value, torch.Tensor):
                    self._see(value, func)
        return result

    def _see(self, tensor: torch.Tensor, op: Any) -> None:
        for part, storage in storages(tensor):
            key, nbytes = storage._cdata, storage.nbytes()
            known = self._live.get(key)
            if known is not None and self.storages[known[0]][0] != nbytes:
                self._free(key, known[0])
                known = None
            if known is None and nbytes and part.device.type != "meta":
                self._new(key, storage, part, op)

    def _new(self, key: int, storage: Any, tensor: torch.Tensor, op: Any) -> None:
        index, (place, call) = len(self.storages), self._where()
        self._live[key] = index, weakref.ref(storage, lambda _: self._free(key, index))
        itemsize = tensor.element_size()
        shape = list(tensor.shape) if tensor.numel() * itemsize == storage.nbytes() else None
        facts = [storage.nbytes(), itemsize, shape, str(tensor.device), len(self.phases) - 1, place, call, str(op), ""]
        self.storages.append(facts)
        self.events.append(index)
        self.autocast_seen |= torch.is_autocast_enabled(tensor.device.type)

    def _free(self, key: int, index: int) -> None:
        if self._live.get(key, (None,))[0] == index:
            del self._live[key]
            self.events.append(~index)

    def _where(self) -> tuple[int, int]:
        """The line and the module call that run; in backward those of the op whose gradient is computed."""
        call = self._stack[-1][0] if self._stack else -1
        if self.phases[-1][1] == "backward" and call < 0:
            node = torch._C._current_autograd_node()
            known = self._of_node.get(node._sequence_nr()) if node is not None else None
            if known is not None:
                self._first_in_backward(known[1])
                return known
        return self._here()

    def _here(self) -> tuple[int, int]:
        place = self._user.place(sys._getframe(2))
        return self._places.setdefault(place, len(self._places)), self._stack[-1][0] if self._stack else -1

    def _first_in_backward(self, call: int) -> None:
        while call >= 0 and self.calls[call]["backward"] < 0:
            self.calls[call]["backward"] = len(self.events)
            call = self.calls[call]["parent"]

    # -- modules -------------------------------------------------------------------------------------------------------

    def _enter_module(self, module: torch.nn.Module, arguments: Any) -> None:
        if not self._stack:
            if self.phases[-1][1] == "setup":
                self.phase("forward")
            if id(module) not in self._roots:
                self._roots[id(module)] = weakref.ref(module)
                self._names |= {id(inner): name for name, inner in module.named_modules()}
        parent = self._stack[-1][0] if self._stack else -1
        self._stack.append((len(self.calls), id(module)))
        call = {"path": self._names.get(id(module), ""), "type": type(module).__name__, "parent": parent}
        self.calls.append({**call, "began": len(self.events), "ended": -1, "backward": -1, "outputs": []})

    def _leave_module(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        while self._stack:
            number, identity = self._stack.pop()
            if identity == id(module):
                call = self.calls[number]
                call["ended"] = len(self.events)
                call["outputs"] = [found for value in tree_leaves(result) for found in self._known(value)]
                return

    # -- phases and kinds ----------------------------------------------------------------------------------------------

    def phase(self, name: str) -> None:
        """Another part of the step begins."""
        if self._autocast:
            device = next((facts[3] for facts in self.storages if not facts[3].startswith("cpu")), "cpu")
            torch.set_autocast_dtype(device.partition(":")[0], torch.bfloat16)
            torch.set_autocast_enabled(device.partition(":")[0], name == "forward")
            torch.clear_autocast_cache()
        if self.phases[-1][1] != name:
            self.phases.append((len(self.events), name))

    def on_backward(self, call: EngineCall) -> Afterwards:
        """Backward begins; returns what to call when it has ended."""
        if self._backwards >= _STEPS and not self._optimizers:
            raise Stopped
        self._backwards += 1
        self._mark_all()
        if self._recording is not None and call.accumulates and not self._graph:
            self._graph = self._read_graph(self._recording, call)
        self.phase("backward")
        return partial(self._after_backward, call.accumulates)

    def _read_graph(self, recording: Recording, call: EngineCall) -> str:
        before, self.paused = self.paused, True
        variables = variables_at(call.frame, {}, Program.run.__code__)
        attribution = recording.attribution(None, variables)
        graph = capture(list(call.outputs), variables=variables, attribution=attribution, need_graph=False)
        self.paused = before
        return "".join(dump(graph))

    def _after_backward(self, accumulates: bool, filled: bool | None) -> None:
        self._mark_all()
        self.phase("forward")

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        self._mark_all()
        if all(count >= _STEPS for count in self._steps.values()):
            raise Stopped
        self.phase("forward")

    def _mark_all(self) -> None:
        before, self.paused = self.paused, True
        for kind, tensor in self._owned():
            for index in self._known(tensor):
                self.storages[index][8] = self.storages[index][8] or kind
        self.paused = before

    def _owned(self) -> Iterator[tuple[str, Any]]:
        parameters: list[Any] = []
        optimizers = [found for ref in self._optimizers.values() if (found := ref()) is not None]
        for root in (found for ref in self._roots.values() if (found := ref()) is not None):
            parameters += root.parameters()
            yield from (("buffers", buffer) for buffer in root.buffers())
        for optimizer in optimizers:
            parameters += (value for group in optimizer.param_groups for value in group["params"])
        yield from (("parameters", parameter) for parameter in parameters)
        yield from (("gradients", parameter.grad) for parameter in parameters)
        for optimizer in optimizers:
            yield from (("optimizer", value) for value in tree_leaves([dict(one) for one in optimizer.state.values()]))

    def _known(self, value: Any) -> Iterator[int]:
        if isinstance(value, torch.Tensor):
            for _, storage in storages(value):
                if storage._cdata in self._live:
                    yield self._live[storage._cdata][0]


def storages(tensor: torch.Tensor) -> Iterator[tuple[torch.Tensor, Any]]:
    """The dense tensors that a tensor is made of, with their storages where they have one."""
    for part in parts(tensor):
        with suppress(RuntimeError, NotImplementedError):
            yield part, part.untyped_storage()


def parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a tensor is made of: itself, or what a sparse one or a wrapper holds."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        return [part for name in names for part in parts(getattr(tensor, name))]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    return [tensor]


def is_fake(tensor: Any) -> bool:
    """Whether a tensor has no numbers."""
    return hasattr(tensor, "fake_mode")
