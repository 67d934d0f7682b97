"""Reads models and optimizers: which there are, their parameters with the nodes of the
graph, and how their modules ran.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from gradviz.checks.call import Optimizer, OptimizerTensor, Parameter
from gradviz.checks.collect.lines import (
    Models,
    Variables,
    class_around,
    forward_of,
    made_at,
)
from gradviz.checks.collect.numbers import optimized
from gradviz.checks.collect.optimizers import OptimizerWatch
from gradviz.checks.collect.parameters import Replaced
from gradviz.graph import Graph, column
from gradviz.recording.record import ModuleRun, Recording
from gradviz.run.outputs import LiveOutputs
from gradviz.variables.objects import every_path, joined, parameters as own_parameters
from gradviz.variables.scanner import as_written, scan
from gradviz.walker.names import outermost_modules, registered
from gradviz.walker.private import fsdp_parameters
from gradviz.walker.tensors import tensor_info
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
        watch: OptimizerWatch,
        replaced: Replaced,
    ) -> None:
        self._model, self._optimizer = model, optimizer
        self._watch, self._replaced = watch, replaced

    def reading(self, walked: Walked, live: LiveOutputs) -> Reading:
        """What there is at a call."""
        ignored, variables = _ignored(walked.graph), live.variables
        nodes = {id(tensor): node for node, tensor in walked.variables.items()}
        leaf_of = {key: node for key, node in nodes.items() if node not in ignored}
        inside = {key: node for key, node in nodes.items() if node in ignored}
        models, optimizers = self._models(variables), self._optimizers(variables)
        parameters = [
            (parameter._replace(compiled=inside.get(id(tensor))), tensor)
            for parameter, tensor in self._parameters(models, leaf_of, live.recording)
        ]
        return Reading(walked, live, leaf_of, models, optimizers, parameters)

    def _models(self, variables: Variables) -> Models:
        if self._model is not None:
            return [("", self._model)]
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
                found.setdefault(
                    id(variable.value),
                    (variable.name, variable.value),
                )
        return list(found.values())

    def _parameters(
        self,
        models: Models,
        leaf_of: Mapping[int, int],
        recording: Recording | None,
    ) -> list[tuple[Parameter, torch.Tensor]]:
        """Each parameter once, under all its names, and the live tensor."""
        found: dict[int, tuple[Parameter, torch.Tensor]] = {}

        for i, (prefix, model) in enumerate(models):
            modules, gathered = dict(every_path(model)), _gathered(model)
            for path, tensor, kind in registered("", model):
                if kind != "parameter":
                    continue
                # the shard has the gradient, the graph the whole
                tensor, leaf = gathered.get(id(tensor), (tensor, tensor))
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
                    tensor=tensor_info(tensor),
                    requires_grad=tensor.requires_grad,
                    has_grad=tensor.grad is not None,
                    node=leaf_of.get(id(leaf)),
                    sharded=type(tensor).__name__ == "DTensor",
                    gathered=leaf is not tensor,
                    run=_run(recording, modules, owner),
                )
                # reads source files, so only for what has to be explained
                if parameter.node is None and tensor.requires_grad:
                    parameter = self._unused(parameter, tensor, modules, path)
                found[key] = parameter, tensor

        return list(found.values())

    def _unused(
        self,
        parameter: Parameter,
        tensor: torch.Tensor,
        modules: Mapping[str, torch.nn.Module],
        path: str,
    ) -> Parameter:
        """The same with the lines that tell why it takes no part."""
        parameter = parameter._replace(replaced=self._replaced.line_of(tensor))
        owner = class_around(modules, path)
        if owner is None:
            return parameter
        line, forward = made_at(*owner), forward_of(owner[0])
        return parameter._replace(made=line, forward=forward)

    def held(self, reading: Reading) -> Iterator[Optimizer]:
        """The optimizers with what they hold."""
        parameters = {
            id(tensor): OptimizerTensor(parameter.names, parameter.node)
            for parameter, tensor in reading.parameters
        }
        names, leaf_of = reading.walked.names, reading.leaf_of

        for name, optimizer in reading.optimizers:
            tensors = tuple(
                parameters.get(id(tensor))
                or OptimizerTensor(
                    names.leaf(tensor),
                    leaf_of.get(id(tensor)),
                )
                for tensor in optimized(optimizer)
            )
            row = self._watch.row(optimizer)
            written = as_written(name, reading.live.variables)
            yield Optimizer(written, row.type, tensors, row.source, row)


def _run(
    recording: Recording | None,
    modules: Mapping[str, torch.nn.Module],
    path: str,
) -> ModuleRun | None:
    """How the module ran that owns a parameter. A list of parameters has no forward:
    the module around it counts.
    """
    if recording is None:
        return None
    lists = torch.nn.ParameterList, torch.nn.ParameterDict
    while path and isinstance(modules[path], lists):
        path = path.rpartition(".")[0]
    return recording.run_of(modules[path])


def _ignored(graph: Graph) -> set[int]:
    """Leaves that a compiled function takes, and for which its backward gives nothing:
    no edge leads there.
    """
    if not any("compiled" in flags for flags in column(graph.nodes, "flags")):
        return set()
    reached = {edge.producer for edge in graph.edges}
    # no edge leads to an output that is a leaf itself
    reached |= {root.node for root in graph.roots if root.node is not None}
    return {leaf.node for leaf in graph.leaves} - reached


def _gathered(
    model: torch.nn.Module,
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """For each parameter that FSDP2 shards: its shard and the whole that the graph
    holds, by the identity of either.
    """
    # importing it takes long, and without it nothing is sharded
    if "torch.distributed.fsdp" not in sys.modules:
        return {}
    found: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for pair in fsdp_parameters(model):
        if pair.whole is not None:
            found[id(pair.shard)] = found[id(pair.whole)] = pair.shard, pair.whole
    return found
