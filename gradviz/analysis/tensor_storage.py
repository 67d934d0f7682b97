"""Which storage the tensor on an edge has, as far as saved tensors tell.

A graph does not record the storage of a result, only those of saved tensors. But a node that saved its result or its input
did so in a slot with a telling name, and a view has the storage of what it looks at. What neither tells is unknown; its
bytes follow from its shape. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Iterable

from gradviz.analysis.sizes import tensor_bytes
from gradviz.graph import Graph, Node, SavedTensor, TensorInfo

Tensor = tuple[int, int]
"""The node that made a tensor, and which of its outputs that is."""

_VIEWING = """
    Alias AsStrided Detach Diagonal Expand Permute ReshapeAlias Select Slice Split SplitWithSizes Squeeze T Transpose
    Unbind Unfold UnsafeSplit UnsafeView Unsqueeze View ViewAsComplex ViewAsReal
"""
VIEWS = frozenset(f"{name}Backward{i}" for name in _VIEWING.split() for i in range(3))

_RESULTS = {"result": 0, "output": 0, "out": 0, "result0": 0, "result1": 1, "result2": 2}
_INPUTS = {
    "self": 0,
    "input": 0,
    "query": 0,
    "mat1": 0,
    "batch1": 0,
    "tensor1": 0,
    "other": 1,
    "mat2": 1,
    "batch2": 1,
    "key": 1,
    "weight": 1,
    "value": 2,
}
_AFTER_A_SUMMAND = ("mat1", "mat2", "batch1", "batch2", "tensor1", "tensor2")  # shifted by one in addmm, addcmul, ...


class TensorStorage:
    """Storage and bytes of the tensors of a graph. Tensors that are views of each other are one, called by one of them."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._base: dict[Tensor, Tensor] = {}
        self._known: dict[Tensor, int] = {}
        self._bytes: dict[Tensor, int] = {}
        self._join_views()
        for node in graph.nodes:
            for slot in node.saved:
                if slot.storage is not None:
                    for tensor in self._held_in(node, slot):
                        self._known.setdefault(self.base(tensor), slot.storage)

    def base(self, tensor: Tensor) -> Tensor:
        """The tensor that this one is a view of, or itself."""
        while tensor in self._base:
            tensor = self._base[tensor]
        return tensor

    def storage(self, tensor: Tensor) -> int | None:
        """Id of the tensor's storage, None where no saved tensor tells."""
        return self._known.get(self.base(tensor))

    def nbytes(self, tensor: Tensor) -> int:
        """Bytes of the tensor's storage: asked where it is known, else those of its base's shape."""
        storage = self.storage(tensor)
        if storage is not None:
            return self._graph.storages[storage].nbytes or 0
        info = self._info(self.base(tensor))
        return (tensor_bytes(info) or 0) if info is not None else 0

    def _join_views(self) -> None:
        """Point each view at what it looks at. Producers come last in `order`, so no chain grows long."""
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


def _alike(one: TensorInfo | None, other: TensorInfo | None) -> bool:
    return one is not None and other is not None and (one.shape, one.dtype) == (other.shape, other.dtype)
