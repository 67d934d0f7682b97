"""How large one gradient is: its norm, largest entry, share of zeros and entries that are no finite number."""

from __future__ import annotations

import math
import weakref
from typing import NamedTuple

import torch

from gradviz.errors import GradientError, reason_of
from gradviz.walker.values import why_unreadable


class Size(NamedTuple):
    """The size of one gradient. `max` is the largest absolute value, `zeros` the share of zeros (0 to 1), `nonfinite` the
    number of NaN and infinite entries. `norm` and `max` are NaN or infinite when entries are."""

    norm: float
    max: float
    zeros: float
    nonfinite: int


_WIDE = (torch.float32, torch.float64, torch.complex64, torch.complex128)
NOTHING = Size(0.0, 0.0, 0.0, 0)


def size(gradient: torch.Tensor) -> Size:
    """The size of a gradient, computed in float64. Entries that a sparse gradient leaves out count as zeros.

    Raises GradientError for a tensor without numbers, and for one of a class that lacks an operation.

    >>> size(torch.tensor([3.0, 4.0, 0.0, 0.0]))
    Size(norm=5.0, max=4.0, zeros=0.5, nonfinite=0)
    """
    reason = why_unreadable(gradient)
    if reason:
        raise GradientError(f"a gradient cannot be measured: it {reason}")
    try:
        return _size(gradient)
    except Exception as error:
        kind = type(gradient).__name__
        raise GradientError(f"a gradient cannot be measured: it is a {kind}, and {reason_of(error)}") from error


def _size(gradient: torch.Tensor) -> Size:
    with torch.no_grad():
        entries = _entries(gradient.detach())
        count = _count(gradient, entries)
        if not entries.numel():
            return Size(0.0, 0.0, 1.0, 0) if count else NOTHING
        if entries.dtype not in _WIDE:  # exact, and has the operations that small types lack
            entries = entries.to(torch.complex64 if entries.dtype.is_complex else torch.float32)
        norm = float(torch.linalg.vector_norm(entries, dtype=_double(entries)))
        largest = float(torch.linalg.vector_norm(entries, math.inf, dtype=_double(entries)))
        zeros = 1 - int(torch.count_nonzero(entries)) / count
        nonfinite = 0 if math.isfinite(norm) else entries.numel() - int(torch.isfinite(entries).sum())
    return Size(norm, largest, max(zeros, 0.0), nonfinite)


def _double(entries: torch.Tensor) -> torch.dtype:
    return torch.complex128 if entries.dtype.is_complex else torch.float64


def _entries(gradient: torch.Tensor) -> torch.Tensor:
    """A dense tensor of what the gradient stores."""
    if gradient.layout == torch.sparse_coo:
        return gradient.coalesce().values()
    if gradient.layout in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        return gradient.values()
    if gradient.is_nested:
        return gradient.values()
    return gradient.to_dense() if gradient.is_mkldnn else gradient


def _count(gradient: torch.Tensor, entries: torch.Tensor) -> int:
    return entries.numel() if gradient.is_nested else gradient.numel()


class Sizes:
    """Sizes of gradients that are handed on unchanged, so that each is measured once. Keeps none of them alive."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[torch.Tensor], Size]] = {}

    def of(self, gradient: torch.Tensor) -> Size:
        """`size(gradient)`, looked up when this very tensor was asked about before."""
        known = self._known.get(id(gradient))
        if known is not None and known[0]() is gradient:
            return known[1]
        measured = size(gradient)
        self._known[id(gradient)] = (weakref.ref(gradient), measured)
        if len(self._known) > 10_000:
            self._known = {key: entry for key, entry in self._known.items() if entry[0]() is not None}
        return measured
