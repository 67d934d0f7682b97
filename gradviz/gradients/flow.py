"""How large gradients are: one of them, and gradient flow, which is those along all
edges in the order of backward.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import (
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from gradviz.errors import GradientError, reason_of
from gradviz.gradients.expressions import title
from gradviz.gradients.live import (
    LiveGraph,
    called_note,
    compiled_functions,
    custom_functions,
    once,
    recomputes,
    stopped_note,
)
from gradviz.gradients.numbers import Result, computed, numbers
from gradviz.gradients.replay import Step, behind, replay
from gradviz.gradients.values import why_unreadable
from gradviz.graph import BackwardStep, Edge, Graph
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


@displayed("gradviz.gradients.table:flow_table", top=None)
@dataclass(frozen=True)
class GradientFlow:
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

    def __repr__(self) -> str:
        return f"<GradientFlow: {plural(len(self.edges), 'edge')}, {plural(len(self.leaves), 'leaf', 'leaves')}>"


def measure(
    live: LiveGraph, *, run_custom: bool = False, values: bool = False
) -> GradientFlow:
    """Run backward without the engine and measure every gradient on the way: see
    `gradviz.flow`. `values`: keep small ones.
    """
    graph, custom = live.graph, custom_functions(live.graph)
    stops = (*compiled_functions(graph), *(() if run_custom else custom))
    # through a function that was not called nobody knows what arrives
    unmeasured = frozenset(behind(graph, stops))
    stopped = tuple(stop for stop in stops if stop not in unmeasured)
    flow = _Measured(live, values)

    def run() -> None:
        with Stage("compute", "gradients", flow.backward.__len__):
            for step in replay(live, stops=stops):
                flow.add(step, step.node not in unmeasured)

    # what a checkpoint recomputes may draw random numbers
    with torch.random.fork_rng(devices=devices_of(graph)):
        once(graph, run)

    notes = (
        *live.notes,
        *(called_note(graph, custom) if run_custom else ()),
        *stopped_note(graph, stopped, unmeasured),
        *_notes(graph, unmeasured.union(stops), flow.incoming),
        *graph.notes,
    )
    return GradientFlow(
        replace(graph, backward=tuple(flow.backward)),
        tuple(EdgeFlow(edge, flow.along.get(edge)) for edge in graph.edges),
        tuple(
            LeafFlow(graph.leaf_of[node].names, node, *size)
            for node, size in flow.incoming.items()
            if node in graph.leaf_of
        ),
        tuple(step.node for step in flow.backward),
        flow.incoming,
        notes,
        stopped,
        unmeasured,
    )


class _Measured:
    """Measures each step of backward as it comes, so that no gradient is kept; with
    `values`, small ones are.
    """

    def __init__(self, live: LiveGraph, values: bool) -> None:
        self._graph = live.graph
        self._results = computed(live) if values else None
        self.backward: list[BackwardStep] = []
        self.incoming: dict[int, GradientSize] = {}
        self.along: dict[Edge, GradientSize] = {}
        # those that are handed on unchanged are measured once
        self._sizes: MutableMapping[torch.Tensor, GradientSize] = WeakIdKeyDictionary()

    def add(self, step: Step, is_known: bool) -> None:
        """Measure a step; whether all that arrives at it `is_known`."""
        node, outgoing = step.node, step.outgoing
        arrived = largest(self._size(g) for g in step.incoming if g is not None)
        norm = None
        if arrived is not None:
            self.incoming[node] = arrived
            norm = math.inf if arrived.nonfinite else arrived.norm

        # of a step that sent nothing there is nothing to measure
        for edge in self._graph.inputs(node) if outgoing else ():
            leaving = outgoing[edge.position]
            if leaving is not None:
                self.along[edge] = self._size(leaving)

        found = BackwardStep(node, norm, is_known)
        if self._results is not None:
            first, sent = next(iter(step.incoming), None), tuple(map(numbers, outgoing))
            small = self._results.get(node, Result())._asdict()
            found = found._replace(arrived=numbers(first), sent=sent, **small)
        self.backward.append(found)

    def _size(self, gradient: torch.Tensor) -> GradientSize:
        measured = self._sizes.get(gradient)
        if measured is None:
            measured = self._sizes[gradient] = size(gradient)
        return measured


def largest(sizes: Iterable[GradientSize]) -> GradientSize | None:
    """The largest of these gradients; None of none."""
    # a NaN compares with no norm, so what is not finite decides first
    return max(sizes, key=lambda size: (size.nonfinite > 0, size.norm), default=None)


def devices_of(graph: Graph) -> list[int]:
    """CUDA devices in the graph."""
    infos = (info for node in graph.nodes for info in node.outputs if info is not None)
    names = sorted({info.device for info in infos if info.device.startswith("cuda")})
    return [torch.device(name).index or 0 for name in names]


# -- notes -----------------------------------------------------------------------------


def _notes(
    graph: Graph, silent: Collection[int], reached: Container[int]
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

    missed = [
        title(graph, leaf.node)
        for leaf in graph.leaves
        if leaf.node not in silent and leaf.node not in reached
    ]
    if missed:
        yield f"no gradient reaches {few(missed)}"
