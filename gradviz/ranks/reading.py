"""What a process says of itself beside the graph that it read: which rank it is, and
what it holds. Reads live objects.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import torch

from gradviz.graph import Graph, Process, RankMemory
from gradviz.rank import Rank
from gradviz.run.outputs import LiveOutputs
from gradviz.variables.scanner import Namespace, scan
from gradviz.walker.isolation import isolated
from gradviz.walker.names import outermost_modules, registered
from gradviz.walker.private import fsdp_parameters
from gradviz.walker.tensors import parts_of, storage_of


def with_process(graph: Graph, live: LiveOutputs, place: Rank) -> Graph:
    """The graph with the process that this is, one of several."""
    with isolated():
        models = outermost_modules(None, live.variables)
        parameters = {
            name: tensor
            for prefix, model in models
            for name, tensor, kind in registered(prefix, model)
            if kind == "parameter"
        }
        process = Process(
            place.number,
            place.world,
            socket.gethostname(),
            _memory(
                graph,
                [*parameters.values(), *_sharded(models)],
                live.variables,
            ),
            tuple(parameters),
            ", ".join(dict.fromkeys(_wrappers(models))),
            _stage(live.variables),
        )

    return replace(graph, process=process)


def _wrappers(
    models: Iterable[tuple[str, torch.nn.Module]],
) -> Iterator[str]:
    """What shares the work among ranks."""
    for _, model in models:
        for module in model.modules():
            if isinstance(module, torch.nn.parallel.DistributedDataParallel):
                yield "DistributedDataParallel"
            elif any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
                yield "FSDP2"


def _stage(variables: Sequence[Namespace]) -> int | None:
    """The stage of a pipeline that a variable holds."""
    for namespace in variables:
        for value in list(namespace.values()):
            bases = {
                base.__name__
                for base in type(value).__mro__
                if base.__module__.startswith("torch.distributed.")
            }
            if "_PipelineStageBase" in bases:
                number = getattr(value, "stage_index", None)
            else:
                number = None
            if isinstance(number, int):
                return number

    return None


# -- bytes that it holds, each block once, as sharded here -----------------------------


def _sharded(
    models: Iterable[tuple[str, torch.nn.Module]],
) -> Iterator[torch.Tensor]:
    """The shards that this process holds of FSDP2's parameters, and the whole ones that
    are gathered right now.
    """
    for _, model in models:
        for parameter in fsdp_parameters(model):
            yield parameter.shard
            if parameter.whole is not None:  # of no bytes while it is not gathered
                yield parameter.whole


def _memory(
    graph: Graph, parameters: Sequence[torch.Tensor], variables: Sequence[Namespace]
) -> RankMemory:
    """What is held now, of these parameters."""
    gradients = [
        tensor.grad
        for tensor in parameters
        if tensor.is_leaf and tensor.grad is not None
    ]
    states = [
        variable.value.state
        for variable in scan(variables)
        if variable.kind == "optimizer"
    ]
    held = [
        value
        for state in states
        for values in dict(state).values()
        for value in dict(values).values()
    ]
    optimizer = [value for value in held if isinstance(value, torch.Tensor)]

    return RankMemory(
        sum(graph.held),
        _bytes(parameters),
        _bytes(gradients),
        _bytes(optimizer),
    )


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    size_of: dict[int, int] = {}  # by block of memory
    waiting = list(tensors)
    while waiting:
        tensor = waiting.pop()
        parts = parts_of(tensor)
        waiting += [part for _, part in parts]
        storage = storage_of(tensor) if not parts else None
        if storage is not None:
            size_of[storage[0]] = storage[1]
    return sum(size_of.values())
