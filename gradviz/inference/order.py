"""A graph's operations in the order they ran, how values pass between places of that
order, and calls as intervals of it.

Sequence numbers put operations in the order they ran. Positions are places in that
order. A call is found from the operations that work with parameters: which of them
belong to one call, and which call to which.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import Registered
from gradviz.graph.walks import makers
from gradviz.inference.layers import MASKED, stem_of


class ForwardOrder:
    """Positions 0, 1, ... of all nodes but leaves."""

    def __init__(self, graph: Graph) -> None:
        self.inputs = [makers(graph, node) for node in range(len(graph.nodes))]
        """By node id, of leaves too, the nodes that it takes its inputs from."""
        sequences = column(graph.nodes, "sequence")
        self.nodes = [
            node for node in forward_order(graph) if sequences[node] is not None
        ]
        """Node id by position."""
        self.position = {node: i for i, node in enumerate(self.nodes)}
        names = column(graph.nodes, "op")
        self.stems = [stem_of(names[node]) for node in self.nodes]
        """Names of the operations without "Backward0"."""
        self.kinds = [
            _kind(graph, stem, node, self.inputs[node], names)
            for stem, node in zip(self.stems, self.nodes)
        ]
        """The same, where multiplication by a tensor without gradient has a name of its
        own.
        """
        outputs = column(graph.nodes, "outputs")
        self.shapes = [
            outputs[node][0].shape if outputs[node] and outputs[node][0] else None
            for node in self.nodes
        ]
        """Shape of the first output, where known."""
        position = self.position
        self.producers = []
        for node in self.nodes:
            ops = [
                position[source] for source in self.inputs[node] if source in position
            ]
            self.producers.append(ops)

    def __len__(self) -> int:
        return len(self.nodes)


def _kind(
    graph: Graph, stem: str, node: int, inputs: Sequence[int], names: Sequence[str]
) -> str:
    if stem != "Mul" or not _is_masked(graph, node):
        return stem
    # noise on the weights of `scaled_dot_product_attention` is no module's
    is_own = any(names[source].startswith("SafeSoftmax") for source in inputs)
    return stem if is_own else MASKED


def _is_masked(graph: Graph, node: int) -> bool:
    record = graph.nodes[node]
    if len(graph.inputs(node)) != 1 or not record.none_inputs:
        return False
    return any(
        slot.kind not in ("number", "parameter") and slot.tensor and slot.tensor.shape
        for slot in record.saved
    )


# -- calls -----------------------------------------------------------------------------

_RECURRENT = ("LSTM", "GRU", "RNN")
"""Modules that use each parameter many times in one call."""


@dataclass(slots=True, eq=False)
class InferredCall:
    """One call of a module, from position `start` to `end`, both inside."""

    module: int
    start: int
    end: int
    inner: list[InferredCall]
    parent: InferredCall | None = None

    def __post_init__(self) -> None:
        for call in self.inner:
            call.parent = self


class _Item(NamedTuple):
    """Part of a call: an inner call, or an operation with a parameter of the module
    itself.
    """

    start: int
    end: int
    key: Hashable
    call: InferredCall | None


def find_calls(
    modules: Sequence[Registered],
    order: ForwardOrder,
    anchored: Mapping[int, int],
    uses: Sequence[Hashable],
) -> list[InferredCall]:
    """All calls, inner ones before those around them. `anchored` is the module by
    position, sorted by position.

    By node, `uses` tells operations of a module apart.
    """
    # what each module consists of; grows by the calls of inner modules
    items: dict[int, list[_Item]] = {}
    for position, module in anchored.items():
        key = order.stems[position], uses[order.nodes[position]]
        items.setdefault(module, []).append(_Item(position, position, key, None))

    positions = list(anchored)
    calls_of_all: list[InferredCall] = []
    for module in range(len(modules) - 1, -1, -1):
        calls = []
        for run in _runs(
            sorted(items.pop(module, []), key=lambda item: item.start), positions
        ):
            for part in _turns(modules[module], run):
                inner = [item.call for item in part if item.call is not None]
                calls.append(InferredCall(module, part[0].start, part[-1].end, inner))
        calls_of_all.extend(calls)
        parent = modules[module].parent
        if parent is not None:
            items.setdefault(parent, []).extend(
                _Item(call.start, call.end, module, call) for call in calls
            )

    return calls_of_all


def _runs(items: Sequence[_Item], positions: Sequence[int]) -> list[list[_Item]]:
    """Items between which nothing of other modules ran."""
    runs: list[list[_Item]] = []
    for item in items:
        if (
            not runs
            or bisect_left(positions, item.start)
            > bisect_left(positions, runs[-1][-1].end) + 1
        ):
            runs.append([])
        runs[-1].append(item)
    return runs


def _turns(module: Registered, run: list[_Item]) -> list[list[_Item]]:
    """A run cut into calls: where it begins anew, and every turn consists of the same
    things. A module of one's own that calls only one other has a loop of it.
    """
    keys = [item.key for item in run]
    starts = [i for i, key in enumerate(keys) if key == keys[0]]
    if module.base in _RECURRENT:
        return [run]

    if len(starts) < len(run):
        starts = [i for i in starts if i == 0 or keys[i - 1] != keys[0]]

    bounds = [*pairwise([*starts, len(run)])]
    turns = [run[start:end] for start, end in bounds]
    kinds = {frozenset(keys[start:end]) for start, end in bounds}
    loop = len({*keys}) == 1 and not module.base and turns[0][0].call is not None

    return [run] if loop or len(kinds) > 1 else turns
