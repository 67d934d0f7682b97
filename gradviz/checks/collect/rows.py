"""Fills the rows of the record at backward calls: leaves and what became of them, and
the models as they are.

Tensors and modules are held weakly between the calls. Reads a few elements of leaves
that no optimizer has updated, and no other number; writes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from gradviz.checks.collect.calls import ByIdentity
from gradviz.checks.collect.lines import Models, made_at, users_frame
from gradviz.checks.collect.models import Reading
from gradviz.checks.collect.modes import Trainee
from gradviz.checks.collect.numbers import is_readable, is_scaled, optimized
from gradviz.checks.collect.parameters import mistyped
from gradviz.checks.collect.recorder import RunRecorder
from gradviz.checks.context import Parameter
from gradviz.checks.record import LeafRow, ModelState
from gradviz.graph import SourceLine
from gradviz.variables.objects import joined, submodules
from gradviz.walker.isolation import unrecorded
from gradviz.walker.tensors import tensor_info, version_of
from gradviz.walker.walk import Walked

_ELEMENTS = 8  # of a leaf that nobody seems to update, to see whether it moves
_Parameters = Sequence[tuple[Parameter, torch.Tensor]]
_Modules = dict[str, tuple[str, torch.nn.Module]]


class RowKeeper:
    """Of one run. `reached` belongs before each backward call that is read, `after`
    behind it.
    """

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder, self._record = recorder, recorder.record
        # each with its mark as of the first call
        self._leaves = ByIdentity[tuple[LeafRow, object]]()
        # leaves that the call leads to which is about to run
        self._coming: set[int] = set()

    def reached(self, reading: Reading) -> None:
        """A call is about to run through these leaves."""
        record, walked, models, parameters = (
            self._record,
            reading.walked,
            reading.models,
            reading.parameters,
        )
        variables, frame, call = (
            reading.live.variables,
            users_frame(reading.live.frame),
            reading.live.call or 0,
        )
        modules, self._coming = (
            _by_path(models),
            set(map(id, walked.variables.values())),
        )
        self._look(reading)
        self._read_leaves(walked, call, parameters, modules)
        self._recorder.reaches(
            self._coming if reading.live.accumulates else (), call, frame
        )
        record.scaler = record.scaler or is_scaled(variables)
        record.mistyped = (
            tuple(mistyped(models, parameters, variables)) or record.mistyped
        )
        record.models = tuple(
            self._state(name, model, parameters) for name, model in models
        )
        self._recorder.modes.known = tuple(
            _trainee(name, model, parameters) for name, model in models
        )

    def _look(self, reading: Reading) -> None:
        """Bring what is known of optimizers up to date, and the names of what they
        hold.
        """
        names = self._record.names
        for name, optimizer in reading.optimizers:
            self._recorder.row(optimizer).name = name

        names |= {
            id(tensor): parameter.names for parameter, tensor in reading.parameters
        }
        for tensor in (
            tensor
            for _, optimizer in reading.optimizers
            for tensor in optimized(optimizer)
        ):
            if id(tensor) not in names:
                names[id(tensor)] = reading.walked.names.leaf(tensor)

        self._recorder.look()

    def _read_leaves(
        self, walked: Walked, call: int, parameters: _Parameters, modules: _Modules
    ) -> None:
        known = {id(tensor): parameter for parameter, tensor in parameters}
        held = set[int]().union(
            *(row.held for row in self._record.optimizers if row.steps)
        )
        for node, tensor in walked.variables.items():
            mark, watched = (
                _mark(tensor) if id(tensor) not in held else None,
                self._leaves.of(tensor),
            )
            row, first = watched or (
                self._new(
                    walked,
                    tensor,
                    known.get(id(tensor)),
                    modules,
                ),
                mark,
            )
            if watched is None:
                self._leaves.put(tensor, (row, mark))
                self._record.leaves[id(tensor)] = row
                self._record.names.setdefault(id(tensor), row.names)
            elif mark is not None:
                row.moved = bool(row.moved) or mark != first

            row.node, row.call, row.first, row.reached = (
                node,
                call,
                row.first or call,
                row.reached + 1,
            )

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

        row.born, row.after = self._recorder.birth(tensor) or (None, 0)
        return row

    def after(self, filled: bool) -> None:
        """The call has run, and filled the gradients of its leaves, or not."""
        record = self._record
        record.calls += filled
        for row in record.optimizers if filled else ():
            row.reached.update(row.held & self._coming)

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
