"""Fills the rows of the record at backward calls: leaves and what became of them, and the models as they are.

Tensors and modules are held weakly between the calls. Reads a few elements of leaves that no optimizer has updated, and no other number;
writes nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from gradviz.checks.collect.lines import Models, made_at, users_frame
from gradviz.checks.collect.models import Reading
from gradviz.checks.collect.modes import Trainee
from gradviz.checks.collect.numbers import is_readable, is_scaled, optimized
from gradviz.checks.collect.parameters import mistyped
from gradviz.checks.collect.recorder import RunRecorder
from gradviz.checks.context import Parameter
from gradviz.checks.flow import behind
from gradviz.checks.record import LeafRow, Mixed, ModelState, OptimizerRow
from gradviz.graph import Graph, SourceLine
from gradviz.packages import code_line, with_text
from gradviz.source.search import registers_buffer
from gradviz.variables.objects import joined, submodules
from gradviz.walker.isolation import unrecorded
from gradviz.walker.tensors import tensor_info, version_of
from gradviz.walker.walk import Walked

_ELEMENTS = 8  # of a leaf that nobody seems to update, to see whether it moves
_Parameters = Sequence[tuple[Parameter, torch.Tensor]]
_Modules = dict[str, tuple[str, torch.nn.Module]]


class _Watched:
    """A leaf with a row, held weakly, and what is known of it until the next call."""

    def __init__(self, tensor: torch.Tensor, row: LeafRow) -> None:
        self.ref, self.row = weakref.ref(tensor), row
        self.mark: object = None  # version and a few elements, as of the first call
        self.reached = False  # by the call that runs now


class _Last(NamedTuple):
    """The call before: its graph, its leaves by identity, the line that made it, and the steps that optimizers had taken."""

    graph: Graph
    nodes: Mapping[int, int]
    source: SourceLine | None
    steps: Mapping[OptimizerRow, int]

    def leads(self, first: set[int], second: set[int]) -> bool:
        """Whether a leaf of the one set comes before what uses the other set."""
        users = (edge.consumer for key in second & self.nodes.keys() for edge in self.graph.consumers(self.nodes[key]))
        before = set(behind(self.graph, users))
        return any(self.nodes[key] in before for key in first & self.nodes.keys())


class RowKeeper:
    """Of one run. `reached` belongs before each backward call that is read, `after` behind it."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder, self._record = recorder, recorder.record
        self._leaves: dict[int, _Watched] = {}
        self._last: _Last | None = None  # of the calls that filled gradients
        self._coming: _Last | None = None
        self._in_a_row = True

    def reached(self, reading: Reading, intervals: Mapping[int, tuple[str, ...]]) -> None:
        """A call is about to run through these leaves."""
        record, walked, models, parameters = self._record, reading.walked, reading.models, reading.parameters
        variables, frame, call = reading.live.variables, users_frame(reading.live.frame), reading.live.call or 0
        modules, nodes = _by_path(models), {id(tensor): node for node, tensor in walked.variables.items()}
        steps = self._look(reading)
        self._read_leaves(walked, call, parameters, modules)
        for parameter, tensor in parameters:
            if not tensor.requires_grad and id(tensor) in record.holding:
                record.made.setdefault(parameter.names[0], _made_in(parameter.names[0], modules))
        self._recorder.reaches(nodes if reading.live.accumulates else (), call, frame)
        last = {key: intervals[node][-1] for key, node in nodes.items() if node in intervals}
        record.intervals.update(last.values())
        record.scaler = record.scaler or is_scaled(variables)
        record.mistyped = tuple(mistyped(models, parameters, variables)) or record.mistyped
        record.models = tuple(self._state(name, model, parameters) for name, model in models)
        self._recorder.modes.known = tuple(_trainee(name, model, parameters) for name, model in models)
        source = with_text(code_line(frame.f_code, frame.f_lineno)) if frame is not None else None
        self._coming = _Last(walked.graph, nodes, source, steps)
        if self._last is not None:
            self._mix(self._last, self._coming, last)

    def _look(self, reading: Reading) -> dict[OptimizerRow, int]:
        """Bring what is known of optimizers up to date, and the names of what they hold: how many steps each has taken."""
        names = self._record.names
        for name, optimizer in reading.optimizers:
            self._recorder.row(optimizer).name = name
        names |= {id(tensor): parameter.names for parameter, tensor in reading.parameters}
        for tensor in (tensor for _, optimizer in reading.optimizers for tensor in optimized(optimizer)):
            if id(tensor) not in names:
                names[id(tensor)] = reading.walked.names.leaf(tensor)
        return {row: row.steps for row in self._recorder.look()}

    def _read_leaves(self, walked: Walked, call: int, parameters: _Parameters, modules: _Modules) -> None:
        known = {id(tensor): parameter for parameter, tensor in parameters}
        held = set[int]().union(*(row.held for row in self._record.optimizers if row.steps))
        for node, tensor in walked.variables.items():
            watched = self._leaves.get(id(tensor))
            if watched is None or watched.ref() is not tensor:
                row = self._new(walked, tensor, known.get(id(tensor)), modules)
                watched = self._leaves[id(tensor)] = _Watched(tensor, row)
                watched.mark = _mark(tensor) if id(tensor) not in held else None
                self._record.leaves[id(tensor)] = row
                self._record.names.setdefault(id(tensor), row.names)
            elif id(tensor) not in held and (mark := _mark(tensor)) is not None:
                watched.row.moved = bool(watched.row.moved) or mark != watched.mark
            row, watched.reached = watched.row, True
            row.node, row.call, row.first, row.reached = node, call, row.first or call, row.reached + 1

    def _new(self, walked: Walked, tensor: torch.Tensor, known: Parameter | None, modules: _Modules) -> LeafRow:
        row = LeafRow(
            known.names if known is not None else walked.names.leaf(tensor), tensor_info(tensor), known is not None
        )
        if known is not None:
            row.model, module = modules.get(known.module, ("", None))
            row.module, row.type = known.module, known.type
            row.source = _made_in(known.names[0], modules) if module is not None else None
        else:
            _own(row, modules)
        row.born, row.after = self._recorder.birth(tensor) or (None, 0)
        return row

    def _mix(self, last: _Last, coming: _Last, since: Mapping[int, str]) -> None:
        """Find optimizers whose parameters the call before has filled for another one, which has taken its step since.

        Either that one's parameters come before them in the graph, as a generator's before those of a discriminator, and are no
        part of the call that comes; or they come behind them in both. What is there is added to, or was thrown away.
        """
        stepped = [row for row in self._record.optimizers if row.steps > last.steps.get(row, row.steps)]
        for waiting in self._record.optimizers:
            mine = waiting.held & coming.nodes.keys() & last.nodes.keys()
            done = {since.get(key) for key in mine}
            if mine and done != {""}:
                self._recorder.due.pop(waiting, None)
            if done == {""} and waiting.steps == last.steps.get(waiting):
                for other in stepped:
                    if other.held.isdisjoint(waiting.held):
                        self._mix_with(other, waiting, (last, coming), mine)

    def _mix_with(self, other: OptimizerRow, waiting: OptimizerRow, calls: tuple[_Last, _Last], mine: set[int]) -> None:
        last, coming = calls
        comes = not other.held.isdisjoint(coming.nodes)
        leads = comes and last.leads(mine, other.held)
        mixed = Mixed(other.name or other.type, last.source, coming.source, leads)
        if leads or (not comes and last.leads(other.held, mine)):
            self._recorder.due[waiting] = mixed

    def passed(self, reading: bool) -> None:
        """A call comes. After one that is not read in a row, whose gradients a step uses is not known."""
        self._in_a_row = reading
        if not reading:
            self._last = None

    def after(self, filled: bool) -> None:
        """The call has run, and filled the gradients of its leaves, or not."""
        record = self._record
        record.calls += filled
        nodes = self._coming.nodes if filled and self._coming is not None else {}
        for row in record.optimizers:
            row.reached.update(row.held & nodes.keys())
        if filled:
            self._last = self._coming if self._in_a_row else None
        for leaf in self._leaves.values():
            leaf.reached = False

    def _state(self, name: str, model: torch.nn.Module, parameters: _Parameters) -> ModelState:
        mine, held = _of_model(name, parameters), self._record.holding
        return ModelState(
            name,
            type(model).__name__,
            model.training,
            sum(id(tensor) in held for _, tensor in mine),
            any(parameter.sharded for parameter, _ in mine),
        )


