"""What stays in memory when some module calls are wrapped in a checkpoint: the bookkeeping behind the advice.

A storage stays when somebody outside the wrapped calls saved it, when two different wrapped calls saved it (it crossed
from one to the other), or when it is an input of a wrapped call. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from functools import cached_property
from statistics import median
from typing import NamedTuple

from gradviz.graph import Graph, Node, SavedTensor, TensorInfo
from gradviz.graph.amounts import COUNTED, ONLY_GRAPH, forward_order, tensor_bytes
from gradviz.graph.origins import ScopeTree
from gradviz.memory.series import pattern

# Which storage the tensor on an edge has, as far as saved tensors tell. A graph does not record the storage of a
# result, only those of saved tensors. But a node that saved its result or its input did so in a slot with a telling
# name, and a view has the storage of what it looks at. What neither tells is unknown; its bytes follow from its
# shape. Knows nothing of torch.

Tensor = tuple[int, int]
"""The node that made a tensor, and which of its outputs that is."""

_VIEWING = """
    Alias AsStrided Detach Diagonal Expand Permute ReshapeAlias Select Slice Split SplitWithSizes Squeeze T Transpose
    Unbind Unfold UnsafeSplit UnsafeView Unsqueeze View ViewAsComplex ViewAsReal
"""
VIEWS = frozenset(f"{name}Backward{i}" for name in _VIEWING.split() for i in range(3))

_RESULTS = {"result": 0, "output": 0, "out": 0, "result0": 0, "result1": 1, "result2": 2}
_BY_POSITION = ("self input query mat1 batch1 tensor1", "other mat2 batch2 key weight", "value")
_INPUTS = {name: position for position, names in enumerate(_BY_POSITION) for name in names.split()}
_AFTER_A_SUMMAND = ("mat1", "mat2", "batch1", "batch2", "tensor1", "tensor2")  # shifted by one in addmm, addcmul, ...


class TensorStorage:
    """Storage and bytes of the tensors of a graph. Tensors that are views of each other are one, called by one of them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._base: dict[Tensor, Tensor] = {}
        self._known: dict[Tensor, int] = {}
        self._join_views()
        for node in graph.nodes:
            for slot in node.saved:
                if slot.storage is not None:
                    for tensor in self._held_in(node, slot):
                        self._known.setdefault(self.base(tensor), slot.storage)

    def base(self, tensor: Tensor) -> Tensor:
        """The tensor that this one is a view of, or itself."""
        return self._base.get(tensor, tensor)

    def storage(self, tensor: Tensor) -> int | None:
        """Id of the tensor's storage, None where no saved tensor tells."""
        return self._known.get(self.base(tensor))

    def nbytes(self, tensor: Tensor) -> int:
        """Bytes that the tensor's storage must have, by the shape of its base."""
        info = self._info(self.base(tensor))
        return (tensor_bytes(info) or 0) if info is not None else 0

    def _join_views(self) -> None:
        """Point each view at what it looks at in the end. Producers come last in `order`, so theirs is known before."""
        for id in reversed(self._graph.order):
            node = self._graph.nodes[id]
            if node.op in VIEWS:
                inputs = self._graph.inputs(id)
                if len(inputs) == 1:
                    base = self.base((inputs[0].producer, inputs[0].output))
                    for output in range(max(1, len(node.outputs))):
                        self._base[id, output] = base

    def _held_in(self, node: Node, slot: SavedTensor) -> Iterable[Tensor]:
        """The tensors that a slot can only hold: a result of the node, or the input at the position its name tells."""
        output = _RESULTS.get(slot.slot)
        if output is not None and output < len(node.outputs) and _alike(node.outputs[output], slot.tensor):
            yield node.id, output
        position = _position(node.op, slot.slot)
        for edge in self._graph.inputs(node.id) if position is not None else ():
            if edge.position == position and _alike(self._info((edge.producer, edge.output)), slot.tensor):
                yield edge.producer, edge.output

    def _info(self, tensor: Tensor) -> TensorInfo | None:
        outputs = self._graph.nodes[tensor[0]].outputs
        return outputs[tensor[1]] if tensor[1] < len(outputs) else None


