"""What one tensor is, read without disturbing it: shape, dtype, device, layout,
storage, and how it lies on a mesh of processes.

Call everything here under `isolated()`, or a tensor subclass runs the user's code at
each attribute. Never reads `data_ptr()`, which would materialise a copy-on-write
tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from math import prod
from typing import Any

import torch

from gradviz.graph import Shape, StorageKind, TensorInfo
from gradviz.graph.columns import NodeType, StorageColumns
from gradviz.walker import private
from gradviz.walker.private import Node, made_as, transform_of


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` as "float32"."""
    return str(dtype).removeprefix("torch.")


@cache
def device_name(device: torch.device) -> str:
    """`torch.device("cuda", 0)` as "cuda:0"."""
    return str(device)


def shape_of(sizes: Any) -> Shape:
    """Sizes as plain numbers; a symbolic or ragged size becomes text."""
    return tuple(int(size) if isinstance(size, int) else str(size) for size in sizes)


def _single_shape(described: Any) -> Shape | None:
    """The shape of a tensor, or of what a node tells of one; None where it has no
    single one.
    """
    try:
        return shape_of(described.shape)
    except RuntimeError:  # a strided nested tensor
        return None


def tensor_info(tensor: torch.Tensor) -> TensorInfo:
    """Shape, dtype, device and layout, in torch's words, with "nested" and "jagged" for
    nested tensors.
    """
    layout = str(tensor.layout).removeprefix("torch.")
    if tensor.is_nested and layout == "strided":
        layout = "nested"
    return TensorInfo(
        _single_shape(tensor),
        dtype_name(tensor.dtype),
        device_name(tensor.device),
        layout,
    )


def metadata_info(metadata: Any) -> TensorInfo:
    """The same of what a node tells of a result of the forward."""
    shape, nested = (
        _single_shape(metadata),
        bool(getattr(metadata, "is_nested_tensor", False)),
    )
    layout = "strided" if not nested else "nested" if shape is None else "jagged"
    return TensorInfo(
        shape, dtype_name(metadata.dtype), device_name(metadata.device), layout
    )


def storage_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Identity and bytes of the tensor's storage, or None where it has none. The
    identity holds while the storage lives.
    """
    try:
        storage = tensor.untyped_storage()
        return storage._cdata, storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return None


def memory_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """The same, with one identity for storages over one block of memory, such as two
    tensors from one array of NumPy.
    """
    storage = storage_of(tensor)
    if storage is None:
        return None
    identity, nbytes = storage
    return private.address(tensor) or identity, nbytes


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one dense block: no subclass, which may be made of other
    tensors, and no sparse layout.
    """
    return type(tensor) in _PLAIN_TYPES and tensor.layout == torch.strided


def answers_itself(tensor: torch.Tensor) -> bool:
    """Whether the class of a tensor computes its numbers, and may keep them elsewhere:
    asking for one runs its code.

    >>> answers_itself(torch.ones(2))
    False
    """
    return getattr(type(tensor), "__torch_dispatch__", _ORDINARY) is not _ORDINARY


_ORDINARY: Any = torch.Tensor.__torch_dispatch__


def parts_of(
    tensor: torch.Tensor,
) -> tuple[tuple[str, torch.Tensor], ...]:
    """The tensors that a sparse one or a wrapping subclass is made of, by name, values
    last; nothing for any other.
    """
    if type(tensor) not in _PLAIN_TYPES and hasattr(tensor, "__tensor_flatten__"):
        return _inner(tensor)
    names = _SPARSE_PARTS.get(tensor.layout, ())
    return tuple((name.strip("_"), getattr(tensor, name)()) for name in names)


_SPARSE_PARTS: dict[torch.layout, tuple[str, ...]] = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def _inner(
    tensor: torch.Tensor,
) -> tuple[tuple[str, torch.Tensor], ...]:
    """The inner tensors that a wrapping subclass names. The largest holds the values."""
    try:
        names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        parts = [(name, getattr(tensor, name)) for name in names]
        tensors = [
            (name, part)
            for name, part in parts
            if isinstance(part, torch.Tensor) and type(part) is not type(tensor)
        ]
    except Exception:  # the class's own code: whatever it raises, its parts are unknown
        return ()

    return tuple(
        sorted(
            tensors,
            key=lambda part: (storage_of(part[1]) or (0, -1))[1],
        )
    )


def version_of(tensor: torch.Tensor) -> int | None:
    """The version counter, or None for an inference tensor, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        return None


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that this one is a view of. One step is enough: torch makes the base
    of a view never a view itself.
    """
    return tensor._base if tensor._is_view() else None