def _of_model(name: str, parameters: _Parameters) -> _Parameters:
    return [(parameter, tensor) for parameter, tensor in parameters if parameter.names[0].startswith(f"{name}.")]


def _trainee(name: str, model: torch.nn.Module, parameters: _Parameters) -> Trainee:
    weights = frozenset(id(tensor) for _, tensor in _of_model(name, parameters) if tensor.requires_grad)
    return Trainee(name, weakref.ref(model), weights)


def _mark(tensor: torch.Tensor) -> object:
    """What changes when a leaf does: its version, and a few of its elements, for writing to `.data` leaves that alone."""
    if not is_readable(tensor):
        return None
    with unrecorded():
        return version_of(tensor), tuple(map(str, tensor.flatten()[:_ELEMENTS].tolist()))


def _own(row: LeafRow, modules: _Modules) -> None:
    """Note the module that holds the tensor as a plain attribute, if one does, and the line that puts it there."""
    for name in row.names:
        path, _, attribute = name.rpartition(".")
        model, owner = modules.get(path, ("", None))
        if owner is not None:
            init = getattr(vars(type(owner)).get("__init__"), "__code__", None)
            buffer = registers_buffer(init.co_filename, attribute) if init is not None else None
            row.names, row.model, row.module, row.type = (name,), model, path, type(owner).__name__
            row.source = made_at(type(owner), attribute) or buffer
            return


def _made_in(path: str, modules: _Modules) -> SourceLine | None:
    """Where the nearest class outside torch around a parameter makes it, or the module that it is in."""
    while path:
        path, _, attribute = path.rpartition(".")
        module = modules.get(path, ("", None))[1]
        if module is not None and not type(module).__module__.startswith("torch."):
            return made_at(type(module), attribute)
    return None


def _by_path(models: Models) -> _Modules:
    """All modules by their paths, which begin with the name of the model: that name, and the module."""
    modules: _Modules = {}
    for name, model in models:
        for path, module in submodules(model):
            modules.setdefault(joined(name, path), (name, module))
    return modules
