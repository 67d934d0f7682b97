"""Follows the leaves of backward calls: fills their rows of the record, and tells what
was done with each between the calls that reach it.

Tensors and modules are held weakly between the calls. Reads a few elements of leaves
that no optimizer has updated, and whether a gradient is zero; writes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from gradviz.checks.call import Parameter
from gradviz.checks.collect.calls import ByIdentity
from gradviz.checks.collect.lines import Models, made_at, users_frame
from gradviz.checks.collect.models import Reading
from gradviz.checks.collect.modes import Trainee
from gradviz.checks.collect.numbers import (
    TensorRef,
    is_readable,
    is_scaled,
    optimized,
)
from gradviz.checks.collect.parameters import mistyped
from gradviz.checks.collect.recorder import RunRecorder
from gradviz.checks.run import Interval, LeafRow, ModelState
from gradviz.gradients.values import is_zero
from gradviz.graph import SourceLine
from gradviz.variables.objects import joined, submodules
from gradviz.walker.isolation import unrecorded
from gradviz.walker.tensors import tensor_info, version_of
from gradviz.walker.walk import Walked

_ELEMENTS = 8  # of a leaf that nobody seems to update, to see whether it moves
_Parameters = Sequence[tuple[Parameter, torch.Tensor]]
_Modules = dict[str, tuple[str, torch.nn.Module]]


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

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder, self._record = recorder, recorder.record
        # each with its mark as of the first call
        self._rows = ByIdentity[tuple[LeafRow, object]]()
        self._left = ByIdentity[_Left]()
        # what the call that is about to run leads to, by node
        self._coming: dict[int, torch.Tensor] = {}
        self._intervals: dict[int, Interval] = {}
        # of all that calls have reached
        self._versions: dict[int, tuple[TensorRef, int | None]] = {}
        self._updates = 0  # steps of optimizers when `updated` was asked
        self.saw_updates = False  # whether `updated` was ever true

    # -- what is done with a leaf between two calls ------------------------------------

    def intervals(self, leaves: Mapping[int, torch.Tensor]) -> dict[int, Interval]:
        """What was done with each of these leaves since a call reached it, by the same
        keys. Whether a gradient was zeroed no counter tells for certain
        (`w.grad.data.zero_()`), so its numbers are looked at, if the leaf was updated.
        """
        self._intervals = {}
        self._coming = {key: leaf for key, leaf in leaves.items() if leaf.is_leaf}
        for key, leaf in self._coming.items():
            left = self._left.of(leaf)
            if left is not None:
                self._intervals[key] = self._since(left, leaf)
        return self._intervals

    def _since(self, left: _Left, leaf: torch.Tensor) -> Interval:
        grad, before = leaf.grad, left.before
        stepped = id(leaf) in self._recorder.stepped
        changed = version_of(leaf) != left.version
        reset = grad is None or left.grad() is not grad
        if grad is not None and not reset:
            touched = stepped or changed or version_of(grad) != left.grad_version
            # where nobody can tell, it may have been
            reset = touched and is_zero(grad) is not False
        if reset:
            return Interval(stepped, changed, True)
        return Interval(
            stepped,
            changed,
            False,
            before.steps + stepped,
            before.changes + (stepped or changed),
        )

    def updated(self) -> bool:
        """Whether an optimizer took a step, or a leaf was changed in place, since this
        was asked last. Ask after `intervals`.
        """
        steps, self._updates = self._updates, self._record.updates
        known = [(ref(), version) for ref, version in self._versions.values()]
        alive = [(leaf, version) for leaf, version in known if leaf is not None]
        changed = any(version_of(leaf) != version for leaf, version in alive)
        leaves = [*(leaf for leaf, _ in alive), *self._coming.values()]
        self._versions = {
            id(leaf): (weakref.ref(leaf), version_of(leaf)) for leaf in leaves
        }
        updated = changed or steps != self._updates
        self.saw_updates |= updated
        return updated

    def after(self, filled: bool) -> None:
        """The call has run, and filled the gradients of its leaves, or not."""
        record, coming = self._record, self._coming
        self._coming = {}
        if not filled:
            return

        for row in record.optimizers:
            row.reached.update(row.held & set(map(id, coming.values())))
        for key, leaf in coming.items():
            grad = leaf.grad
            if grad is not None:
                before = self._intervals.get(key, Interval())
                versions = version_of(leaf), weakref.ref(grad), version_of(grad)
                self._left.put(leaf, _Left(*versions, before))
                self._recorder.stepped.discard(id(leaf))

    # -- the rows ----------------------------------------------------------------------

    def reached(self, reading: Reading) -> None:
        """A call is about to run through these leaves."""
        record, live = self._record, reading.live
        models, parameters = reading.models, reading.parameters
        modules = _by_path(models)
        self._name(reading)
        self._read(reading.walked, live.call or 0, parameters, modules)
        self._recorder.reaches(
            map(id, reading.walked.variables.values()) if live.accumulates else (),
            live.call or 0,
            users_frame(live.frame),
        )
        record.scaler = record.scaler or is_scaled(live.variables)
        frozen = tuple(mistyped(models, parameters, live.variables))
        record.mistyped = frozen or record.mistyped
        record.models = tuple(
            self._state(name, model, parameters) for name, model in models
        )
        self._recorder.modes.known = tuple(
            _trainee(name, model, parameters) for name, model in models
        )

    def _name(self, reading: Reading) -> None:
        """Bring what is known of optimizers up to date, and the names of what they
        hold.
        """
        names = self._record.names
        names |= {
            id(tensor): parameter.names for parameter, tensor in reading.parameters
        }
        for name, optimizer in reading.optimizers:
            self._recorder.row(optimizer).name = name
            for tensor in optimized(optimizer):
                if id(tensor) not in names:
                    names[id(tensor)] = reading.walked.names.leaf(tensor)
        self._recorder.look()

    def _read(
        self, walked: Walked, call: int, parameters: _Parameters, modules: _Modules
    ) -> None:
        known = {id(tensor): parameter for parameter, tensor in parameters}
        held = set[int]().union(
            *(row.held for row in self._record.optimizers if row.steps)
        )
        for node, tensor in walked.variables.items():
            mark = _mark(tensor) if id(tensor) not in held else None
            watched = self._rows.of(tensor)
            if watched is None:
                row = self._new(walked, tensor, known.get(id(tensor)), modules)
                self._rows.put(tensor, (row, mark))
                self._record.leaves[id(tensor)] = row
                self._record.names.setdefault(id(tensor), row.names)
            else:
                row, first = watched
                moved = bool(row.moved) or mark != first
                row.moved = moved if mark is not None else row.moved

            row.node, row.call, row.first = node, call, row.first or call
            row.reached += 1

    def _new(
        self,
        walked: Walked,
        tensor: torch.Tensor,
        known: Parameter | None,
        modules: _Modules,
    ) -> LeafRow:
        row = LeafRow(
            known.names if known is not None else walked.names.leaf(tensor),
            tensor_info(tensor),
            known is not None,
        )
        if known is not None:
            row.model, module = modules.get(
                known.module,
                ("", None),
            )
            row.module, row.type = known.module, known.type
            if module is not None:
                row.source = _made_in(known.names[0], modules)
            else:
                row.source = None
        else:
            _own(row, modules)

        row.born, row.after = self._recorder.births.of(tensor) or (None, 0)
        return row

    def _state(
        self, name: str, model: torch.nn.Module, parameters: _Parameters
    ) -> ModelState:
        mine, held = _of_model(name, parameters), self._record.holding
        return ModelState(
            name,
            type(model).__name__,
            model.training,
            sum(id(tensor) in held for _, tensor in mine),
            any(parameter.sharded for parameter, _ in mine),
        )


def _of_model(name: str, parameters: _Parameters) -> _Parameters:
    return [
        (parameter, tensor)
        for parameter, tensor in parameters
        if parameter.names[0].startswith(f"{name}.")
    ]


def _trainee(
    name: str,
    model: torch.nn.Module,
    parameters: _Parameters,
) -> Trainee:
    weights = frozenset(
        id(tensor) for _, tensor in _of_model(name, parameters) if tensor.requires_grad
    )
    return Trainee(name, weakref.ref(model), weights)


def _mark(tensor: torch.Tensor) -> object:
    """What changes when a leaf does: its version, and a few of its elements, for
    writing to `.data` leaves that alone.
    """
    if not is_readable(tensor):
        return None
    with unrecorded():
        return version_of(tensor), tuple(
            map(str, tensor.flatten()[:_ELEMENTS].tolist())
        )


def _own(row: LeafRow, modules: _Modules) -> None:
    """Note the module that holds the tensor as a plain attribute, if one does, and the
    line that puts it there.
    """
    for name in row.names:
        path, _, attribute = name.rpartition(".")
        model, owner = modules.get(path, ("", None))
        if owner is not None:
            row.names, row.model, row.module, row.type = (
                (name,),
                model,
                path,
                type(owner).__name__,
            )
            row.source = made_at(type(owner), attribute)
            return


def _made_in(path: str, modules: _Modules) -> SourceLine | None:
    """Where the nearest class outside torch around a parameter makes it, or the module
    that it is in.
    """
    while path:
        path, _, attribute = path.rpartition(".")
        module = modules.get(path, ("", None))[1]
        if module is not None and not type(module).__module__.startswith("torch."):
            return made_at(type(module), attribute)
    return None


def _by_path(models: Models) -> _Modules:
    """All modules by their paths, which begin with the name of the model: that name,
    and the module.
    """
    modules: _Modules = {}
    for name, model in models:
        for path, module in submodules(model):
            modules.setdefault(joined(name, path), (name, module))
    return modules
