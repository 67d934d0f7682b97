"""A graph's operations in the order they ran, how values pass between places of that
order, and calls as intervals of it.

Sequence numbers put operations in the order they ran. Positions are places in that
order. A call is found from the operations that work with parameters: which of them
belong to one call, and which call to which.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import Registered
from gradviz.inference.layers import MASKED, VIEWS, stem_of

_GATHER = frozenset(("Cat", "Stack"))


def inputs_of(graph: Graph) -> list[Sequence[int]]:
    """By node the ids of the nodes that it takes its inputs from. Makes no edge record,
    of which large graphs keep none.
    """
    producers = column(graph.edges, "producer")
    places = map(graph.input_places, range(len(graph.nodes)))
    return [producers[place.start : place.stop] for place in places]


class ForwardOrder:
    """Positions 0, 1, ... of all nodes but leaves. `parameters` are the leaves that a
    module owns.
    """

    def __init__(
        self, graph: Graph, parameters: Iterable[int], inputs: Sequence[Sequence[int]]
    ) -> None:
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
            _kind(graph, stem, node, inputs[node], names)
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
        sources = self.position.keys() | set(parameters)
        self._is_first = [sources.isdisjoint(inputs[node]) for node in self.nodes]
        position = self.position
        self.producers = []
        for node in self.nodes:
            ops = [position[source] for source in inputs[node] if source in position]
            self.producers.append(ops)
        held = [
            self.position[root.node]
            for root in graph.roots
            if root.node in self.position
        ]
        self.last_use = list(range(len(self.nodes)))
        """By position the last one that uses it; beyond the end for what the caller
        holds.
        """
        for i, producers in enumerate([*self.producers, held]):
            for producer in producers:
                self.last_use[producer] = i

    @cached_property
    def _uses(self) -> list[list[int]]:
        """By position those that use it, first ones first."""
        uses: list[list[int]] = [[] for _ in self.nodes]
        for i, producers in enumerate(self.producers):
            for producer in producers:
                uses[producer].append(i)
        return uses

    def __len__(self) -> int:
        return len(self.nodes)

    def costs(self, call: InferredCall, gap: range, outer_end: int) -> list[int]:
        """How many values go into and out of a call, and when it has 1, 2, ... positions
        of a gap beside it, too.

        What is used beyond `outer_end`, the end of the call around it, goes out in any
        case. It counts on its own, so that a second result, such as the logits of a
        router for a loss at the end, does not hide where the first one goes.
        """
        start = end = call.start
        costs, outside, alive = list[int](), set[int](), 0
        last_uses = Counter[int]()
        for i in (*range(call.start, call.end + 1), *gap):
            start, end = min(start, i), max(end, i)
            # what came from outside is made inside now
            outside.discard(i)
            self._note_inputs(outside, i, start)
            # from now on they are used inside only
            alive -= last_uses[i]
            last = self.last_use[i]
            if last > outer_end and call.start <= i <= call.end:
                alive += 1
                # where it goes within the call around it still counts
                last = self._last_use_until(i, outer_end)
            if last > end:
                alive += 1
                last_uses[last] += 1
            if not call.start <= i < call.end:
                costs.append(alive + len(outside))
        return costs

    def _last_use_until(self, i: int, position: int) -> int:
        """The last use of a value up to a position, or its own position."""
        before = bisect_right(self._uses[i], position)
        return self._uses[i][before - 1] if before else i

    def _note_inputs(self, outside: set[int], i: int, start: int) -> None:
        """Add what position `i` takes from before `start`; a list of tensors counts as
        one.
        """
        if self._is_first[i]:
            # what it works with is not in the graph, or is an input
            outside.add(-1 - i)
        elif self.stems[i] in _GATHER:
            # a list that is joined, such as all heads, counts as one value
            several = {one for one in self.producers[i] if one < start}
            outside.update(several if len(several) == 1 else several and {-1 - i})
        else:
            outside.update(
                producer for producer in self.producers[i] if producer < start
            )


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


# -- where the call of an adapter ends -------------------------------------------------

# At the sum of what its small matrices made and what its frozen weights made
# beside them. A frozen weight is no leaf of the graph, so its product looks like
# anybody's. The sum tells: it takes the result of the call, and a product that was
# computed right before the call and needed no gradient for its weight.

_PRODUCTS = frozenset(("Addmm", "Mm", "Convolution"))
_JOINS = frozenset(("Add", "Sub"))


def adapter_ends(
    order: ForwardOrder,
    calls: Sequence[InferredCall],
    before: Sequence[range],
    after: Sequence[range],
) -> list[tuple[range, range]]:
    """How far the calls of one class reach into what lies free before and after each;
    [] if none ends with such a sum.

    Where the input of a call needs no gradient, the frozen product is not in the graph;
    the sum is found all the same, since calls of one class do the same things.
    """
    sums = [_steps_to_sum(order, call.end, gap) for call, gap in zip(calls, after)]
    starts = [
        _steps_to_product(order, earlier, later[:n])
        for earlier, later, n in zip(before, after, sums)
    ]
    if not any(starts):
        return []
    return [
        (earlier[:k], later[:n])
        for earlier, later, k, n in zip(before, after, starts, sums)
    ]


def _steps_to_sum(order: ForwardOrder, end: int, gap: range) -> int:
    """How many operations, each on the result of the one before, lead from the end of a
    call to a sum; 0 if none does.
    """
    last = end
    for i, position in enumerate(gap):
        if last not in order.producers[position]:
            return 0
        if order.stems[position] in _JOINS:
            return i + 1
        last = position
    return 0


def _steps_to_product(order: ForwardOrder, gap: range, later: range) -> int:
    """How many operations before a call reach back to the frozen product that its sum
    takes; 0 if it takes none.
    """
    if not later or not gap:
        return 0

    beside = [producer for producer in order.producers[later[-1]] if producer in gap]
    if len(beside) != 1:
        return 0

    position = beside[0]
    while order.stems[position] in VIEWS and len(order.producers[position]) == 1:
        position = order.producers[position][0]

    if position not in gap or order.stems[position] not in _PRODUCTS:
        return 0

    flattened = position - 1
    if (
        flattened in gap
        and flattened in order.producers[position]
        and order.stems[flattened] in VIEWS
    ):
        position = flattened

    return gap.index(position) + 1
