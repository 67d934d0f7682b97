"""What backward still holds when modules run in `torch.utils.checkpoint`: they keep
their inputs and compute the rest again.

A storage stays when somebody outside these modules saved it, when two of their calls
saved it, when it is an input of one, or when the caller holds it. Knows nothing of
torch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from gradviz.graph import Graph, TensorInfo
from gradviz.graph.amounts import COUNTED, ONLY_GRAPH, forward_order, tensor_bytes
from gradviz.graph.origins import ScopeTree

Tensor = tuple[int, int]
"""The node that computed a tensor, and which of its outputs that is."""

Unit = int | Tensor
"""A piece of memory: a saved storage by its id, or a tensor that nobody saved so far
and that a checkpoint would keep.
"""


class CallCost(NamedTuple):
    """One call of a module: its nodes in forward order, the storages that it saves, and
    the memory of its inputs.
    """

    nodes: Sequence[int]
    saves: Collection[int]
    inputs: Collection[Unit]


class ModuleCosts:
    """What each call of a module saves and takes in. Read once from a graph, never
    changed.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.tree = graph, ScopeTree(graph)
        counted = {storage.id for storage in graph.storages if storage.kind in COUNTED}
        # by storage, the nodes that saved it, in forward order
        self.savers: dict[int, list[int]] = {}
        for node in forward_order(graph):
            for slot in graph.nodes[node].saved:
                for storage in counted.intersection(slot.storages):
                    self.savers.setdefault(storage, []).append(node)

        self.nbytes: dict[Unit, int] = {
            storage: graph.storages[storage].nbytes or 0 for storage in self.savers
        }
        self.total = sum(self.nbytes.values())
        memory = memory_of_tensors(graph)
        for unit in memory.values():
            if isinstance(unit, tuple) and unit[0] not in graph.leaf_of:
                self.nbytes[unit] = _bytes_by_shape(graph, unit)

        self.calls: dict[int, CallCost] = {}  # by scope
        self.scopes: dict[str, list[int]] = {}  # of a module, by its path
        for scope in self.tree.top_down:
            if self.tree.members[scope]:
                self.calls[scope] = self._cost(self.tree.members[scope], memory)
                self.scopes.setdefault(graph.scopes[scope].path, []).append(scope)

    def _cost(self, nodes: Sequence[int], memory: Mapping[Tensor, Unit]) -> CallCost:
        inside = set(nodes)
        saves: set[int] = set()
        inputs: set[Unit] = set()

        for node in nodes:
            for slot in self.graph.nodes[node].saved:
                saves.update(slot.storages)
            for edge in self.graph.inputs(node):
                # a checkpoint keeps its inputs, to compute from them again
                if edge.producer not in inside:
                    inputs.add(memory[edge.producer, edge.output])

        return CallCost(nodes, saves & self.savers.keys(), inputs & self.nbytes.keys())

    def can_go(self, storage: int) -> bool:
        """Whether nobody but the graph holds it."""
        return self.graph.storages[storage].kind in ONLY_GRAPH

    def again(self, path: str) -> int:
        """Bytes that the largest call of a module brings back when it is computed
        again.
        """

        def freed(scope: int) -> int:
            storages = filter(self.can_go, self.calls[scope].saves)
            return sum(self.nbytes[storage] for storage in storages)

        return max(map(freed, self.scopes[path]))

    def place(self, unit: Unit) -> int:
        """Where in forward order it was saved first, or computed. Backward lets go of
        it there.
        """
        return self.tree.position[
            unit[0] if isinstance(unit, tuple) else self.savers[unit][0]
        ]


