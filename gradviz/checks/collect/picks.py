"""Follows what an index picks: numbers of each sample, what is written to a part, and the order that rows were shuffled into.

Reads whether an index names a place twice, a few times for each line. Keeps no tensor.
"""

from __future__ import annotations

from collections import Counter
from types import FrameType
from typing import NamedTuple

import torch

from gradviz.checks.collect.calls import LOSSES, Facts, Observer, TorchCall, reads
from gradviz.checks.collect.lines import line_at, users_frame
from gradviz.checks.collect.numbers import is_readable
from gradviz.checks.words import code
from gradviz.packages import Place, frames_from
from gradviz.recording.torch_calls import PLAIN, is_real
from gradviz.variables.scanner import local_variables
from gradviz.walker.isolation import unrecorded
from gradviz.walker.tensors import storage_of

_OFTEN = 1.5  # how many times the elements of a tensor that are changed, so that some are changed again
_LOOKS = 8  # how often the index of a line is read
_ADDS = ("add", "sub", "iadd", "isub")
_MAPS = ("mul", "div", "truediv", "pow", "sqrt", "rsqrt", "exp", "log", "neg", "rsub", "square", "view", "to", "float")
_WRITES = ("setitem", "fill", "zero", "copy", "masked_fill", "add", "sub", "mul", "div", "iadd", "isub", "iand", "ior")
_CARRIES = ("getitem", "view", "reshape", "to", "float", "long", "unsqueeze", "contiguous", "narrow")
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
        self._shuffles, self._orders = (
            Facts[int](),
            Facts[set[tuple[int, int]]](),
        )  # numbers of permutations, and lengths
        self._left = Facts[int]()  # what was there when others got a new order, and which
        self._shuffled: dict[int, Place | None] = {}  # where each was used last
        self._picks = Facts[_Pick]()
        self._shared = Facts[Place]()  # tensors whose rows are one memory, and parts of them: where that was expanded
        # elements that each line has changed of a tensor; None: others came there
        self._stored = Facts[Counter[object]]()
        self._parts = Facts[bool]()  # tensors of which layers are given parts
        self._inputs: set[tuple[int, int]] = set()  # the orders of what layers were given in a step
        self._rows: set[int] = set()  # indices that name something for each sample
        # numbers of each sample that met columns, by index
        self._met: dict[int, tuple[Place | None, torch.Size, torch.Size]] = {}

    @reads("randperm", "argsort", "sort")
    def _shuffled_by(self, call: TorchCall) -> None:
        index = call.result if type(call.result) in PLAIN else call.result[1]
        self._shuffles.put(index, self._number(index))

    def _forget(self) -> None:
        for index in self._rows & self._met.keys():
            place, *words = self._met[index]
            self._note("sample for column", place, *words)
        for seen in (self._rows, self._met, self._inputs, self._picks, self._left):
            seen.clear()

    def _number(self, index: torch.Tensor) -> int:
        known = self._numbers.of(index)
        if known is None:
            self._count += 1
            self._numbers.put(index, known := self._count)
        return known

    @reads("expand", "expand_as", "broadcast_to")
    def _expanded(self, call: TorchCall) -> None:
        place = call.place if call.makes and any(_repeats(call.result)) else None
        if place is not None:
            self._shared.put(call.result, place)

    @reads("unbind")
    def _parted(self, call: TorchCall) -> None:
        """Parts of what was expanded, as far as they are not copies."""
        place = self._shared.of(call.first)
        for part in call.result if type(call.result) is tuple else (call.result,):
            if place is not None and part._is_view():
                self._shared.put(part, place)

    @reads(*_WRITES)
    def _overwritten(self, call: TorchCall) -> None:
        """A tensor is written to: whether that is a row of several that are one memory."""
        sets = call.name == "setitem"
        if not (sets or call.in_place):
            return
        if sets:
            self._written(call)
        self._changed(call)
        place, items = self._shared.of(call.first), call.arguments[1] if sets else None
        if place is None:
            return
        several = _repeats(call.first)
        parts = [
            type(item) is not slice or item != slice(None) for item in (items if type(items) is tuple else (items,))
        ]
        if not any(several) or any(one and part for one, part in zip(several, parts)):
            self._note("written to all", place, code(line_at(call.place or place)), call.first.shape)

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
        self._parted(call)
        if call.makes and type(index) in PLAIN and index.dim() == 1 and index.dtype == torch.int64:
            self._picks.put(call.result, _Pick(id(call.first), self._number(index)))
            shuffle = self._shuffles.of(index)
            if shuffle is not None:
                self._orders.put(call.result, {(shuffle, len(index))})
                self._shuffled[shuffle] = call.place
                for other in local_variables(users_frame(call.frame) or call.frame).values():
                    if other is not call.first:
                        self._left.put(other, shuffle)
            if call.first.requires_grad:  # the old order may be put back
                self._left.clear()

    @reads(*_CARRIES)
    def _carried(self, call: TorchCall) -> None:
        order = self._orders.of(call.first)
        if order is not None and not self._orders.of(call.result):
            self._orders.put(call.result, order)
        left = self._left.of(call.first)
        if left is not None:
            self._left.put(call.result, left)

    @reads(*_ADDS, *_MAPS)
    def _computed(self, call: TorchCall) -> None:
        """Something is computed of what was picked: by itself, or with what has more dimensions."""
        if self._orders:
            self._mixes(call)
        for given, other in call.pairs:
            pick = self._picks.of(given)
            if pick is not None and call.makes and given.shape == call.result.shape:
                added = call.name in _ADDS
                self._picks.put(call.result, pick._replace(added=pick.added or added, scaled=pick.scaled or not added))
                return
            elif pick is not None and type(other) in PLAIN and _meets_columns(given, other):
                self._met[pick.by] = call.place, given.shape, other.shape

    def _mixes(self, call: TorchCall) -> None:
        """What is computed has the rows of all that it is computed of; in a sum, some may be in the old order."""
        orders = {one for given in call.arguments[:2] for one in self._orders.of(given) or ()}
        if orders:
            self._orders.put(call.result, orders)
            if call.name in _ADDS:
                self._left.clear()

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

    @reads(*_LAYERS)
    def _begins(self, call: TorchCall) -> None:
        """A layer is given data, or the row of something for each sample."""
        data = call.arguments[1] if call.name == "embedding" else call.first
        if type(data) not in PLAIN:
            return
        order = self._orders.of(data)
        if order is not None:
            self._inputs |= order
        if data._base is not None and data._base.numel() >= 2 * data.numel():
            self._parts.put(data._base, True)
        if call.name == "embedding" and data.dim() == 1:
            self._rows.add(self._number(data))

    @reads(*LOSSES)
    def _compared(self, call: TorchCall) -> None:
        """Predictions meet targets: whether these are in the order of what the model was given."""
        order = next(filter(None, map(self._orders.of, call.arguments[:2])), self._inputs)
        for shuffle, length in order:
            if order.isdisjoint(self._inputs) and length in {known for _, known in self._inputs}:
                self._note("shuffled apart", self._shuffled[shuffle], length)
        left = self._left.of(call.arguments[1])
        if order is self._inputs and left is not None and (left, *call.arguments[1].shape[:1]) in self._inputs:
            self._note("sorted apart", self._shuffled[left], len(call.arguments[1]))


def _loads(frame: FrameType) -> bool:
    """Whether a loader of data makes a batch here."""
    return frame.f_globals.get("__name__") == "torch.utils.data._utils.fetch"


def _repeats(tensor: torch.Tensor) -> list[bool]:
    """Of which dimensions all rows are one memory."""
    return (
        [size > 1 and not step for size, step in zip(tensor.shape, tensor.stride())]
        if tensor.layout is torch.strided
        else []
    )


def _meets_columns(given: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a number for each row is broadcast to the columns, which are as many."""
    return given.dim() == 1 < other.dim() and is_real(given) and other.shape[0] == other.shape[-1] == len(given) > 1
