"""Gradient flow: how large a gradient runs along every edge of a graph, in the order in which backward would run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from gradviz.analysis.gradients.live import open_graph
from gradviz.analysis.gradients.replay import replay
from gradviz.capture.naming import Namespace
from gradviz.graph import Edge, Graph


class Flow(NamedTuple):
    """The size of one gradient. `zeros` is the share of zeros, `nonfinite` the number of NaN and Inf elements."""

    norm: float
    max: float
    zeros: float
    nonfinite: int


class EdgeFlow(NamedTuple):
    """The gradient along one edge; `flow` is None where the consumer gave none."""

    edge: Edge
    flow: Flow | None


class LeafFlow(NamedTuple):
    """The gradient that a leaf would get, of which the first fields repeat the numbers of `Flow`."""

    names: tuple[str, ...]
    node: int
    norm: float
    max: float
    zeros: float
    nonfinite: int


class GradientFlow(NamedTuple):
    """Gradients of a whole graph. `order` is the backward functions by id in execution order."""

    graph: Graph
    edges: tuple[EdgeFlow, ...]
    leaves: tuple[LeafFlow, ...]
    order: tuple[int, ...]
    incoming: Mapping[int, Flow]  # largest incoming gradient by node, nodes that none reached left out
    notes: tuple[str, ...]


def measure(
    outputs: object,
    gradient: Any = None,
    *,
    model: torch.nn.Module | None = None,
    variables: Sequence[Namespace] = (),
    title: str = "",
) -> GradientFlow:
    """Run backward without the engine and measure every gradient on the way.

    `gradient` starts at each output; without it ones. Writes no `.grad`, frees nothing, runs no hook on a gradient.
    Raises NoGraphError, NotATensorError, and GradientError for a graph that backward could not run through either.
    """
    live, starts = open_graph(outputs, gradient, model=model, variables=variables, title=title)
    edges: dict[Edge, Flow | None] = {}
    leaves: list[LeafFlow] = []
    incoming: dict[int, Flow] = {}
    order = []
    for step in replay(live, starts):
        order.append(step.node)
        arrived = [size(one) for one in step.incoming if one is not None]
        if arrived:
            incoming[step.node] = max(arrived, key=lambda flow: (flow.nonfinite > 0, flow.norm))
        for edge in live.graph.inputs(step.node):
            leaving = step.outgoing[edge.position] if step.outgoing else None
            edges[edge] = None if leaving is None else size(leaving)
        leaf = live.graph.leaf_of.get(step.node)
        if leaf is not None and arrived:
            leaves.append(LeafFlow(leaf.names, step.node, *arrived[0]))
    measured = tuple(EdgeFlow(edge, edges.get(edge)) for edge in live.graph.edges)
    return GradientFlow(live.graph, measured, tuple(leaves), tuple(order), incoming, tuple(_notes(live.graph)))


def _notes(graph: Graph) -> list[str]:
    hooked = sum(leaf.hooks > 0 for leaf in graph.leaves)
    return ["hooks on tensors did not run: a hook that changes gradients is not in these numbers"] if hooked else []


def size(gradient: torch.Tensor) -> Flow:
    """Norm, largest absolute value, share of zeros and number of non-finite elements of a gradient."""
    with torch.no_grad():
        dense = gradient.coalesce()._values() if gradient.is_sparse else gradient
        count = gradient.numel()
        if not count or not dense.numel():
            return Flow(0.0, 0.0, 1.0 if count else 0.0, 0)
        magnitude = dense.detach().abs().to(torch.float64)
        nonzero = int(torch.count_nonzero(magnitude))
        finite = int(torch.isfinite(magnitude).sum())
        norm, largest = float(torch.linalg.vector_norm(magnitude)), float(magnitude.max())
    return Flow(norm, largest, 1 - nonzero / count, dense.numel() - finite)
