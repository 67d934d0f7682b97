"""Sees whether rows of a dataset are evaluated on that are trained on, too.

Compares indices of subsets, and rows of tensors with 100,000 elements at most, once for each pair. Keeps no dataset.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from gradviz.checks.collect.calls import ByIdentity, Observer, taps
from gradviz.checks.collect.numbers import is_readable
from gradviz.checks.collect.targets import LARGEST
from gradviz.packages import Place
from gradviz.recording.torch_calls import is_real
from gradviz.walker.isolation import isolated, unrecorded

_WIDE = 2  # numbers of a row that no other row is likely to have, too


class SplitWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._made = ByIdentity[Place | None]()
        self._seen = ByIdentity[bool]()  # datasets that were compared with what was trained on
        self._read: Any = lambda: None  # the dataset that a loader began to read last
        self._trained: Any = self._read  # the last one that a backward call followed

    @taps(Subset.__init__, TensorDataset.__init__)
    def _splits(self, frame: FrameType, made: Any, /, *_: Any, **__: Any) -> None:
        with suppress(TypeError):  # of a class of the user's that cannot be held weakly
            self._made.put(made, self._place(frame))

    @taps(DataLoader.__iter__)
    def _reads(self, frame: FrameType, loader: Any) -> None:
        dataset = getattr(loader, "dataset", None)
        trained = self._trained()
        if isinstance(dataset, (Subset, TensorDataset)):
            self._read = weakref.ref(dataset)
            if not torch.is_grad_enabled() and trained is not None and self._seen.of(dataset) is None:
                self._seen.put(dataset, True)
                with suppress(Exception):  # a subclass of the user's may hold anything
                    self._compare(dataset, trained)

    def _compare(self, dataset: Any, trained: Any) -> None:
        with isolated(), unrecorded():
            rows, others = _rows(dataset), _rows(trained)
        both = len(rows & others)
        if 0 < both < len(rows) and both < len(others):
            self._note("both", self._made.of(dataset), f"{both:,}", f"{len(rows):,}")

    def _forget(self) -> None:
        self._trained = self._read


def _rows(dataset: Any) -> set[Hashable]:
    """What tells the rows of a dataset from each other, in all datasets; empty where that is not known."""
    if isinstance(dataset, Subset):
        few = len(dataset.indices) <= LARGEST
        return {(id(dataset.dataset), int(index)) for index in dataset.indices} if few else set()
    data = dataset.tensors[0]
    if not is_readable(data) or not is_real(data) or data.numel() > LARGEST or data[0].numel() < _WIDE:
        return set()
    return {tuple(row) for row in data.reshape(len(data), -1).tolist()}
