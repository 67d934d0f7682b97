"""Follows what an index picks: numbers of each sample, and what is written to a part.

Reads whether an index names a place twice, a few times for each line. Keeps no tensor.
"""

from __future__ import annotations

from collections import Counter
from types import FrameType
from typing import NamedTuple

import torch

from gradviz.checks.collect.calls import Facts, Observer, TorchCall, reads
from gradviz.checks.collect.numbers import is_readable
from gradviz.cuts.torch_calls import PLAIN, is_real
from gradviz.packages import Place, frames_from
from gradviz.walker.isolation import unrecorded
from gradviz.walker.tensors import storage_of

_OFTEN = 1.5  # how many times the elements of a tensor that are changed, so that some are changed again
_LOOKS = 8  # how often the index of a line is read
_ADDS = ("add", "sub", "iadd", "isub")
_MAPS = ("mul", "div", "truediv", "pow", "sqrt", "rsqrt", "exp", "log", "neg", "rsub", "square", "view", "to", "float")
_WRITES = ("setitem", "fill", "zero", "copy", "masked_fill", "add", "sub", "mul", "div", "iadd", "isub", "iand", "ior")
_LAYERS = ("linear", "conv1d", "conv2d", "batch_norm", "embedding", "pack_padded_sequence")


class _Pick(NamedTuple):
    """What an index has picked of a tensor, and what was done with it."""

    table: int
    by: int
    added: bool = False
    scaled: bool = False


class PickWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._numbers, self._count = Facts[int](), 0  # of indices
        self._picks = Facts[_Pick]()
        # elements that each line has changed of a tensor; None: others came there
        self._stored = Facts[Counter[object]]()
        self._parts = Facts[bool]()  # tensors of which layers are given parts
        self._rows: set[int] = set()  # indices that name something for each sample
        # numbers of each sample that met columns, by index
        self._met: dict[int, tuple[Place | None, torch.Size, torch.Size, str]] = {}

    def _forget(self) -> None:
        for index in self._rows & self._met.keys():
            place, *words = self._met[index]
            self._note("sample for column", place, *words)
        for seen in (self._rows, self._met, self._picks):
            seen.clear()

    def _number(self, index: torch.Tensor) -> int:
        known = self._numbers.of(index)
        if known is None:
            self._count += 1
            self._numbers.put(index, known := self._count)
        return known

    @reads(*_WRITES)
    def _overwritten(self, call: TorchCall) -> None:
        """A tensor is written to."""
        if call.name == "setitem":
            self._written(call)
        if call.name == "setitem" or call.in_place:
            self._changed(call)

    def _changed(self, call: TorchCall) -> None:
        """A part of stored data is changed: whether that is the second time, and the data is what is trained with."""
        data, line, part = call.first._base, call.line, call.arguments[-1]
        if call.name == "setitem" and type(part) in PLAIN and storage_of(part) == storage_of(call.first):
            return  # data[i] += 1 puts back what has been changed in place
        if data is None or call.name == "copy":
            self._stored.put(call.first, Counter([None]))  # it is filled anew
        elif not data.requires_grad:
            changes = self._stored.of(data) or Counter()
            changes[line] += call.first.numel()
            self._stored.put(data, changes)
            again = changes[line] > _OFTEN * data.numel() and None not in changes
            if again and (self._parts.of(data) or any(map(_loads, frames_from(call.frame)))):
                self._note("data written", call.place, data.shape)
                changes[None] += 1

    @reads("getitem", "index_select", "take")
    def _picked(self, call: TorchCall) -> None:
        index = call.arguments[-1]
        if call.makes and type(index) in PLAIN and index.dim() == 1 and index.dtype == torch.int64:
            self._picks.put(call.result, _Pick(id(call.first), self._number(index)))

    @reads(*_ADDS, *_MAPS)
    def _computed(self, call: TorchCall) -> None:
        """Something is computed of what was picked: by itself, or with what has more dimensions."""
        for given, other in call.pairs:
            pick = self._picks.of(given)
            if pick is not None and call.makes and given.shape == call.result.shape:
                added = call.name in _ADDS
                self._picks.put(call.result, pick._replace(added=pick.added or added, scaled=pick.scaled or not added))
                return
            elif pick is not None and type(other) in PLAIN and _meets_columns(given, other):
                self._met[pick.by] = call.place, given.shape, other.shape, ", 1" * (other.dim() - 1)

    def _written(self, call: TorchCall) -> None:
        """A sum of what was picked is written back to where it comes from."""
        table, index, value = call.arguments
        pick = self._picks.of(value)
        if pick is None or not pick.added or pick.scaled or type(index) not in PLAIN:
            return
        same = (pick.table, pick.by) == (id(table), self._numbers.of(index))
        if same and is_readable(index) and self._looks(call.line, _LOOKS):
            with unrecorded():
                different = index.unique().numel()
            if different < index.numel():
                self._note("added once", call.place, index.numel(), different)

    @reads("randint")
    def _drawn(self, call: TorchCall) -> None:
        """Something is drawn for each sample, as the times of a diffusion are."""
        if type(call.result) in PLAIN and call.result.dim() == 1:
            self._rows.add(self._number(call.result))

    @reads(*_LAYERS)
    def _begins(self, call: TorchCall) -> None:
        """A layer is given data, or the row of something for each sample."""
        data = call.arguments[1] if call.name == "embedding" else call.first
        if type(data) not in PLAIN:
            return
        if data._base is not None and data._base.numel() >= 2 * data.numel():
            self._parts.put(data._base, True)
        if call.name == "embedding" and data.dim() == 1:
            self._rows.add(self._number(data))


def _loads(frame: FrameType) -> bool:
    """Whether a loader of data makes a batch here."""
    return frame.f_globals.get("__name__") == "torch.utils.data._utils.fetch"


def _meets_columns(given: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a number for each row is broadcast to the columns, which are as many."""
    return given.dim() == 1 < other.dim() and is_real(given) and other.shape[0] == other.shape[-1] == len(given) > 1
