"""How large gradients are: one of them, and gradient flow, which is those along all
edges in the order of backward.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from gradviz.errors import GradientError, reason_of
from gradviz.gradients.live import (
    LiveGraph,
    called_note,
    compiled_functions,
    custom_functions,
    leaf_name,
    once,
    recomputes,
    stopped_note,
)
from gradviz.gradients.numbers import KEPT, computed, numbers
from gradviz.gradients.replay import behind, replay
from gradviz.gradients.values import why_unreadable
from gradviz.graph import BackwardStep, Edge, Graph, Leaf
from gradviz.report.results import displayed
from gradviz.stages import Stage
from gradviz.wording import few, plural


class GradientSize(NamedTuple):
    """The size of one gradient. `max` is the largest absolute value, `zeros` the share
    of zeros (0 to 1), `nonfinite` the number of NaN and infinite entries. `norm` and
    `max` are NaN or infinite when entries are.
    """

    norm: float
    max: float
    zeros: float
    nonfinite: int


_REAL, _COMPLEX = (torch.float32, torch.float64), (torch.complex64, torch.complex128)
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


def size(gradient: torch.Tensor) -> GradientSize:
    """The size of a gradient, computed in float64. Entries that a sparse gradient
    leaves out count as zeros.

    Raises GradientError for a tensor without numbers, and for one of a class that lacks
    an operation.

    >>> size(torch.tensor([3.0, 4.0, 0.0, 0.0]))
    GradientSize(norm=5.0, max=4.0, zeros=0.5, nonfinite=0)
    """
    reason = why_unreadable(gradient)
    if reason:
        raise GradientError(f"a gradient cannot be measured: it {reason}")
    try:
        return _size(gradient)
    except Exception as error:
        kind = type(gradient).__name__
        raise GradientError(
            f"a gradient cannot be measured: it is a {kind}, and {reason_of(error)}"
        ) from error


def _size(gradient: torch.Tensor) -> GradientSize:
    with torch.no_grad():
        entries = _entries(gradient.detach())
        count = (entries if gradient.is_nested else gradient).numel()
        if not entries.numel():
            return GradientSize(0.0, 0.0, 1.0 if count else 0.0, 0)
        single, double = _COMPLEX if entries.dtype.is_complex else _REAL
        # exact, and has the operations that small types lack
        if entries.dtype not in (single, double):
            entries = entries.to(single)
        norm = float(torch.linalg.vector_norm(entries, dtype=double))
        largest = float(torch.linalg.vector_norm(entries, math.inf, dtype=double))
        zeros = 1 - int(torch.count_nonzero(entries)) / count
        if math.isfinite(norm):
            nonfinite = 0
        else:
            nonfinite = entries.numel() - int(torch.isfinite(entries).sum())

    return GradientSize(norm, largest, max(zeros, 0.0), nonfinite)


def _entries(gradient: torch.Tensor) -> torch.Tensor:
    """A dense tensor of what the gradient stores."""
    if gradient.layout == torch.sparse_coo:
        gradient = gradient.coalesce()
    elif gradient.layout not in _COMPRESSED and not gradient.is_nested:
        return gradient.to_dense() if gradient.is_mkldnn else gradient
    return gradient.values()


# -- along all edges -------------------------------------------------------------------


class EdgeFlow(NamedTuple):
    """The gradient along one edge, from consumer to producer. `size` is None where the
    consumer gave none.
    """

    edge: Edge
    size: GradientSize | None


class LeafFlow(NamedTuple):
    """The gradient that a leaf would get. `node` is its AccumulateGrad; the numbers are
    those of `GradientSize`.
    """

    names: tuple[str, ...]
    node: int
    norm: float
    max: float
    zeros: float
    nonfinite: int


@displayed("gradviz.gradients.table.flow_table")
class GradientFlow(NamedTuple):
    """Gradients of a whole graph.

    `graph` has the order and the norms in its `backward`. `edges` are the graph's, in
    its order. `leaves` come in execution order; those that no gradient reaches are left
    out and named in `notes`. `order` is the backward functions by id in execution
    order, AccumulateGrad included. `incoming` is the size of the gradient that came
    into each function, the largest one when it has several outputs; functions that no
    gradient reached are left out. `stopped` is the custom Functions and compiled
    functions that were not called, and `unmeasured` every function behind one, leaves
    included: what reaches those is not known.
    """

    graph: Graph
    edges: tuple[EdgeFlow, ...]
    leaves: tuple[LeafFlow, ...]
    order: tuple[int, ...]
    incoming: Mapping[int, GradientSize]
    notes: tuple[str, ...]
    stopped: tuple[int, ...] = ()
    unmeasured: frozenset[int] = frozenset()

    def with_names(self, names: Sequence[str]) -> GradientFlow:
        """The same with these names for the outputs, where there are any."""
        return self._replace(graph=self.graph.with_root_names(names))

    def __repr__(self) -> str:
        return f"<GradientFlow: {plural(len(self.edges), 'edge')}, {plural(len(self.leaves), 'leaf', 'leaves')}>"


def measure(
    live: LiveGraph, *, run_custom: bool = False, values: bool = False
) -> GradientFlow:
    """Run backward without the engine and measure every gradient on the way: see
    `gradviz.flow`. `values`: keep small ones.

    Those that were noted while the script ran tell what ops computed that nobody saved.
    """
    graph, custom = live.graph, custom_functions(live.graph)
    stops = (*compiled_functions(graph), *(() if run_custom else custom))
    order: list[int] = []
    incoming: dict[int, GradientSize] = {}
    along: dict[Edge, GradientSize] = {}
    small: dict[int, dict[str, Any]] = {}
    # those that are handed on unchanged are measured once
    sizes: MutableMapping[torch.Tensor, GradientSize] = WeakIdKeyDictionary()

    def size_of(gradient: torch.Tensor) -> GradientSize:
        measured = sizes.get(gradient)
        if measured is None:
            measured = sizes[gradient] = size(gradient)
        return measured

    def run() -> None:
        """Measure steps as they come, so that no gradient is kept."""
        with Stage("compute", "gradients", order.__len__):
            for step in replay(live, stops=stops):
                order.append(step.node)
                arrived = [
                    size_of(gradient)
                    for gradient in step.incoming
                    if gradient is not None
                ]
                if arrived:
                    incoming[step.node] = max(
                        arrived, key=lambda size: (size.nonfinite > 0, size.norm)
                    )

                # of few functions only: for graphs that a reader follows number by number
                if values and len(small) < KEPT:
                    sent = tuple(numbers(gradient) for gradient in step.outgoing)
                    small[step.node] = {
                        "arrived": numbers(next(iter(step.incoming), None)),
                        "sent": sent,
                    }

                # of a step that sent nothing there is nothing to measure
                for edge in graph.inputs(step.node) if step.outgoing else ():
                    leaving = step.outgoing[edge.position]
                    if leaving is not None:
                        along[edge] = size_of(leaving)

    # what a checkpoint recomputes may draw random numbers
    with torch.random.fork_rng(devices=devices_of(graph)):
        once(graph, run)
    # through a function that was not called nobody knows what arrives
    unmeasured = frozenset(behind(graph, stops))
    stopped = tuple(stop for stop in stops if stop not in unmeasured)
    missed = [
        leaf
        for leaf in graph.leaves
        if leaf.node not in unmeasured and leaf.node not in incoming
    ]
    cut = []
    if len(small) == KEPT:
        cut.append(f"numbers are kept of the first {KEPT:,} functions of backward")

    notes = (
        *live.notes,
        *(called_note(graph, custom) if run_custom else ()),
        *stopped_note(graph, stopped, unmeasured),
        *_notes(graph, unmeasured.union(stops), missed),
        *cut,
        *graph.notes,
    )
    computed_values = computed(live) if values else {}
    for node in small.keys() & computed_values.keys():
        small[node]["value"] = computed_values[node]
    steps = _backward(order, incoming, unmeasured)
    graph = replace(
        graph,
        backward=tuple(step._replace(**small.get(step.node, {})) for step in steps),
    )
    edges = tuple(EdgeFlow(edge, along.get(edge)) for edge in graph.edges)
    reached = [
        graph.leaf_of[node]
        for node in order
        if node in graph.leaf_of and node in incoming
    ]
    leaves = tuple(
        LeafFlow(leaf.names, leaf.node, *incoming[leaf.node]) for leaf in reached
    )
    return GradientFlow(
        graph, edges, leaves, tuple(order), incoming, notes, stopped, unmeasured
    )


def _backward(
    order: Sequence[int],
    incoming: Mapping[int, GradientSize],
    unmeasured: Collection[int],
) -> Iterator[BackwardStep]:
    for node in order:
        size = incoming.get(node)
        norm = None if size is None else math.inf if size.nonfinite else size.norm
        yield BackwardStep(node, norm, node not in unmeasured)


def devices_of(graph: Graph) -> list[int]:
    """CUDA devices in the graph."""
    infos = (info for node in graph.nodes for info in node.outputs if info is not None)
    names = sorted({info.device for info in infos if info.device.startswith("cuda")})
    return [torch.device(name).index or 0 for name in names]


# -- notes -----------------------------------------------------------------------------


def _notes(
    graph: Graph, silent: Collection[int], missed: Sequence[Leaf]
) -> Iterator[str]:
    called = (
        node for node in graph.nodes if "packed" in node.flags and node.id not in silent
    )
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
