"""Follows the leaves of backward calls: fills their rows of the run, and tells what was
done with each between the calls that reach it.

Tensors and modules are held weakly between the calls. Reads a few elements of leaves
that no optimizer has updated, and whether a gradient is zero; writes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from gradviz.checks.collect.models import Reading, note_direct_calls, note_no_switch
from gradviz.checks.collect.modes import ModeWatch
from gradviz.checks.collect.numbers import ByTensor, TensorRef, mark_of
from gradviz.checks.collect.optimizers import OptimizerWatch
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Interval, LeafRow
from gradviz.gradients.values import is_zero
from gradviz.walker.tensors import version_of


class _Left(NamedTuple):
    """A leaf and its gradient as a backward call left them, and what was done with it
    before that call.
    """

    version: int | None
    grad: TensorRef
    grad_version: int | None
    before: Interval


class LeafWatch:
    """Of one run. `intervals` and `reached` belong before each backward call that is
    read, `after` behind it.
    """

    def __init__(
        self, recorder: Recorder, optimizers: OptimizerWatch, modes: ModeWatch
    ) -> None:
        self._recorder, self._run = recorder, recorder.run
        self._optimizers, self._modes = optimizers, modes
        self._rows: ByTensor[LeafRow] = WeakIdKeyDictionary()
        self._left: ByTensor[_Left] = WeakIdKeyDictionary()
        self._number = 0  # of the call that was read last

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
        stepped = id(leaf) in self._optimizers.stepped
        updated = stepped or version_of(leaf) != left.version
        # a step goes on while its closure calls backward
        stepped |= updated and bool(self._recorder.stepping)
        reset = grad is None or left.grad() is not grad
        if grad is not None and not reset:
            touched = updated or version_of(grad) != left.grad_version
            # where nobody can tell, it may have been
            reset = touched and is_zero(grad) is not False
        if reset:
            return Interval(updated)
        return Interval(updated, before.steps + stepped, before.changes + updated)

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
                self._optimizers.stepped.discard(id(leaf))

    # -- the rows ----------------------------------------------------------------------

    def reached(self, reading: Reading) -> None:
        """A call is about to run through these leaves."""
        live, leaves = reading.live, reading.walked.variables
        for parameter, tensor in reading.parameters:
            self._run.names[id(tensor)] = parameter.names
        self._optimizers.look()
        self._read(reading)
        self._recorder.reaches(map(id, leaves.values()) if live.accumulates else ())

        note_no_switch(self._recorder, reading)
        note_direct_calls(self._recorder, reading)
        models = reading.models
        self._modes.models = {name: weakref.ref(model) for name, model in models}

    def _read(self, reading: Reading) -> None:
        call, names = reading.live.call or 0, reading.walked.names
        parameters = {id(tensor): parameter for parameter, tensor in reading.parameters}
        stepping = [row.held for row in self._run.optimizers if row.steps]
        held = set[int]().union(*stepping)

        for node, tensor in reading.walked.variables.items():
            key, row = id(tensor), self._rows.get(tensor)
            elements = mark_of(tensor) if key not in held else None
            if row is None:
                named = self._run.names.setdefault(key, names.leaf(tensor))
                row, parameter = LeafRow(named), parameters.get(key)
                row.elements = elements
                if parameter is not None:
                    row.module = parameter.module
                    row.model = reading.models[parameter.model][0]
                self._rows[tensor] = self._run.leaves[key] = row
            elif elements is not None:
                row.moved = bool(row.moved) or elements != row.elements

            row.node, row.call = node, call
            row.first = row.first or call
            row.reached += 1
