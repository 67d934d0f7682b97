"""Gradient flow: how large a gradient runs along every edge of a graph, in the order in which backward would run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from gradviz.gradients.calling import custom_functions, once, recomputes
from gradviz.gradients.live import called_note, inside_note, leaf_name, stopped_note
from gradviz.gradients.replay import LiveGraph, Step, behind, replay
from gradviz.gradients.size import Size, Sizes
from gradviz.graph import BackwardStep, Edge, Graph, Leaf
from gradviz.report.results import displayed
from gradviz.stages import Stage
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


def measure(live: LiveGraph, *, run_custom: bool = False) -> GradientFlow:
    """Run backward without the engine and measure every gradient on the way: see `gradviz.flow`."""
    custom = custom_functions(live.graph)
    meter = _Meter(live, (*live.closed, *(() if run_custom else custom)))
    with torch.random.fork_rng(devices=_devices(live.graph)):  # what a checkpoint recomputes may draw random numbers
        once(live.graph, meter.run)
    called = called_note(live.graph, custom) if run_custom else ()
    return meter.result((*live.notes, *called))


def _devices(graph: Graph) -> list[int]:
    """CUDA devices in the graph."""
    infos = (info for node in graph.nodes for info in node.outputs if info is not None)
    names = sorted({info.device for info in infos if info.device.startswith("cuda")})
    return [torch.device(name).index or 0 for name in names]


class _Meter:
    """Measures steps as they come, so that no gradient is kept."""

    def __init__(self, live: LiveGraph, stops: tuple[int, ...]) -> None:
        self._live, self._graph, self._stops = live, live.graph, stops
        self._unmeasured = frozenset(behind(live.graph, stops))
        self._sizes = Sizes()
        self._edges: dict[Edge, Size | None] = {}
        self._leaves: list[LeafFlow] = []
        self._order: list[int] = []
        self._incoming: dict[int, Size] = {}

    def run(self) -> None:
        with Stage("compute", "gradients", self._order.__len__):
            for step in replay(self._live, stops=self._stops):
                self._take(step)

    def _take(self, step: Step) -> None:
        self._order.append(step.node)
        arrived = [self._sizes.of(gradient) for gradient in step.incoming if gradient is not None]
        if arrived:
            self._incoming[step.node] = max(arrived, key=lambda size: (size.nonfinite > 0, size.norm))
        for edge in self._graph.inputs(step.node):
            leaving = step.outgoing[edge.position] if step.outgoing else None
            self._edges[edge] = None if leaving is None else self._sizes.of(leaving)
        leaf = self._graph.leaf_of.get(step.node)
        if leaf is not None and arrived:
            self._leaves.append(LeafFlow(leaf.names, step.node, *arrived[0]))

    def result(self, notes: Sequence[str]) -> GradientFlow:
        closed, graph = self._live.closed, replace(self._graph, backward=tuple(self._backward()))
        edges = tuple(EdgeFlow(edge, self._edges.get(edge)) for edge in graph.edges)
        stopped = tuple(stop for stop in self._stops if stop not in self._unmeasured)
        known = self._unmeasured.union(self._incoming)
        missed = [leaf for leaf in graph.leaves if leaf.node not in known]
        notes = (
            *notes,
            *stopped_note(graph, stopped, self._unmeasured, closed),
            *inside_note(self._live, self._unmeasured),
            *_notes(graph, self._unmeasured.union(self._stops), missed),
            *graph.notes,
        )
        order, leaves = tuple(self._order), tuple(self._leaves)
        return GradientFlow(graph, edges, leaves, order, self._incoming, notes, stopped, self._unmeasured, closed)

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