def grad_fn_of(
    tensor: torch.Tensor,
    *,
    asked_for: bool = False,
) -> Node | None:
    """`tensor.grad_fn`, or None where it has none or where reading it could make a
    node.

    Reading the `grad_fn` of a view whose base was modified in place builds a new node;
    it is done only for a tensor that the user `asked_for`. Where torch refuses to give
    it (a view of `split` after its base was modified), that one raises RuntimeError,
    and any other has none.
    """
    if not tensor.requires_grad:
        return None
    if asked_for:
        return tensor.grad_fn
    try:
        # asking a modified view would build a node, which changes the user's graph
        if not tensor._is_view() or not (tensor.is_inference() or tensor._version):
            return tensor.grad_fn
        return None
    except RuntimeError:
        return None


def why_no_graph(tensor: torch.Tensor) -> str:
    """Why this tensor has no `grad_fn`, as the end of a sentence that begins with its
    name.
    """
    if tensor.is_inference():
        return "was made in torch.inference_mode(), which records nothing"

    transform = transform_of(tensor)
    if transform and not tensor.requires_grad:
        return (
            f"is inside {transform} of torch.func, whose tensors have no graph of their own: "
            f"look at what {transform} returns, outside of the function that it calls"
        )

    base = base_of(tensor)
    if base is not None and made_as(tensor) in ("NO_GRAD_MODE", "INFERENCE_MODE"):
        return "is a view that was made under torch.no_grad() or in torch.inference_mode(), which record nothing"
    if tensor.requires_grad:
        return "is a leaf: it was created, not computed, so nothing led to it"
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        return f"is {dtype_name(tensor.dtype)}: only floating point and complex tensors can have a gradient"

    return (
        "does not require grad: it was computed under torch.no_grad(), or detached (.detach(), .data, .item(), .numpy()), "
        "or none of its inputs requires grad"
    )


def elements(parameters: Iterable[torch.Tensor]) -> int | None:
    """How many numbers these parameters hold; None when one of them has no shape yet."""
    try:
        return sum(parameter.numel() for parameter in parameters)
    except (RuntimeError, ValueError):  # a lazy parameter
        return None


# -- storages --------------------------------------------------------------------------


