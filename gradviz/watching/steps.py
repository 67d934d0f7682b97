"""Notes the numbers of every step of optimizers while the user's code runs, and counts steps. Reads none of the numbers.

The loss of a step is what backward was called on since the step before. Gradients are measured as a step begins, or as it ends
where it runs a closure, which computes them. Numbers stay on the device, those of the last steps only, until `read` waits for it.
What that costs is measured: beyond a share of the run, steps are only counted until the rest of the run has made up for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from traceback import walk_tb
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch

from gradviz.checks.collect.numbers import is_readable, optimized
from gradviz.checks.collect.recorder import hooked
from gradviz.packages import is_foundation
from gradviz.run.engine import EngineCall
from gradviz.walker.isolation import isolated, unseen
from gradviz.walker.names import distinct
from gradviz.walker.signals import uninterrupted
from gradviz.walker.taps import Ended
from gradviz.watching.history import StepNumbers

SIZE = 200
"""Steps whose numbers wait on the device."""
FREE, SHARE = 0.1, 0.009
"""Seconds, and the part of the run, that noting all steps may take."""
OTHER = "no module"
"""What holds the tensors of an optimizer that no module of the model does."""
_MOST_MODULES = 100


class Budget:
    """The time that something may take: `free` seconds, and a share of the time since it was made. What runs inside counts."""

    def __init__(self, free: float, share: float) -> None:
        self._free, self._share = free, share
        self._began, self.spent = time.perf_counter(), 0.0

    @property
    def left(self) -> bool:
        return self.spent <= self._free + self._share * (time.perf_counter() - self._began)

    def __enter__(self) -> None:
        self.spent -= time.perf_counter()

    def __exit__(self, *error: object) -> None:
        self.spent += time.perf_counter()


class _Row(NamedTuple):
    """A step whose numbers are on the device: its loss, and the norm of each gradient with the place of its module."""

    step: StepNumbers
    loss: torch.Tensor | None
    norms: torch.Tensor | None
    modules: tuple[int, ...]


class StepMeter:
    """Of one run, in the thread that makes it. `ended` is told of the end of every step of an optimizer, and of skipped ones."""

    def __init__(
        self, model: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], ended: Callable[[], None]
    ) -> None:
        self.model, self._ended = model, ended
        self._given = {id(group) for optimizer in optimizers for group in optimizer.param_groups}
        self._expected = len(optimizers)  # to step in the first step
        self.modules, self._module_of = _modules(model)
        self.rows: list[_Row] = []  # to be read when there are as many as SIZE
        self._loss: torch.Tensor | None = None  # of the step that comes, so far
        self._calls = 0
        self._scaler: Any = None  # that multiplied the next loss
        # of optimizers that stepped; of the model, by hand
        self.names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._stepped: set[str] = set()  # in this step
        self._taken = 0  # steps of each optimizer, together
        self._open: list[int] = []  # optimizers whose step() runs
        self._here = threading.get_ident(), os.getpid()
        self.budget = Budget(FREE, SHARE)
        self.due = True  # whether the numbers of the step that comes are noted
        self.step = self.unmeasured = self.elsewhere = 0  # steps, those only counted, and those in other threads

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, steps are noted."""
        scaler = torch.amp.GradScaler
        with hooked(self._begins, self._ends, [(scaler.scale, self._scaled), (scaler.step, self._scaler_steps)]):
            yield

    @property
    def is_between(self) -> bool:
        """Whether all optimizers that ever stepped have done so in this step."""
        return len(self._stepped) >= max(len(self.names), self._expected if self.step == 1 else 0)

    def is_here(self) -> bool:
        """Whether this is the thread, of the process, whose run is watched."""
        return (threading.get_ident(), os.getpid()) == self._here

    # -- what is told ---------------------------------------------------------------------------------------------------

    def backward(self, call: EngineCall) -> None:
        """A backward call comes. One with `create_graph` is a part of a step."""
        scaler, self._scaler = self._scaler, None
        if not self.due:
            return
        with self.budget, unseen(), torch.no_grad(), _tolerant():  # outputs of any class
            scale = scaler._get_scale_async() if scaler is not None else None
            (loss,) = call.outputs
            if loss.numel() == 1 and loss.is_floating_point() and is_readable(loss) and not call.create_graph:
                loss = loss.detach().reshape(()).float().clone()
                loss = loss / scale.to(loss.device, non_blocking=True) if scale is not None else loss
                self._loss = loss if self._loss is None else self._loss.to(loss.device, non_blocking=True) + loss
                self._calls += 1

    def _scaled(self, frame: FrameType, scaler: Any, *_: Any, **__: Any) -> None:
        self._scaler = scaler if self.is_here() and scaler.is_enabled() else self._scaler

    def _scaler_steps(self, frame: FrameType, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> Ended:
        before = self._taken

        @uninterrupted
        def ended(returned: bool, result: object) -> None:
            if returned and self.is_here() and self._taken == before and scaler.is_enabled():
                self._add(optimizer, [], skipped=True)
                self._step_ended()

        return ended

    @uninterrupted
    def _begins(self, optimizer: torch.optim.Optimizer, given: Any, options: Any) -> None:
        if not self.is_here():
            self.elsewhere += 1
            return
        if id(optimizer) in self._open:  # an exception ended that step
            self._open.clear()
        self._open.append(id(optimizer))
        if len(self._open) == 1 and not _has_closure(given, options):
            self._measure(optimizer)

    @uninterrupted
    def _ends(self, optimizer: torch.optim.Optimizer, given: Any, options: Any) -> None:
        if not self.is_here() or id(optimizer) not in self._open:
            return
        del self._open[self._open.index(id(optimizer)) :]
        if not self._open:  # else another one, such as a wrapper, calls this one
            if _has_closure(given, options):
                self._measure(optimizer)
            self._step_ended()

    def step_by_hand(self) -> None:
        """The code has updated parameters itself."""
        self._add(self.model, list(self.model.parameters()))
        self._step_ended()

    def _step_ended(self) -> None:
        if self.is_between:
            self.due = self.budget.left
        self._ended()

    # -- rows -------------------------------------------------------------------------------------------------------------

    def _measure(self, optimizer: torch.optim.Optimizer) -> None:
        known = optimizer in self.names
        tensors = list(optimized(optimizer)) if self.due or not known else []
        keys, watched = (optimizer.param_groups, self._given) if self._given else (tensors, self._module_of.keys())
        if known or not watched.isdisjoint(map(id, keys)):
            self._add(optimizer, tensors)

    def _add(self, owner: Any, tensors: Sequence[torch.Tensor], skipped: bool = False) -> None:
        """A step is complete, with the gradients of these tensors."""
        name = self.names.get(owner)
        if name is None:
            name = "by hand" if owner is self.model else type(owner).__name__
            name = self.names[owner] = distinct(name, {*self.names.values()})
        if name in self._stepped or not self.step:
            self.step, self._stepped = self.step + 1, set()
        self._stepped.add(name)
        self._taken += 1
        if not self.due:
            self.unmeasured += 1
            return
        norms, modules = None, tuple[int, ...]()
        with self.budget, unseen(), torch.no_grad(), _tolerant():  # gradients of any class
            scale = getattr(owner, "grad_scale", None)  # of a fused optimizer, which divides by it itself
            norms, modules = self._norms(tensors, scale) if tensors else (None, ())
        step = StepNumbers(self.step, name, None, self._calls, skipped, ())
        self.rows.append(_Row(step, self._loss, norms, modules))
        self._loss, self._calls = None, 0

    def _norms(self, tensors: Sequence[torch.Tensor], scale: Any) -> tuple[torch.Tensor | None, tuple[int, ...]]:
        """The norms of all gradients, and the places of their modules."""
        pairs = [(_local(tensor.grad), id(tensor)) for tensor in tensors if tensor.grad is not None]
        if not pairs or (pairs[0][0].is_cuda and torch.cuda.is_current_stream_capturing()):
            return None, ()
        try:
            norms = torch._foreach_norm([grad for grad, _ in pairs], 2, torch.float32)
        except (RuntimeError, TypeError):  # a sparse one, or one of a class of its own
            pairs = [pair for pair in pairs if is_readable(pair[0]) and pair[0].is_floating_point()]
            norms = torch._foreach_norm([grad for grad, _ in pairs], 2, torch.float32)
        home = norms[0].device
        together = torch.stack([norm.to(home, non_blocking=True) for norm in norms])
        together = together / scale if isinstance(scale, torch.Tensor) else together
        return together, tuple(self._module_of.get(key, len(self.modules) - 1) for _, key in pairs)

    def read(self) -> list[StepNumbers]:
        """The numbers of all steps since this was called last. Waits for the device."""
        rows, self.rows = self.rows, []
        modules, places = _modules(self.model)  # parameters may come and go
        self._module_of = places if modules == self.modules else self._module_of
        with self.budget, isolated(), torch.no_grad():
            losses, norms = _together(row.loss for row in rows), _together(row.norms for row in rows)
            return [self._numbers(row, losses, norms) for row in rows]

    def _numbers(self, row: _Row, losses: Iterator[float], norms: Iterator[float]) -> StepNumbers:
        """The next row. Takes its numbers away from the others."""
        squares: list[float | None] = [None] * len(self.modules) if row.modules else []
        for module, norm in zip(row.modules, norms):
            squares[module] = (squares[module] or 0.0) + norm * norm
        by_module = tuple(None if square is None else square**0.5 for square in squares)
        return row.step._replace(loss=next(losses) if row.loss is not None else None, norms=by_module)


@contextmanager
def _tolerant() -> Iterator[None]:
    """What cannot be measured is left out. An exception of a signal handler of the user's passes."""
    try:
        yield
    except Exception as error:
        if not all(is_foundation(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__)):
            raise


def _together(tensors: Iterable[torch.Tensor | None]) -> Iterator[float]:
    """All numbers, in one copy."""
    known = [tensor.reshape(-1) for tensor in tensors if tensor is not None]
    return iter(torch.cat([tensor.to(known[0].device) for tensor in known]).tolist() if known else ())


def _local(grad: Any) -> torch.Tensor:
    """The part of a gradient that this process holds."""
    part: torch.Tensor = getattr(grad, "_local_tensor", grad) if type(grad) is not torch.Tensor else grad
    return part


def _has_closure(given: Sequence[Any], options: Mapping[str, Any]) -> bool:
    return any(map(callable, (*given[1:], options.get("closure"))))


def _modules(model: torch.nn.Module) -> tuple[tuple[str, ...], dict[int, int]]:
    """Names of modules that norms go by, the deepest level that has no more than a hundred, and the place of each parameter's."""
    paths = {id(tensor): name.split(".")[:-1] for name, tensor in model.named_parameters()}
    for depth in range(max(map(len, paths.values()), default=0), -1, -1):
        name_of = {key: ".".join(path[:depth]) or type(model).__name__ for key, path in paths.items()}
        names = tuple(dict.fromkeys(name_of.values()))
        if len(names) <= _MOST_MODULES:
            break
    return (*names, OTHER), {key: names.index(name) for key, name in name_of.items()}
