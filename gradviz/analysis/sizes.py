"""Bytes of a tensor from its shape and dtype alone, for tensors whose storage nobody has asked. Knows nothing of torch."""

from __future__ import annotations

import re

from gradviz.graph import TensorInfo

_BITS = re.compile(r"\d+")


def item_bytes(dtype: str) -> int | None:
    """Bytes of one element. None for a name that is no dtype.

    >>> [item_bytes(name) for name in ("float32", "bfloat16", "complex64", "bool", "float8_e4m3fn", "quint4x2")]
    [4, 2, 8, 1, 1, 1]
    """
    if dtype == "bool":
        return 1
    bits = _BITS.search(dtype)
    return (int(bits[0]) + 7) // 8 if bits else None


def tensor_bytes(tensor: TensorInfo) -> int | None:
    """Bytes of a dense tensor of this shape; None where a size is not a number.

    >>> tensor_bytes(TensorInfo((3, 4), "float32", "cpu"))
    48
    """
    total = item_bytes(tensor.dtype)
    for size in tensor.shape if tensor.shape is not None else ("?",):
        if total is None or not isinstance(size, int):
            return None
        total *= size
    return total