def _position(op: str, slot: str) -> int | None:
    position = _INPUTS.get(slot)
    if position is None or slot not in _AFTER_A_SUMMAND or not op.startswith(("Add", "Badd", "Sparse")):
        return position
    return position + 1


def _alike(made: TensorInfo | None, saved: TensorInfo | None) -> bool:
    return made is not None and saved is not None and (made.shape, made.dtype) == (saved.shape, saved.dtype)


Unit = int | Tensor
"""A piece of memory: a saved storage by its id, or a tensor that nobody saved so far and that a checkpoint would keep."""


class CallCost(NamedTuple):
    """One call of a module: what it saves, and what comes in from outside."""

    scope: int
    nodes: tuple[int, ...]
    storages: tuple[int, ...]
    inputs: tuple[Unit, ...]

    @property
    def units(self) -> tuple[Unit, ...]:
        """All memory that it has to do with."""
        return *self.storages, *self.inputs


class CallCosts:
    """Which memory each module call saves and takes in. Made once for a graph, never changed."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.tree = graph, ScopeTree(graph)
        self.place = {node: i for i, node in enumerate(forward_order(graph))}
        self.ops = len(graph.nodes) - len(graph.leaf_of)
        self.savers = self._savers()
        self.nbytes: dict[Unit, int] = {unit: graph.storages[unit].nbytes or 0 for unit in self.savers}
        self.total = sum(self.nbytes.values())
        self._tensors = TensorStorage(graph)
        self.by_path: dict[str, list[CallCost]] = {}
        for scope in self.tree.top_down:
            if self.tree.members[scope]:
                self.by_path.setdefault(graph.scopes[scope].path, []).append(self._call(scope))
        self.parents = {path: self._parent(calls[0].scope) for path, calls in self.by_path.items()}
        """The module that each one is called in, outer ones first."""

    def _parent(self, scope: int) -> str | None:
        own = self.graph.scopes[scope].path
        paths = (self.graph.scopes[outer].path for outer in self.tree.around(scope))
        return next((path for path in paths if path != own), None)

    @cached_property
    def _seconds(self) -> dict[str, float | None]:
        """By module. Alike ones take as long as their median: what differs between them is noise."""
        kinds: dict[Hashable, list[float | None]] = {}
        kind_of: dict[str, Hashable] = {}
        for path, calls in self.by_path.items():
            seconds = [self._again(call) for call in calls]
            kind_of[path] = (pattern(path), self.described(path), sum(len(call.nodes) for call in calls))
            kinds.setdefault(kind_of[path], []).append(None if None in seconds else sum(seconds))  # type: ignore[arg-type]
        return {path: None if None in kinds[kind] else median(kinds[kind]) for path, kind in kind_of.items()}  # type: ignore[type-var]

    def _again(self, call: CallCost) -> float | None:
        """Seconds of a forward that stops at the last tensor that backward needs, before the op where that is its input."""
        nodes, scopes = self.graph.nodes, self.graph.scopes
        seconds = scopes[call.scope].forward
        last = max((i for i, node in enumerate(call.nodes) if nodes[node].saved), default=0)
        results = any(slot.slot in _RESULTS for slot in nodes[call.nodes[last]].saved)
        left = set(call.nodes[last + results :]) | {n for n in call.nodes if nodes[n].op in VIEWS}
        waiting = list(self.tree.children[call.scope])
        for scope in waiting:  # grows while it is read
            took = scopes[scope].forward
            if seconds is not None and took is not None and left.issuperset(self.tree.members[scope]):
                seconds -= took
            else:
                waiting += self.tree.children[scope]
        return max(seconds, 0.0) if seconds is not None else None

    def seconds(self, path: str) -> float | None:
        """The time that computing all calls again takes, None where it was not measured."""
        return self._seconds[path]

    def saves_alone(self, path: str) -> bool:
        """Whether the module has saved tensors that nobody but the graph holds, and no modules inside."""
        calls = self.by_path[path]
        leaf = not any(self.tree.children[call.scope] for call in calls)
        return leaf and any(self.can_go(unit) and self.nbytes[unit] for call in calls for unit in call.storages)

    def described(self, path: str) -> tuple[str, int]:
        """The module's class, and how often it is called."""
        calls = self.by_path[path]
        return self.graph.scopes[calls[0].scope].type, len(calls)

    def again(self, path: str) -> int:
        """Bytes that the largest call of the module brings back."""
        freed = (filter(self.can_go, call.storages) for call in self.by_path[path])
        return max(sum(self.nbytes[unit] for unit in units) for units in freed)

    def first_op(self, path: str) -> int:
        """Where the module's first op is in forward order."""
        return min(self.place[call.nodes[0]] for call in self.by_path[path])

    def can_go(self, unit: Unit) -> bool:
        """Whether nobody but the graph holds it."""
        return isinstance(unit, tuple) or self.graph.storages[unit].kind in ONLY_GRAPH

    def first_place(self, unit: Unit) -> int:
        """Where in forward order it was saved first, or made. Backward lets go of it there."""
        return self.place[unit[0] if isinstance(unit, tuple) else self.savers[unit][0]]

    def _savers(self) -> dict[int, list[int]]:
        """The nodes that hold each storage, first saver first; parameters and buffers left out."""
        savers: dict[int, list[int]] = {}
        for node in self.place:
            for slot in self.graph.nodes[node].saved:
                for storage in slot.storages:
                    if storage < len(self.graph.storages) and self.graph.storages[storage].kind in COUNTED:
                        savers.setdefault(storage, []).append(node)
        return savers

    def _call(self, scope: int) -> CallCost:
        nodes = self.tree.members[scope]
        inside = set(nodes)
        slots = (slot for node in nodes for slot in self.graph.nodes[node].saved)
        storages = dict.fromkeys(storage for slot in slots for storage in slot.storages if storage in self.savers)
        edges = (edge for node in nodes for edge in self.graph.inputs(node))
        coming = dict.fromkeys(self._coming_in((edge.producer, edge.output), inside) for edge in edges)
        return CallCost(scope, tuple(nodes), tuple(storages), tuple(unit for unit in coming if unit is not None))

    def _coming_in(self, tensor: Tensor, inside: Collection[int]) -> Unit | None:
        """The memory of a tensor that comes from outside; None for one made inside and for leaves, which stay anyway."""
        base = self._tensors.base(tensor)
        if tensor[0] in inside or base[0] in self.graph.leaf_of:
            return None
        storage = self._tensors.storage(tensor)
        if storage is not None:
            return storage if storage in self.savers else None
        self.nbytes[base] = self._tensors.nbytes(tensor)
        return base


