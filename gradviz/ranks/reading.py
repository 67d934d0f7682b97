"""What a process says of itself beside the graph that it read: which rank it is, and
which parameters its models hold. Reads live objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from gradviz.graph import Graph, Process
from gradviz.rank import Rank
from gradviz.run.outputs import LiveOutputs
from gradviz.walker.isolation import isolated
from gradviz.walker.names import outermost_modules, registered


def with_process(graph: Graph, live: LiveOutputs, place: Rank) -> Graph:
    """The graph with the process that this is, one of several."""
    with isolated():
        models = outermost_modules(None, live.variables)
        parameters = {
            name: None
            for prefix, model in models
            for name, _, kind in registered(prefix, model)
            if kind == "parameter"
        }
        process = Process(
            place.number,
            place.world,
            tuple(parameters),
            ", ".join(dict.fromkeys(_wrappers(models))),
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
