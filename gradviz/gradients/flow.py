"""Gradient flow: how large a gradient runs along every edge of a graph, in the order in which backward would run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from gradviz.gradients.live import (
    Opened,
    called_note,
    inside_note,
    leaf_name,
    open_graph,
    stopped_note,
)
from gradviz.gradients.recomputation import once, recomputes
from gradviz.gradients.refusal import custom_functions
from gradviz.gradients.replay import Step, behind, replay
from gradviz.gradients.size import Size, Sizes
from gradviz.graph import (
    BackwardStep,
    Edge,
    Graph,
    Leaf,
)
from gradviz.report.results import displayed
from gradviz.stages import Stage
from gradviz.variables.scanner import Namespace
from gradviz.walker.attribution import Attribution
from gradviz.wording import few, plural


class EdgeFlow(NamedTuple):
    """The gradient along one edge, from consumer to producer. `size` is None where the consumer gave none."""

    edge: Edge
    size: Size | None


class LeafFlow(NamedTuple):
    """The gradient that a leaf would get. `node` is its AccumulateGrad; the numbers are those of `Size`."""

    names: tuple[str, ...]
    node: int
    norm: float
    max: float
    zeros: float
    nonfinite: int


@displayed("gradviz.gradients.table.flow_table")
class GradientFlow(NamedTuple):
    """Gradients of a whole graph.

    `graph` has the order and the norms in its `backward`. `edges` are the graph's, in its order. `leaves` come in execution
    order; those that no gradient reaches are left out and named in `notes`. `order` is the backward functions by id in
    execution order, AccumulateGrad included. `incoming` is the size of the gradient that came into each function, the
    largest one when it has several outputs; functions that no gradient reached are left out. `stopped` is the custom
    Functions and compiled functions that were not called, and `unmeasured` every function behind one, leaves included: what
    reaches those is not known. `closed` says why compiled functions were not run, by node id.
    """

    graph: Graph
    edges: tuple[EdgeFlow, ...]
    leaves: tuple[LeafFlow, ...]
    order: tuple[int, ...]
    incoming: Mapping[int, Size]
    notes: tuple[str, ...]
    stopped: tuple[int, ...] = ()
    unmeasured: frozenset[int] = frozenset()
    closed: Mapping[int, str] = {}

    def with_names(self, names: Sequence[str]) -> GradientFlow:
        """The same with these names for the outputs, where there are any."""
        return self._replace(graph=self.graph.with_root_names(names))

    def __repr__(self) -> str:
        return f"<GradientFlow: {plural(len(self.edges), 'edge')}, {plural(len(self.leaves), 'leaf', 'leaves')}>"


def measure(
    outputs: object,
    gradient: Any = None,
    *,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    variables: Sequence[Namespace] = (),
    title: str = "",
    attribution: Attribution | None = None,
    run_custom: bool = False,
) -> GradientFlow:
    """Run backward without the engine and measure every gradient on the way: see `gradviz.flow`."""
    opened = open_graph(
        outputs, gradient, model=model, params=params, variables=variables, title=title, attribution=attribution
    )
    custom = custom_functions(opened.live.graph)
    meter = _Meter(opened.live.graph, (*opened.closed, *(() if run_custom else custom)))
    with torch.random.fork_rng(devices=_devices(opened)):  # what a checkpoint recomputes may draw random numbers
        once(opened.live.graph, lambda: meter.run(opened))
    called = called_note(opened.live.graph, custom) if run_custom else ()
    return meter.result((*opened.notes, *called), opened)


def _devices(opened: Opened) -> list[int]:
    """CUDA devices in the graph."""
    infos = (info for node in opened.live.graph.nodes for info in node.outputs if info is not None)
    names = sorted({info.device for info in infos if info.device.startswith("cuda")})
    return [torch.device(name).index or 0 for name in names]


class _Meter:
    """Measures steps as they come, so that no gradient is kept."""

    def __init__(self, graph: Graph, stops: tuple[int, ...]) -> None:
        self._graph = graph
        self._stops = stops
        self._unmeasured = frozenset(behind(graph, stops))
        self._sizes = Sizes()
        self._edges: dict[Edge, Size | None] = {}
        self._leaves: list[LeafFlow] = []
        self._order: list[int] = []
        self._incoming: dict[int, Size] = {}

    def run(self, opened: Opened) -> None:
        with Stage("compute", "gradients", self._order.__len__):
            for step in replay(opened.live, opened.starts, stops=self._stops):
                self._take(step)

    def _take(self, step: Step) -> None:
        self._order.append(step.node)
        arrived = [self._sizes.of(one) for one in step.incoming if one is not None]
        if arrived:
            self._incoming[step.node] = max(arrived, key=lambda size: (size.nonfinite > 0, size.norm))
        for edge in self._graph.inputs(step.node):
            leaving = step.outgoing[edge.position] if step.outgoing else None
            self._edges[edge] = None if leaving is None else self._sizes.of(leaving)
        leaf = self._graph.leaf_of.get(step.node)
        if leaf is not None and arrived:
            self._leaves.append(LeafFlow(leaf.names, step.node, *arrived[0]))

    def result(self, notes: Sequence[str], opened: Opened) -> GradientFlow:
        graph = replace(self._graph, backward=tuple(self._backward()))
        edges = tuple(EdgeFlow(edge, self._edges.get(edge)) for edge in graph.edges)
        stopped = tuple(stop for stop in self._stops if stop not in self._unmeasured)
        missed = [
            leaf for leaf in graph.leaves if leaf.node not in self._incoming and leaf.node not in self._unmeasured
        ]
        every = (
            *notes,
            *stopped_note(graph, stopped, self._unmeasured, opened.closed),
            *inside_note(opened.live, self._unmeasured),
            *_notes(graph, self._silent, missed),
            *graph.notes,
        )
        order, leaves = tuple(self._order), tuple(self._leaves)
        return GradientFlow(
            graph, edges, leaves, order, self._incoming, every, stopped, self._unmeasured, opened.closed
        )

    @property
    def _silent(self) -> frozenset[int]:
        return self._unmeasured.union(self._stops)

    def _backward(self) -> Iterator[BackwardStep]:
        for node in self._order:
            size = self._incoming.get(node)
            norm = None if size is None else math.inf if size.nonfinite else size.norm
            yield BackwardStep(node, norm, node not in self._unmeasured)


# -- notes -------------------------------------------------------------------------------------------------------------


def _notes(graph: Graph, silent: Collection[int], missed: Sequence[Leaf]) -> Iterator[str]:
    called = (node for node in graph.nodes if "packed" in node.flags and node.id not in silent)
    packed = Counter("checkpoint" if recomputes(node) else "hook" for node in called)
    if packed["hook"]:
        yield f"unpack hooks of {packed['hook']} backward functions ran, as they do in backward"
    if packed["checkpoint"]:
        yield (
            "checkpointed parts were computed once more, as in backward; what their forward changes, "
            "such as running statistics of batch norm, was changed once more"
        )
    if missed:
        yield f"no gradient reaches {few([leaf_name(leaf) for leaf in missed])}"
