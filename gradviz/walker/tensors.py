"""What one tensor is, read without disturbing it: shape, dtype, device, layout, storage; and the storages of one walk.

Call everything here under `private.without_subclasses()`, or a tensor subclass runs the user's code at each attribute.
Never reads `data_ptr()`, which would materialise a copy-on-write tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

import torch

from gradviz.graph import Shape, StorageKind, TensorInfo
from gradviz.graph.columns import StorageColumns
from gradviz.walker import private
from gradviz.walker.private import Node, made_as, transform_of

_DTYPES: dict[torch.dtype, str] = {}
_DEVICES: dict[torch.device, str] = {}


def dtype_name(dtype: torch.dtype) -> str:
    """`torch.float32` as "float32"."""
    name = _DTYPES.get(dtype)
    if name is None:
        name = _DTYPES[dtype] = str(dtype).removeprefix("torch.")
    return name


def device_name(device: torch.device) -> str:
    """`torch.device("cuda", 0)` as "cuda:0"."""
    name = _DEVICES.get(device)
    if name is None:
        name = _DEVICES[device] = str(device)
    return name


def shape_of(sizes: Any) -> Shape:
    """Sizes as plain numbers; a symbolic or ragged size becomes text."""
    return tuple(size if type(size) is int else _size(size) for size in sizes)


def _size(size: Any) -> int | str:
    return int(size) if isinstance(size, int) else str(size)


def layout_name(tensor: torch.Tensor) -> str:
    """The layout in torch's words, with "nested" and "jagged" for nested tensors."""
    name = str(tensor.layout).removeprefix("torch.")
    return "nested" if tensor.is_nested and name == "strided" else name


def tensor_info(tensor: torch.Tensor) -> TensorInfo:
    """Shape, dtype, device and layout. The shape is None where the tensor has no single one."""
    try:
        shape: Shape | None = shape_of(tensor.shape)
    except RuntimeError:  # a strided nested tensor
        shape = None
    return TensorInfo(shape, dtype_name(tensor.dtype), device_name(tensor.device), layout_name(tensor))


def element_bytes(info: TensorInfo, itemsize: int) -> int | None:
    """Bytes of the tensor's own elements when it is dense with known sizes, else None."""
    if info.shape is None or info.layout != "strided" or any(isinstance(size, str) for size in info.shape):
        return None
    return prod(size for size in info.shape if isinstance(size, int)) * itemsize


def storage_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Identity and bytes of the tensor's storage, or None where it has none. The identity holds while the storage lives."""
    try:
        storage = tensor.untyped_storage()
        return storage._cdata, storage.nbytes()
    except (RuntimeError, NotImplementedError):
        return None


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)
_DENSE = (torch.strided,)


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor is one dense block: no subclass, which may be made of other tensors, and no sparse layout."""
    return type(tensor) in _PLAIN_TYPES and tensor.layout in _DENSE


def parts_of(tensor: torch.Tensor) -> tuple[tuple[str, torch.Tensor], ...]:
    """The tensors that a sparse one or a wrapping subclass is made of, by name, values last; nothing for any other."""
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


def _inner(tensor: torch.Tensor) -> tuple[tuple[str, torch.Tensor], ...]:
    """The inner tensors that a wrapping subclass names. The largest holds the values."""
    try:
        names, _ = tensor.__tensor_flatten__()  # type: ignore[attr-defined]
        parts = [(name, getattr(tensor, name)) for name in names]
        known = [
            (name, part) for name, part in parts if isinstance(part, torch.Tensor) and type(part) is not type(tensor)
        ]
    except Exception:  # the class's own code: whatever it raises, its parts are unknown
        return ()
    return tuple(sorted(known, key=lambda part: (storage_of(part[1]) or (0, -1))[1]))


def version_of(tensor: torch.Tensor) -> int | None:
    """The version counter, or None for an inference tensor, which has none."""
    try:
        return tensor._version
    except RuntimeError:
        return None


def base_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor that this one is a view of. One step is enough: torch makes the base of a view never a view itself."""
    return tensor._base if tensor._is_view() else None


def grad_fn_of(tensor: torch.Tensor, *, asked_for: bool = False) -> Node | None:
    """`tensor.grad_fn`, or None where it has none or where reading it could make a node.

    Reading the `grad_fn` of a view whose base was modified in place builds a new node; it is done only for a tensor that
    the user `asked_for`. Raises RuntimeError where torch itself does (a view of `split` after its base was modified).
    """
    if not tensor.requires_grad:
        return None
    if not asked_for and tensor._is_view() and (tensor.is_inference() or tensor._version > 0):
        return None
    return tensor.grad_fn


def why_no_graph(tensor: torch.Tensor) -> str:
    """Why this tensor has no `grad_fn`, as the end of a sentence that begins with its name."""
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


# -- storages ----------------------------------------------------------------------------------------------------------


class Storages:
    """The storages met so far.

    `owners` maps a storage's identity to its kind; those tensors must stay alive while this numbers. What it does not know is an
    activation. `number_of` has the numbers by identity.
    """

    def __init__(self, owners: Mapping[int, str]) -> None:
        self._owners = owners
        self.columns = StorageColumns()
        self.number_of: dict[int, int] = {}

    def known(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage when it was met before."""
        storage = storage_of(tensor)
        return self.number_of.get(storage[0]) if storage is not None else None

    def number(self, tensor: torch.Tensor) -> int | None:
        """The number of the tensor's storage, a new one when it is met first; None where the tensor has none."""
        parts = parts_of(tensor)
        if parts:
            return self.number(parts[-1][1])
        storage = storage_of(tensor)
        if storage is None:
            return None
        known = self.number_of.get(storage[0])
        return self.add(*storage, tensor, None) if known is None else known

    def numbers_of_parts(self, tensor: torch.Tensor) -> list[tuple[str, int]]:
        """The storages of a tensor that is made of others, each with the part's name; the one with the values is last."""
        numbers = [(name, self.number(part)) for name, part in parts_of(tensor)]
        return [(name, number) for name, number in numbers if number is not None]

    def add(self, identity: int, nbytes: int, tensor: torch.Tensor, smaller: torch.Tensor | None) -> int:
        """The number of a storage met for the first time, in `tensor`. `smaller` is given where that may be a Python number."""
        kind: StorageKind = self._owners.get(identity)  # type: ignore[assignment]
        if kind is None:
            kind = "number" if smaller is not None and private.is_wrapped_number(tensor, smaller) else "activation"
        columns = self.columns
        number = self.number_of[identity] = len(columns.kind)
        columns.nbytes.append(nbytes if type(nbytes) is int else -1)  # asking a symbolic size would fix it
        columns.kind.append(kind)
        return number