class Storages:
    """The storages met so far.

    `owners` maps a storage's identity to its kind; those tensors must stay alive while
    this numbers. What it does not know is an activation. `number_of` has the numbers by
    identity, `values` what the user's code wrote for a storage that holds one number.
    """

    def __init__(self, owners: Mapping[int, str]) -> None:
        self._owners = owners
        self.columns = StorageColumns()
        self.number_of: dict[int, int] = {}
        # by where a storage begins in memory, and its bytes
        self._at: dict[tuple[int, int], int] = {}
        self.values: dict[int, complex] = {}

    def known(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage when it was met before."""
        storage = storage_of(tensor)
        return self.number_of.get(storage[0]) if storage is not None else None

    def name(
        self,
        named: Iterable[tuple[torch.Tensor, tuple[str, ...]]],
    ) -> None:
        """Note the names of inputs that need no gradient, which no leaf tells."""
        for tensor, names in named:
            number = None if tensor.requires_grad else self.known(tensor)
            if number is not None and self.columns.kind[number] == "input":
                self.columns.names.setdefault(number, names)

    def number(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage, a new one when it is met first; None
        where the tensor has none.
        """
        parts = parts_of(tensor)
        # the part with the values stands for all of them
        return self.number(parts[-1][1]) if parts else self.of_block(tensor)

    def of_block(
        self, tensor: torch.Tensor, smaller: torch.Tensor | None = None
    ) -> int | None:
        """The same for a tensor that is made of no others. `smaller` is given where it
        may be a Python number.
        """
        try:
            storage = tensor.untyped_storage()
            identity = storage._cdata
            number = self.number_of.get(identity)
            if number is None:
                return self.add(identity, storage.nbytes(), tensor, smaller)
            return number
        except (RuntimeError, NotImplementedError):
            return None

    def numbers_of_parts(
        self,
        tensor: torch.Tensor,
    ) -> list[tuple[str, int]]:
        """The storages of a tensor that is made of others, each with the part's name;
        the one with the values is last.
        """
        numbers = [(name, self.number(part)) for name, part in parts_of(tensor)]
        return [(name, number) for name, number in numbers if number is not None]

    def add(
        self,
        identity: int,
        nbytes: int,
        tensor: torch.Tensor,
        smaller: torch.Tensor | None,
    ) -> int:
        """The number of a storage met for the first time, in `tensor`. `smaller` is
        given where that may be a Python number.
        """
        kind: StorageKind = self._owners.get(identity)  # type: ignore[assignment]
        columns = self.columns
        number = len(columns.kind)
        begins = private.address(tensor) if nbytes else 0
        if begins:
            first = self._at.setdefault((begins, nbytes), number)
            if first != number:  # another storage over the same array of NumPy
                self.number_of[identity] = first
                return first

        if kind is None:
            if smaller is not None and private.is_wrapped_number(tensor, smaller):
                kind = "number"
            else:
                kind = "activation"
            if kind == "number":
                # on the CPU, so this waits for no device
                self.values[number] = tensor.item()
        self.number_of[identity] = number
        # asking a symbolic size would fix it
        columns.nbytes.append(nbytes if type(nbytes) is int else -1)
        columns.kind.append(kind)
        return number


# -- DTensors --------------------------------------------------------------------------

PLACEMENTS, COLLECTIVE, BYTES = "placements", "collective", "collective bytes"
"""Attributes of a node: how its tensor lies on the mesh, and what moving it takes, in
bytes of one process's tensor.
"""
_MOVES = "RedistributeBackward"
_TELLS = ("_ToTorchTensorBackward", _MOVES)


def _leaf_placement(variable: Any, shard: Any) -> dict[str, Any]:
    """That of a leaf, of which this process may hold a shard. Raises AttributeError
    where it has none.
    """
    if shard is None:
        return {PLACEMENTS: _words(variable._spec)}
    # other dimensions of the mesh may cut it still
    gathered = getattr(variable, "_local_tensor", variable)
    words = {PLACEMENTS: _words(shard._spec)}
    return {
        **words,
        COLLECTIVE: "all_gather",
        BYTES: gathered.numel() * gathered.itemsize,
    }


def placements(
    nodes: Sequence[Node],
    types: Sequence[NodeType],
    ends: Iterator[tuple[int, int]],
    variables: Mapping[int, torch.Tensor],
    shards: Mapping[int, torch.Tensor],
) -> dict[int, dict[str, Any]]:
    """Attributes to add, by node. `ends` are consumer and producer of every edge;
    `variables` the leaves by node.

    `shards` are what this process holds of leaves that were gathered, by their
    identity.
    """
    # then no tensor can be a DTensor, and importing it takes a while
    if "torch.distributed.tensor" not in sys.modules:
        return {}

    attributes: dict[int, dict[str, Any]] = {}
    for i, variable in variables.items():
        with suppress(AttributeError, TypeError):
            attributes[i] = _leaf_placement(variable, shards.get(id(variable)))

    moves = {i for i, type in enumerate(types) if type.op == _MOVES}
    target = {
        producer: consumer
        for consumer, producer in ends
        if producer in moves and types[consumer].op in _TELLS
    }
    # autograd keeps where a tensor came from; where it went, the node that uses it
    # knows
    for i in moves:
        with suppress(AttributeError, TypeError):
            before = nodes[i].current_spec
            after = _spec(nodes[target[i]]) if i in target else None
            moved = after is not None and _placed(after) != _placed(before)
            if after is not None:
                to = _placed(after)
            else:
                to = "placements that autograd does not keep"
            placed = _words(before)
            if moved or after is None:
                placed = f"from {placed} to {to}"
            attributes[i] = {PLACEMENTS: placed}
            if moved:
                attributes[i] |= _move(before, after)

    return attributes


def _spec(node: Node) -> Any:
    return getattr(node, "dtensor_spec", None) or getattr(node, "current_spec", None)


def _placed(spec: Any) -> str:
    return ", ".join(str(placement) for placement in spec.placements)


def _words(spec: Any) -> str:
    """`S(0) on tp=2`: placements, then the dimensions of the mesh."""
    mesh = spec.mesh
    names = mesh.mesh_dim_names or tuple(f"dim{i}" for i in range(len(mesh.shape)))
    return f"{_placed(spec)} on {', '.join(f'{name}={size}' for name, size in zip(names, mesh.shape))}"


def _move(before: Any, after: Any) -> dict[str, Any]:
    """The collectives that lead from one placement to the other, and the bytes of the
    larger of both local tensors.
    """
    steps = [
        _collective(start, end)
        for start, end in zip(before.placements, after.placements)
    ]
    said = [step for step in steps if step]
    if not said:
        return {}

    meta = before.tensor_meta
    full_bytes = prod(meta.shape) * meta.dtype.itemsize
    return {
        COLLECTIVE: ", ".join(said),
        BYTES: max(full_bytes // _shards(before), full_bytes // _shards(after)),
    }


def _shards(spec: Any) -> int:
    """Parts that the tensor is cut into."""
    return prod(
        size
        for size, placement in zip(spec.mesh.shape, spec.placements)
        if placement.is_shard()
    )


def _collective(before: Any, after: Any) -> str:
    if before == after:
        return ""
    if before.is_partial():
        return "all_reduce" if after.is_replicate() else "reduce_scatter"
    if before.is_shard():
        if after.is_replicate():
            return "all_gather"
        if after.is_shard():
            return "all_to_all"
        return ""
    return ""  # a part of what every process has
