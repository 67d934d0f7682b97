"""Reads models and optimizers: which there are, their parameters with the nodes of the
graph, and how their modules ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from gradviz.checks.call import NamedTensor, Optimizer, Parameter
from gradviz.checks.collect.lines import Models, Variables
from gradviz.checks.collect.numbers import optimized
from gradviz.checks.collect.optimizers import OptimizerWatch
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import Kind
from gradviz.recording.record import ModuleRun, Recording
from gradviz.run.outputs import LiveOutputs
from gradviz.source.search import freezes, matching
from gradviz.variables.objects import (
    every_path,
    joined,
    own_attributes,
    parameters as own_parameters,
    submodules,
)
from gradviz.variables.scanner import as_written, scan, value_of
from gradviz.walker.names import gathered, outermost_modules, registered
from gradviz.walker.walk import Walked

Optimizers = Sequence[tuple[str, torch.optim.Optimizer]]


class Reading(NamedTuple):
    """The live objects of one call: what was walked, the nodes of leaves by identity,
    and which models and optimizers there are.
    """

    walked: Walked
    live: LiveOutputs
    leaf_of: Mapping[int, int]
    models: Models
    optimizers: Optimizers
    parameters: Sequence[tuple[Parameter, torch.Tensor]]


class ModelReader:
    """Of one run. `model` and `optimizer` as the user gave them; without, the variables
    are searched.
    """

    def __init__(
        self,
        model: torch.nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        recorder: Recorder,
        watch: OptimizerWatch,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._recorder, self._watch = recorder, watch

    def reading(self, walked: Walked, live: LiveOutputs) -> Reading:
        """What there is at a call."""
        leaf_of = {id(tensor): node for node, tensor in walked.variables.items()}
        models = self._models(live.variables)
        optimizers = self._optimizers(live.variables)
        parameters = self._parameters(models, leaf_of, live.recording)
        return Reading(walked, live, leaf_of, models, optimizers, parameters)

    def _models(self, variables: Variables) -> Models:
        if self._model is not None:
            return outermost_modules(self._model, variables)[:1]
        outermost = outermost_modules(None, variables)
        inside = tuple(f"{name}." for name, _ in outermost)
        # a layer in a plain list of another module is in none of that one's tables
        return [
            (name, model)
            for name, model in outermost
            if not name.startswith(inside) and own_parameters(model)
        ]

    def _optimizers(self, variables: Variables) -> Optimizers:
        if self._optimizer is not None:
            return [("optimizer", self._optimizer)]
        found: dict[int, tuple[str, torch.optim.Optimizer]] = {}
        for variable in scan(variables):
            if variable.kind == "optimizer":
                found.setdefault(id(variable.value), (variable.name, variable.value))
        return list(found.values())

    def _parameters(
        self, models: Models, leaf_of: Mapping[int, int], recording: Recording | None
    ) -> list[tuple[Parameter, torch.Tensor]]:
        """Each parameter once, under all its names, and the live tensor."""
        found: dict[int, tuple[Parameter, torch.Tensor]] = {}

        for i, (prefix, model) in enumerate(models):
            modules = dict(every_path(model))
            shards: dict[str, tuple[torch.Tensor, torch.Tensor | None]] = {}
            for path, shard, whole in gathered("", model):
                shards[path] = shard, whole
            for path, tensor, kind in registered("", model):
                if kind != "parameter":
                    continue
                # the shard has the gradient, the graph the whole
                tensor, leaf = shards.get(path, (tensor, tensor))
                key, name = id(tensor), joined(prefix, path)
                if key in found:
                    names = (*found[key][0].names, name)
                    found[key] = found[key][0]._replace(names=names), tensor
                    continue

                owner = path.rpartition(".")[0]
                parameter = Parameter(
                    names=(name,),
                    module=joined(prefix, owner),
                    type=type(modules[owner]).__name__,
                    model=i,
                    requires_grad=tensor.requires_grad,
                    has_grad=tensor.grad is not None,
                    node=leaf_of.get(id(leaf)),
                    sharded=leaf is None,
                    run=recording.run_of(modules[owner])
                    if recording is not None
                    else ModuleRun(-1),
                )
                parameter = parameter._replace(replaced=self._replaced(modules, owner))
                found[key] = parameter, tensor

        return list(found.values())

    def _replaced(self, modules: Mapping[str, torch.nn.Module], path: str) -> bool:
        """Whether `functional_call` ran the module with this path, or one around it."""
        around = accumulate(path.split("."), "{}.{}".format)
        return any(modules[each] in self._recorder.replaced for each in ("", *around))

    def held(self, reading: Reading) -> Iterator[Optimizer]:
        """The optimizers with what they hold, of which the names are noted."""
        walked, variables = reading.walked, reading.live.variables
        for name, optimizer in reading.optimizers:
            row, tensors = self._watch.row(optimizer), list[NamedTensor]()
            row.name = name
            for tensor in optimized(optimizer):
                names, node = walked.names.leaf(tensor), reading.leaf_of.get(id(tensor))
                self._recorder.run.names.setdefault(id(tensor), names)
                tensors.append(NamedTensor(names, node))
            written = as_written(name, variables)
            yield Optimizer(written, tuple(tensors), row)


def note_direct_calls(recorder: Recorder, reading: Reading) -> None:
    """Where forward() of a module with hooks, or of a custom Function, is called in place
    of the module or of apply().
    """
    live, graph, hooked = reading.live, reading.walked.graph, _uncalled(reading)
    files = {space.get("__file__") for space in live.variables}
    for file in sorted(each for each in files if type(each) is str):
        for source, match in matching(file, r"([\w.]+)\.forward\("):
            holder, last = match[1], match[1].rpartition(".")[2]
            value = value_of(holder, live.variables)
            if last in hooked:
                recorder.note(Kind.NO_HOOK, source, hooked[last])
            is_custom = isinstance(value, type) and issubclass(value, _FUNCTION)
            if is_custom and f"{value.__name__}Backward" not in graph.ops:
                recorder.note(Kind.NO_APPLY, source, holder)


_FUNCTION = torch.autograd.Function


def _uncalled(reading: Reading) -> dict[str, str]:
    """The modules with hooks that take part in the graph and were not called, by the
    last part of their name.
    """
    recording, found = reading.live.recording, dict[str, str]()
    for name, model in reading.models:
        for path, module in submodules(model) if recording is not None else ():
            used = any(id(one) in reading.leaf_of for one in own_parameters(module))
            called = recording is not None and recording.run_of(module).calls
            if used and not called and _has_hooks(module):
                found[path.rpartition(".")[2]] = joined(name, path)
    return found


def _has_hooks(module: torch.nn.Module) -> bool:
    held = own_attributes(module)
    tables = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    return any(held.get(table) for table in tables)


def note_no_switch(recorder: Recorder, reading: Reading) -> None:
    """Modules that somebody wants to freeze by an attribute that torch does not read."""
    names = []
    for name, model in reading.models:
        for path, module in submodules(model):
            off = own_attributes(module).get("requires_grad") is False
            if off and any(one.requires_grad for one in own_parameters(module)):
                names.append(joined(name, path))

    if names:
        files = dict.fromkeys(space.get("__file__") for space in reading.live.variables)
        # the line that sets it, in the files that variables belong to
        lines = (freezes(file) for file in files if type(file) is str)
        source = next(filter(None, lines), None)
        recorder.note(Kind.NO_SWITCH, source, *names)
