"""What a process says of itself beside the graph that it read: which rank it is, and what it holds. Reads live objects."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from gradviz.graph import Graph, Process
from gradviz.rank import rank
from gradviz.ranks.calls import noted
from gradviz.ranks.memory import memory_of
from gradviz.run.live import LiveOutputs
from gradviz.run.selection import microbatch_of
from gradviz.walker.names import outermost_modules, registered
from gradviz.walker.private import without_subclasses


def in_process(read: Callable[[LiveOutputs], Graph], live: LiveOutputs) -> Graph:
    """What `read` gives, with the process that read it."""
    return with_process(read(live), live)


def with_process(graph: Graph, live: LiveOutputs) -> Graph:
    """The graph with the process that this is, one of several."""
    place = rank()
    if place is None:
        return graph
    with without_subclasses():
        models = outermost_modules(None, live.variables)
        names = dict.fromkeys(
            name for prefix, model in models for name, _, kind in registered(prefix, model) if kind == "parameter"
        )
        memory = memory_of(graph, [model for _, model in models], live.variables)
        wrapped = ", ".join(dict.fromkeys(_wrappers([model for _, model in models])))
    process = Process(
        place.number, place.world, socket.gethostname(), memory, noted(), tuple(names), wrapped, _stage(live)
    )
    return replace(graph, process=process)


def _wrappers(models: Sequence[torch.nn.Module]) -> Iterator[str]:
    """What shares the work among ranks, with the options that matter for backward."""
    for model in models:
        for module in model.modules():
            if isinstance(module, torch.nn.parallel.DistributedDataParallel):
                options = [name for name in ("find_unused_parameters", "static_graph") if getattr(module, name, False)]
                said = ", ".join(f"{name}=True" for name in options)
                yield f"DistributedDataParallel({said})" if said else "DistributedDataParallel"
            elif any(kind.__name__ == "FSDPModule" for kind in type(module).__mro__):
                yield "FSDP2"


def _stage(live: LiveOutputs) -> int | None:
    """The stage of a pipeline that called backward, or that a variable holds."""
    microbatch = microbatch_of(live.frame)
    if microbatch is not None:
        return microbatch.stage
    for namespace in live.variables:
        for value in list(namespace.values()):
            bases = {base.__name__ for base in type(value).__mro__ if base.__module__.startswith("torch.distributed.")}
            number = getattr(value, "stage_index", None) if "_PipelineStageBase" in bases else None
            if isinstance(number, int):
                return number
    return None
