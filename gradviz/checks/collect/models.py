"""Reads models and optimizers: which there are, their parameters with the nodes of the
graph, and how their modules ran.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
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
from gradviz.checks.collect.parameters import Replaced
from gradviz.checks.collect.recorder import RunRecorder
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
        recorder: RunRecorder,
        replaced: Replaced,
    ) -> None:
        self._model, self._optimizer, self._recorder, self._replaced = (
            model,
            optimizer,
            recorder,
            replaced,
        )
        self.recording: Recording | None = None  # that is asked how modules ran

    def reading(self, walked: Walked, live: LiveOutputs) -> Reading:
        """What there is at a call."""
        ignored, variables = _ignored(walked.graph), live.variables
        inside = {id(walked.variables[node]): node for node in ignored}
        leaf_of = {
            id(tensor): node
            for node, tensor in walked.variables.items()
            if node not in ignored
        }
        models = self.models(variables)

        return Reading(
            walked,
            live,
            leaf_of,
            models,
            self.optimizers(variables),
            self._parameters(models, leaf_of, inside),
        )

    def models(self, variables: Variables) -> Models:
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

    def _parameters(
        self,
        models: Models,
        leaf_of: Mapping[int, int],
        inside: Mapping[int, int],
    ) -> list[tuple[Parameter, torch.Tensor]]:
        """Each parameter once, under all its names, and the live tensor."""
        by_tensor: dict[int, tuple[Parameter, torch.Tensor]] = {}
        made_in, forward_in = cache(made_at), cache(forward_of)

        for i, (prefix, model) in enumerate(models):
            modules = dict(every_path(model))
            gathered = _gathered(model)
            for path, tensor, kind in registered("", model):
                if kind != "parameter":
                    continue
                # the shard has the gradient, the graph the whole
                tensor, whole = gathered.get(id(tensor), (tensor, tensor))
                name, known = joined(prefix, path), by_tensor.get(id(tensor))
                if known is not None:
                    by_tensor[id(tensor)] = (
                        known[0]._replace(names=(*known[0].names, name)),
                        tensor,
                    )
                    continue
                owner = path.rpartition(".")[0]
                node = leaf_of.get(id(whole))
                if node is None and tensor.requires_grad:
                    around = class_around(modules, path)
                else:
                    around = None
                parameter = Parameter(
                    names=(name,),
                    module=joined(prefix, owner),
                    type=type(modules[owner]).__name__,
                    model=i,
                    tensor=tensor_info(tensor),
                    requires_grad=tensor.requires_grad,
                    has_grad=tensor.grad is not None,
                    node=node,
                    compiled=inside.get(id(tensor)),
                    made=made_in(*around) if around is not None else None,
                    forward=forward_in(around[0]) if around is not None else None,
                    sharded=type(tensor).__name__ == "DTensor",
                    gathered=whole is not tensor,
                    run=self._run(modules, owner),
                    replaced=self._replaced.at(tensor) if node is None else None,
                )
                by_tensor[id(tensor)] = parameter, tensor

        return list(by_tensor.values())

    def _run(
        self,
        modules: dict[str, torch.nn.Module],
        path: str,
    ) -> ModuleRun | None:
        """How the module ran that owns a parameter. A list of parameters has no
        forward: the module around it counts.
        """
        if self.recording is None:
            return None
        while path and isinstance(
            modules[path], (torch.nn.ParameterList, torch.nn.ParameterDict)
        ):
            path = path.rpartition(".")[0]
        return self.recording.run_of(modules[path])

    def held(self, reading: Reading) -> Iterator[Optimizer]:
        known = {
            id(tensor): OptimizerTensor(parameter.names, parameter.node)
            for parameter, tensor in reading.parameters
        }
        for name, optimizer in reading.optimizers:
            tensors = tuple(
                known.get(id(tensor))
                or OptimizerTensor(
                    reading.walked.names.leaf(tensor), reading.leaf_of.get(id(tensor))
                )
                for tensor in optimized(optimizer)
            )
            row, written = (
                self._recorder.row(optimizer),
                as_written(name, reading.live.variables),
            )
            yield Optimizer(
                written,
                type(optimizer).__name__,
                tensors,
                row.source,
                row,
            )

    def optimizers(self, variables: Variables) -> Optimizers:
        if self._optimizer is not None:
            return [("optimizer", self._optimizer)]
        by_object: dict[int, tuple[str, torch.optim.Optimizer]] = {}
        for variable in scan(variables):
            if variable.kind == "optimizer":
                by_object.setdefault(
                    id(variable.value), (variable.name, variable.value)
                )
        return list(by_object.values())


def _ignored(graph: Graph) -> set[int]:
    """Leaves that a compiled function takes, and for which its backward gives nothing:
    no edge leads there.
    """
    if not any("compiled" in flags for flags in column(graph.nodes, "flags")):
        return set()
    reached = {edge.producer for edge in graph.edges} | {
        root.node for root in graph.roots
    }
    return {leaf.node for leaf in graph.leaves} - reached


def _gathered(
    model: torch.nn.Module,
) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    """For each parameter that FSDP2 shards: its shard and the whole that the graph
    holds, by the identity of either.
    """
    if "torch.distributed.fsdp" not in sys.modules:
        return {}
    pairs = [
        (pair.shard, pair.whole)
        for pair in fsdp_parameters(model)
        if pair.whole is not None
    ]
    return {id(tensor): pair for pair in pairs for tensor in pair}
