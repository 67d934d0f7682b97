"""What one tensor is, read without disturbing it: shape, dtype, device, layout and
storage.

Call everything here under `isolated()`, or a tensor subclass runs the user's code at
each attribute. Never reads `data_ptr()`, which would materialise a copy-on-write
tensor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

import torch

from gradviz.armour.isolation import isolated
from gradviz.graph import Shape, Storage, StorageKind, TensorInfo
from gradviz.variables.objects import members, paths_with_ancestors
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
        _single_shape(tensor) if layout != "jagged" else _jagged_shape(tensor),
        dtype_name(tensor.dtype),
        device_name(tensor.device),
        layout,
    )


def _jagged_shape(tensor: torch.Tensor) -> Shape | None:
    """The shape, without what torch notes in a jagged tensor that is asked for it past
    its class.
    """
    before = {*vars(tensor)}
    shape = _single_shape(tensor)
    for noted in vars(tensor).keys() - before:
        del vars(tensor)[noted]
    return shape


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


PLAIN = (torch.Tensor, torch.nn.Parameter)
"""Types of tensors that no code of the user's answers for."""


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one dense block: no subclass, which may be made of other
    tensors, and no sparse layout.
    """
    return type(tensor) in PLAIN and tensor.layout == torch.strided


def answers_itself(tensor: torch.Tensor) -> bool:
    """Whether the class of a tensor computes its numbers, and may keep them elsewhere:
    asking for one runs its code.

    >>> answers_itself(torch.ones(2))
    False
    """
    return getattr(type(tensor), "__torch_dispatch__", _ORDINARY) is not _ORDINARY


_ORDINARY: Any = torch.Tensor.__torch_dispatch__


def parts_of(tensor: torch.Tensor) -> tuple[tuple[str, torch.Tensor], ...]:
    """The tensors that a sparse one or a wrapping subclass is made of, by name, values
    last; nothing for any other.
    """
    if is_plain(tensor):
        return ()
    if type(tensor) not in PLAIN and hasattr(tensor, "__tensor_flatten__"):
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


def _inner(tensor: torch.Tensor) -> tuple[tuple[str, torch.Tensor], ...]:
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

    return tuple(sorted(tensors, key=lambda part: (storage_of(part[1]) or (0, -1))[1]))


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


def grad_fn_of(tensor: torch.Tensor, *, asked_for: bool = False) -> Node | None:
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


def has_graph(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a `grad_fn` to be read, whatever its class says."""
    with isolated():
        return grad_fn_of(tensor) is not None


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


class _Held(NamedTuple):
    """Parameters by identity, with the numbers of each, and their sum."""

    numbers: dict[int, float]
    total: float

    def united(self, other: _Held) -> _Held:
        """With those of another one. Writes into the larger, so that each is written a
        few times only, however deep modules lie in each other.
        """
        small, large = sorted((self, other), key=lambda held: len(held.numbers))
        total = large.total
        for key, count in small.numbers.items():
            if key not in large.numbers:
                large.numbers[key] = count
                total += count
        return _Held(large.numbers, total)


def elements_of_each(module: torch.nn.Module) -> dict[int, int | None]:
    """The same for a module and for each one inside it, by identity: what several
    modules in it share counts once.
    """
    found: dict[int, int | None] = {}
    below: dict[int, _Held] = {}  # by depth, of the modules met so far
    for _, inside, ancestors in reversed(paths_with_ancestors(module)):
        held = below.pop(len(ancestors) + 1, _Held({}, 0))
        for _, parameter in members(inside, "_parameters"):
            count = elements([parameter])
            known = math.inf if count is None else count
            held = held.united(_Held({id(parameter): known}, known))
        found[id(inside)] = None if held.total == math.inf else int(held.total)
        beside = below.get(len(ancestors), _Held({}, 0))
        below[len(ancestors)] = beside.united(held)
    return found


# -- storages --------------------------------------------------------------------------


class Storages:
    """The storages met so far: their `records`, by number.

    `owners` maps a storage's identity to its kind; those tensors must stay alive while
    this numbers. What it does not know is an activation. `number_of` has the numbers by
    identity, `values` what the user's code wrote for a storage that holds one number.
    """

    def __init__(self, owners: Mapping[int, StorageKind]) -> None:
        self._owners = owners
        self.records: list[Storage] = []
        self.number_of: dict[int, int] = {}
        # by where a storage begins in memory, and its bytes
        self._at: dict[tuple[int, int], int] = {}
        self.values: dict[int | None, complex] = {}

    def known(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage when it was met before."""
        storage = storage_of(tensor)
        return self.number_of.get(storage[0]) if storage is not None else None

    def name(self, named: Iterable[tuple[torch.Tensor, tuple[str, ...]]]) -> None:
        """Note the names of inputs that need no gradient, which no leaf tells."""
        for tensor, names in named:
            number = None if tensor.requires_grad else self.known(tensor)
            if number is not None:
                record = self.records[number]
                if record.kind == "input" and not record.names:
                    self.records[number] = record._replace(names=names)

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
        except (RuntimeError, NotImplementedError):
            return None
        # a storage is known by its identity, since tensors share it
        identity = storage._cdata
        number = self.number_of.get(identity)
        if number is None:
            number = self._add(storage.nbytes(), tensor, identity, smaller)
            self.number_of[identity] = number
        return number

    def _add(
        self,
        nbytes: Any,
        tensor: torch.Tensor,
        identity: int,
        smaller: torch.Tensor | None,
    ) -> int:
        number = len(self.records)
        begins = private.address(tensor) if nbytes else 0
        if begins:
            first = self._at.setdefault((begins, nbytes), number)
            if first != number:  # another storage over the same array of NumPy
                return first

        kind = self._owners.get(identity, "activation")
        is_number = smaller is not None and private.is_wrapped_number(tensor, smaller)
        if identity not in self._owners and is_number:
            kind = "number"
            # on the CPU, so this waits for no device
            self.values[number] = torch._C.TensorBase.item(tensor)
        # asking a symbolic size would fix it
        known_bytes = nbytes if type(nbytes) is int else None
        self.records.append(Storage(number, known_bytes, kind))
        return number
