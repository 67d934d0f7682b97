"""The rows of leaves and of optimizers over a run: what was done with a leaf between the
backward calls that reach it; what an optimizer holds, when it steps, and what has a
gradient then. The one place that hooks optimizers.

Optimizers tell of their steps themselves: fused ones write past the version counter,
which shows all other changes. Optimizers, tensors and modules are held weakly. Reads a
few elements of leaves that no optimizer has updated, and whether a gradient is zero;
writes nothing.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.weak import WeakIdKeyDictionary

from gradviz.armour.isolation import isolated
from gradviz.armour.signals import uninterrupted
from gradviz.armour.taps import Ended, tapped
from gradviz.checks.call import NamedTensor, Optimizer
from gradviz.checks.collect.models import Reading
from gradviz.checks.collect.modes import ModeWatch
from gradviz.checks.collect.numbers import ByTensor, TensorRef, mark_of
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Interval, Kind, LeafRow, OptimizerRow
from gradviz.explanation import optimized
from gradviz.gradients.values import is_zero
from gradviz.variables.scanner import as_written
from gradviz.walker.tensors import version_of

CLOSELY, APART = 100, 16
"""Steps of an optimizer at each of which its tensors are looked at; later at some."""


class _Left(NamedTuple):
    """A leaf and its gradient as a backward call left them, and what was done with it
    before that call.
    """

    version: int | None
    grad: TensorRef
    grad_version: int | None
    before: Interval


class Ledger:
    """Of one run. `intervals` and `reached` belong before each backward call that is
    read, `after` behind it.
    """

    def __init__(self, recorder: Recorder, modes: ModeWatch) -> None:
        self._recorder, self._run, self._modes = recorder, recorder.run, modes
        self._optimizers = WeakKeyDictionary[torch.optim.Optimizer, OptimizerRow]()
        # that had a gradient at a step since a call reached them, by identity
        self._stepped = set[int]()
        self._leaves: ByTensor[LeafRow] = WeakIdKeyDictionary()
        # of parameters that no call has reached
        self._marks: ByTensor[object] = WeakIdKeyDictionary()
        self._left: ByTensor[_Left] = WeakIdKeyDictionary()
        self._number = 0  # of the call that was read last

    # -- optimizers --------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, optimizers and their steps are seen."""
        with ExitStack() as until:
            until.callback(register_optimizer_step_pre_hook(self._step_begins).remove)
            until.callback(register_optimizer_step_post_hook(self._step_ends).remove)
            until.enter_context(tapped(torch.optim.Optimizer.__init__, self._made))
            yield

    def _made(self, frame: FrameType, optimizer: Any, *_: Any, **__: Any) -> Ended:
        @uninterrupted
        def ended(returned: bool, result: object) -> None:
            if returned:
                self.optimizer(optimizer, frame)

        return ended

    def optimizer(
        self, optimizer: torch.optim.Optimizer, frame: FrameType | None = None
    ) -> OptimizerRow:
        """The row of an optimizer, which a line of this frame has made, as far as that
        is known.
        """
        row = self._optimizers.get(optimizer)
        if row is None:
            row = OptimizerRow(type(optimizer).__name__, self._recorder.line(frame))
            self._optimizers[optimizer] = row
            self._run.optimizers.append(row)
        return row

    @uninterrupted
    def _step_begins(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        # torch's compiler would trace this and break the graph: `reached` sees the step
        if torch.compiler.is_compiling():
            return
        recorder, frame = self._recorder, sys._getframe(1)
        recorder.step_code = frame.f_code
        recorder.updated |= not recorder.in_step(frame.f_back)
        if recorder.paused:
            self._passes(optimizer)
            return
        recorder.log(Kind.STEP, frame.f_back, optimizer)

        with isolated(), recorder.reading("steps of optimizers"):
            row = self.optimizer(optimizer)
            row.steps += 1
            row.first_call = row.first_call or recorder.number
            if row.steps < CLOSELY or row.steps % APART == 0:
                self._look_at(optimizer, row)
                if self._starves(optimizer):
                    row.starved += 1
                    row.starved_at = recorder.line(frame.f_back)

    def _passes(self, optimizer: torch.optim.Optimizer) -> None:
        """A step begins that nobody watches: what has a gradient now and then."""
        row = self.optimizer(optimizer)
        row.passed += 1
        if row.passed % APART == 0:
            with isolated(), self._recorder.reading("steps of optimizers"):
                tensors = optimized(optimizer)
                given = (t for t in tensors if t.is_leaf and t.grad is not None)
                row.given.update(map(id, given))

    def _look_at(self, optimizer: torch.optim.Optimizer, row: OptimizerRow) -> None:
        """A step begins: what has a gradient is updated."""
        tensors = optimized(optimizer)
        updated = [t for t in tensors if t.is_leaf and t.grad is not None]
        fed = set(map(id, updated))
        row.current = set(map(id, tensors))
        row.held |= row.current
        row.given |= fed
        # one of the user's own may have none
        rates = [float(group.get("lr", 1)) for group in optimizer.param_groups]
        row.rate(max(rates, default=0.0))
        row.frozen.update(id(t) for t in updated if not t.requires_grad)
        self._stepped |= fed
        self._modes.stepped(fed)

    def _starves(self, optimizer: torch.optim.Optimizer) -> bool:
        """A step begins: whether all of it is frozen, and the call before it led to
        nothing of any optimizer.
        """
        if any(tensor.requires_grad for tensor in optimized(optimizer)):
            return False
        reached = self._recorder.reached_last
        rows = self._run.optimizers
        return bool(reached) and all(row.held.isdisjoint(reached) for row in rows)

    @uninterrupted
    def _step_ends(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        with isolated(), self._recorder.reading("steps of optimizers"):
            row = self._optimizers.get(optimizer)
            if row is not None:
                row.last_call = self._recorder.number
                row.remembers = row.remembers or _remembers(optimizer)

    # -- what is done with a leaf between two calls ------------------------------------

    def intervals(
        self, leaves: Mapping[int, torch.Tensor], ran: bool = False
    ) -> dict[int, Interval]:
        """What was done with each of these leaves since a call reached it, by the same
        keys. Whether a gradient was zeroed no counter tells for certain
        (`w.grad.data.zero_()`), so its numbers are looked at, if the leaf was updated.

        Nothing is known where the call `ran`, or calls came between that nobody read.
        """
        number = self._recorder.number
        if ran or number > self._number + 1:
            self._left.clear()
        self._number, intervals = number, dict[int, Interval]()
        for key, leaf in leaves.items():
            left = self._left.get(leaf)
            if left is not None:
                intervals[key] = self._since(left, leaf)
        return intervals

    def _since(self, left: _Left, leaf: torch.Tensor) -> Interval:
        grad, before = leaf.grad, left.before
        stepped = id(leaf) in self._stepped
        updated = stepped or version_of(leaf) != left.version
        # a step goes on while its closure calls backward
        stepped |= updated and self._recorder.in_step(sys._getframe())
        reset = grad is None or left.grad() is not grad
        if grad is not None and not reset:
            touched = updated or version_of(grad) != left.grad_version
            # where nobody can tell, it may have been
            reset = touched and is_zero(grad) is not False
        if reset:
            return Interval(updated)
        steps, changes = before.steps + stepped, before.changes + updated
        return Interval(updated, steps, changes, grad is not None)

    def after(
        self, leaves: Mapping[int, torch.Tensor], intervals: Mapping[int, Interval]
    ) -> None:
        """The call has run, and filled the gradients of these leaves."""
        reached = set(map(id, leaves.values()))
        for row in self._run.optimizers:
            row.reached |= not row.held.isdisjoint(reached)
        for key, leaf in leaves.items():
            grad = leaf.grad
            if grad is not None:
                self._left[leaf] = _Left(
                    version_of(leaf),
                    weakref.ref(grad),
                    version_of(grad),
                    intervals.get(key, Interval()),
                )
                self._stepped.discard(id(leaf))

    # -- leaves ------------------------------------------------------------------------

    def reached(self, reading: Reading) -> None:
        """A call is about to run through these leaves."""
        call, names = reading.live.call or 0, self._run.names
        self._look_at_parameters(reading)
        for optimizer, trained in list(self._optimizers.items()):
            with self._recorder.reading("what optimizers hold"):
                trained.held.update(map(id, optimized(optimizer)))

        stepping = [each.held for each in self._run.optimizers if each.steps]
        held = set[int]().union(*stepping)
        owners = {id(tensor): parameter for parameter, tensor in reading.parameters}
        for node, tensor in reading.walked.variables.items():
            key, row = id(tensor), self._leaves.get(tensor)
            elements = mark_of(tensor) if key not in held else None
            if row is None:
                named = names.setdefault(key, reading.walked.names.leaf(tensor))
                row = LeafRow(named, elements=elements)
                if key in owners:
                    row.module = owners[key].module
                    row.model = reading.models[owners[key].model][0]
                self._leaves[tensor] = self._run.leaves[key] = row
            elif elements is not None:
                row.moved = bool(row.moved) or elements != row.elements

            row.node, row.call = node, call
            row.first = row.first or call
            row.reached += 1

    def _look_at_parameters(self, reading: Reading) -> None:
        """Note their names, and which of those that no call reaches change."""
        for parameter, tensor in reading.parameters:
            self._run.names[id(tensor)] = parameter.names
            if parameter.node is None and parameter.requires_grad:
                mark = mark_of(tensor)
                if self._marks.setdefault(tensor, mark) != mark:
                    self._run.by_hand.update(parameter.names)

    def held(self, reading: Reading) -> Iterator[Optimizer]:
        """The optimizers with what they hold, of which the names are noted."""
        names = reading.walked.names
        for name, optimizer in reading.optimizers:
            row, tensors = self.optimizer(optimizer), list[NamedTensor]()
            row.name = name
            for tensor in optimized(optimizer):
                node, named = reading.leaf_of.get(id(tensor)), names.leaf(tensor)
                self._run.names.setdefault(id(tensor), named)
                tensors.append(NamedTensor(named, node))
            written = as_written(name, reading.live.variables)
            yield Optimizer(written, tuple(tensors), row)


def _remembers(optimizer: torch.optim.Optimizer) -> bool:
    """Whether a step has left something for the next one, such as a momentum."""
    states = [each for each in optimizer.state.values() if isinstance(each, dict)]
    return any(value is not None for state in states for value in state.values())