class Wrapping:
    """What is held for backward while these modules are wrapped; of calls inside each other the outer one is."""

    def __init__(self, calls: CallCosts, paths: Iterable[str] = ()) -> None:
        self._calls = calls
        chosen = {call.scope: call for path in paths for call in calls.by_path[path]}
        around = calls.tree.around
        self._wrapped = [call for scope, call in chosen.items() if sum(outer in chosen for outer in around(scope)) == 1]
        self._region = {node: call.scope for call in self._wrapped for node in call.nodes}
        self._inputs = {unit for call in self._wrapped for unit in call.inputs}
        self.ops = len(self._region)
        touched = {unit for call in self._wrapped for unit in call.units}
        self.held = calls.total + sum(
            calls.nbytes[unit] * (self._stays(unit) - (not isinstance(unit, tuple))) for unit in touched
        )

    def peak(self) -> int:
        """The most that is held at any time of backward: when it begins, or while it is inside a wrapped call."""
        calls = self._calls
        units = set(calls.savers) | self._inputs
        kept = sorted((calls.first_place(u), calls.nbytes[u]) for u in units if self._stays(u))
        peak, below, next_kept = self.held, 0, 0
        for end, call in sorted((calls.place[call.nodes[-1]], call) for call in self._wrapped):
            while next_kept < len(kept) and kept[next_kept][0] <= end:
                below += kept[next_kept][1]
                next_kept += 1
            back = sum(calls.nbytes[unit] for unit in call.storages if not self._stays(unit))
            peak = max(peak, below + back)
        return peak

    def _stays(self, unit: Unit) -> bool:
        """Whether this memory is held when backward begins."""
        if unit in self._inputs:
            return True
        if isinstance(unit, tuple):
            return False
        regions = {self._region.get(node) for node in self._calls.savers[unit]}
        return None in regions or len(regions) > 1 or not self._calls.can_go(unit)