class Checkpointed:
    """What is held for backward while the modules at these paths run in checkpoints;
    calls inside others are part of them.
    """

    def __init__(self, costs: ModuleCosts, paths: Iterable[str] = ()) -> None:
        self._costs = costs
        chosen = {scope for path in paths for scope in costs.scopes[path]}
        outermost = [
            scope
            for scope in chosen
            # a call inside another chosen one is computed again with that
            if len(chosen.intersection(costs.tree.around(scope))) == 1
        ]
        self.paths = {costs.graph.scopes[scope].path for scope in outermost}
        self._calls = [costs.calls[scope] for scope in outermost]
        self._call_of = {
            node: i for i, call in enumerate(self._calls) for node in call.nodes
        }
        self._inputs = {unit for call in self._calls for unit in call.inputs}
        self.ops = len(self._call_of)

        saved = {storage for call in self._calls for storage in call.saves}
        self.held = costs.total - self._freed(saved)
        self.held += sum(
            costs.nbytes[unit] for unit in self._inputs if isinstance(unit, tuple)
        )

    @property
    def peak(self) -> int:
        """The most that is held at any time of backward: when it begins, or while it is
        inside one of the calls.
        """
        costs, peak = self._costs, self.held
        units = self._inputs.union(filter(self._stays, costs.savers))
        kept = sorted((costs.place(unit), costs.nbytes[unit]) for unit in units)
        until = [0, *accumulate(nbytes for _, nbytes in kept)]
        # while backward is inside a call, all that the call computed is there again
        for call in self._calls:
            end = costs.tree.position[call.nodes[-1]]
            peak = max(
                peak, until[bisect_left(kept, (end + 1, 0))] + self._freed(call.saves)
            )
        return peak

    def _freed(self, storages: Iterable[int]) -> int:
        return sum(
            self._costs.nbytes[storage]
            for storage in storages
            if not self._stays(storage)
        )

    def _stays(self, storage: int) -> bool:
        """Whether this storage is held when backward begins."""
        if storage in self._inputs or not self._costs.can_go(storage):
            return True
        calls = {self._call_of.get(node) for node in self._costs.savers[storage]}
        # an op outside, or in another checkpoint, has saved it, too
        return None in calls or len(calls) > 1


# -- the memory of a tensor ------------------------------------------------------------

# A graph does not record the storage of a result, only those of saved tensors. But a
# node that saved its result or its input did so in a slot with a telling name, and a
# view has the storage of its base. Where neither tells, the bytes follow from the
# shape.

_VIEWING = """
    Alias AsStrided Detach Diagonal Expand Permute ReshapeAlias Select Slice Split SplitWithSizes Squeeze T Transpose
    Unbind Unfold UnsafeSplit UnsafeView Unsqueeze View ViewAsComplex ViewAsReal
"""
VIEWS = frozenset(f"{name}Backward{i}" for name in _VIEWING.split() for i in range(3))

_RESULTS = {
    "result": 0,
    "output": 0,
    "out": 0,
    "result0": 0,
    "result1": 1,
    "result2": 2,
}
_BY_POSITION = (
    "self input query mat1 batch1 tensor1",
    "other mat2 batch2 tensor2 key weight",
    "value",
)
_INPUTS = {
    name: position
    for position, names in enumerate(_BY_POSITION)
    for name in names.split()
}
# ops whose first input is added to the product of the others
_WITH_SUMMAND = ("Addm", "Addb", "Addc", "Badd", "Sparse")


def memory_of_tensors(graph: Graph) -> dict[Tensor, Unit]:
    """Of each tensor on an edge: its storage where a slot tells it, else the tensor
    that it is a view of, or itself.
    """
    bases: dict[Tensor, Tensor] = {}
    storages: dict[Tensor, int] = {}
    # producers come first
    for node in map(graph.nodes.__getitem__, reversed(graph.order)):
        inputs = {
            edge.position: (edge.producer, edge.output)
            for edge in graph.inputs(node.id)
        }
        if node.op in VIEWS and len(inputs) == 1:
            (base,) = inputs.values()
            for output in range(max(1, len(node.outputs))):
                # a view of a view has the memory of the first tensor
                bases[node.id, output] = bases.get(base, base)

        for slot in node.saved:
            result, position = _RESULTS.get(slot.slot), _INPUTS.get(slot.slot, -2)
            # in addmm, mat1 is the second input
            position += node.op.startswith(_WITH_SUMMAND)
            tensor = inputs.get(position) if result is None else (node.id, result)
            if tensor is None or slot.storage is None or slot.tensor is None:
                continue
            info = _info(graph, tensor)
            # some slots hold another tensor than their name says, such as a copy in
            # another dtype
            if info is not None and (info.shape, info.dtype) == (
                slot.tensor.shape,
                slot.tensor.dtype,
            ):
                storages.setdefault(bases.get(tensor, tensor), slot.storage)

    tensors = [(edge.producer, edge.output) for edge in graph.edges]
    return {
        tensor: storages.get(bases.get(tensor, tensor), bases.get(tensor, tensor))
        for tensor in tensors
    }


def _info(graph: Graph, tensor: Tensor) -> TensorInfo | None:
    outputs = graph.nodes[tensor[0]].outputs
    return outputs[tensor[1]] if tensor[1] < len(outputs) else None


def _bytes_by_shape(graph: Graph, tensor: Tensor) -> int:
    info = _info(graph, tensor)
    return (tensor_bytes(info) or 0) if info is not None else 0
