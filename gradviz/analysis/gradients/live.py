"""Opens a graph for gradients: its model and its live nodes, with the same ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gradviz.analysis.gradients.replay import Live, seed
from gradviz.capture.naming import Namespace
from gradviz.capture.outputs import flatten
from gradviz.capture.walker import capture, live_nodes


class Opened(NamedTuple):
    """A live graph and where gradients start in it: node, output and gradient of each root that has a graph."""

    live: Live
    starts: tuple[tuple[int, int, torch.Tensor], ...]


def open_graph(
    outputs: object,
    gradient: Any = None,
    *,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    variables: Sequence[Namespace] = (),
    title: str = "",
) -> Opened:
    """Walk `outputs` and keep the nodes alive. `gradient` is for each output; without it, ones.

    Raises what `capture` raises.
    """
    graph = capture(outputs, model=model, params=params, variables=variables, title=title, saved=False)
    tensors = [tensor for _, tensor in flatten(outputs)]
    starts = tuple(
        (root.node, root.output, seed(tensor.detach(), gradient))
        for root, tensor in zip(graph.roots, tensors)
        if root.node is not None and root.node not in graph.leaf_of
    )
    return Opened(Live(graph, live_nodes(tensors)), starts)
