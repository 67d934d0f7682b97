"""Sees what losses and means are given: padding that counts, classes that are left out, and labels of one class.

Padding is known by its numbers: rows of a batch end with one value, from different places on, and have it nowhere else. Reads a
few batches of each line, and what is computed of padding is followed while it lives. Keeps no tensor.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradviz.checks.collect.lines import users_frame
from gradviz.checks.collect.numbers import is_readable
from gradviz.packages import Place, PlaceOf
from gradviz.recording.torch_calls import PLAIN, Given
from gradviz.walker.isolation import isolated

LARGEST = 1_000_000
"""Elements of a tensor whose numbers are read."""
FOLLOWED = 10_000
_LOOKS = 6  # batches of a line that are read for padding
_ENOUGH, _BATCHES = 64, 3  # labels of one class, and batches of them, from which it is said
_CONSTANT = frozenset(
    ["zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"]
)
_FLAT = frozenset(("reshape", "view", "flatten", "contiguous", "long", "to", "clone", "expand", "repeat"))
_ERRORS = frozenset(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"))
_POINTWISE = frozenset(
    [
        "square",
        "pow",
        "abs",
        "sub",
        "add",
        "neg",
        "relu",
        "tanh",
        "gelu",
        "dropout",
        "layer_norm",
        "linear",
        "mul",
        "div",
    ]
)
_MASKS = frozenset(("mul", "masked_fill", "where"))
_RECURRENT = frozenset(("gru", "lstm", "rnn_tanh", "rnn_relu"))
_LAYERS = {"linear", *_RECURRENT}


class Padding(NamedTuple):
    """A batch of sequences that end early: with which value, how many elements of all that is, and in how many rows of all."""

    value: float
    padded: int
    total: int
    rows: int
    all_rows: int

    def words(self) -> tuple[str, ...]:
        return f"{self.value:g}", f"{self.padded:,}", f"{self.total:,}", f"{self.rows:,}", f"{self.all_rows:,}"


@dataclass
class _Classes:
    """What a line that computes a loss over classes was given."""

    place: Place | None
    classes: set[int] = field(default_factory=set)
    batches: int = 0
    count: int = 0  # labels that are not ignored
    constant: bool = False  # labels that the code made so: the first of several candidates is the right one

    def add(self, classes: list[int], count: int, constant: bool) -> None:
        """Another batch of labels."""
        self.classes.update(classes)
        self.batches, self.count, self.constant = self.batches + 1, self.count + count, self.constant or constant


class _Followed(NamedTuple):
    """What is known of a tensor: "flat" of which shape, "constant", "masked", "padded" or "recurrent" with which padding."""

    kind: str
    about: Any = None


def padding_of(tensor: torch.Tensor) -> Padding | None:
    """The padding of a batch of sequences, the batch first.

    >>> padding_of(torch.tensor([[5, 2, 7, 3], [4, 6, 0, 0], [8, 0, 0, 0]]))
    Padding(value=0.0, padded=5, total=12, rows=2, all_rows=3)
    >>> padding_of(torch.tensor([[5, 0, 7, 3], [4, 6, 0, 0], [8, 0, 0, 0]]))
    """
    readable = is_readable(tensor) and not tensor.is_complex() and 4 <= tensor.numel() <= LARGEST
    if not readable or tensor.dim() not in (2, 3) or tensor.shape[1] < 2:
        return None
    with isolated(), torch.no_grad():
        numbers = tensor.detach().reshape(*tensor.shape[:2], -1)
        numbers = numbers.int() if numbers.dtype == torch.bool else numbers
        value = numbers[:, -1, 0].mode().values
        same = (numbers == value).all(2)
        lengths = same.flip(1).int().cumprod(1).sum(1)
        count, longest = int(lengths.sum()), int(lengths.max())
        ends = count >= 3 and longest > 1 and int(lengths.min()) < longest and int((lengths > 0).sum()) > 1
        if not ends or int(same.sum()) != count:
            return None
        return Padding(float(value), count, same.numel(), int((lengths > 0).sum()), len(lengths))


class LabelWatch:
    """Of one run, in one thread. `note` keeps a line with words; `place` tells the user's line of a frame."""

    def __init__(self, place: PlaceOf, note: Callable[..., None]) -> None:
        self._place, self._note = place, note
        self._facts: dict[int, tuple[weakref.ref[torch.Tensor], _Followed]] = {}
        self._means: dict[
            int, tuple[str, Place | None, tuple[str, ...]]
        ] = {}  # by identity, until the call of backward
        self._looked: Counter[tuple[object, int]] = Counter()
        self._classes: dict[tuple[object, int], _Classes] = {}

    def next_step(self) -> None:
        """A call of backward comes: the means that it begins at are what they are."""
        for kind, place, words in self._means.values():
            self._note(kind, place, *words)
        self._means.clear()
        self._facts.clear()

    def seen(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        """A function of torch has returned."""
        name = function.__name__.strip("_")
        if name in _CONSTANT:
            self._put(result, _Followed("constant"))
        elif name in ("cross_entropy_loss", "nll_loss_nd"):
            self._classified(*arguments[:5], frame=frame)
        elif name in _ERRORS and len(arguments) > 2 and arguments[2]:
            self._averaged("padding in error", self._padding(arguments[1], frame), frame)
        elif name == "embedding" and len(arguments) > 1:
            self._put(result, _Followed("padded", self._padding(arguments[1], frame)))
        elif name in _MASKS and len(arguments) > 1 and type(arguments[1]) in PLAIN:
            self._masked(arguments[0], arguments[1], result, frame)
        elif arguments and (fact := self._of(arguments[0])) is not None:
            self._follow(name, fact, arguments, options or {}, result, frame)
        elif name in _LAYERS and type(arguments[0]) in PLAIN and arguments[0].dim() == 3:
            fact = _Followed("padded", self._padding(arguments[0], frame))
            self._follow(name, fact, arguments, options or {}, result, frame)
        elif name in _FLAT and type(result) in PLAIN and arguments[0].dim() > result.dim():
            self._put(result, _Followed("flat", arguments[0].shape))
        if name in ("div", "truediv", "mul") and self._means:
            self._means.pop(id(arguments[0]), None)

    def _put(self, tensor: Any, fact: _Followed) -> None:
        if type(tensor) in PLAIN and len(self._facts) < FOLLOWED and (fact.about or fact.kind == "constant"):
            self._facts[id(tensor)] = weakref.ref(tensor), fact

    def _of(self, tensor: object) -> _Followed | None:
        ref, fact = self._facts.get(id(tensor), (None, None))
        return fact if ref is not None and ref() is tensor else None

    def _line(self, frame: FrameType) -> tuple[object, int]:
        users = users_frame(frame)
        return (users.f_code, users.f_lineno) if users is not None else (None, 0)

    def _padding(self, tensor: Any, frame: FrameType) -> Padding | None:
        """The padding of a tensor, as far as one of its line is still to be read."""
        line = self._line(frame)
        if type(tensor) not in PLAIN or tensor.requires_grad or self._looked[line] >= _LOOKS:
            return None
        self._looked[line] += 1
        return padding_of(tensor)

    def _averaged(self, kind: str, padding: Padding | None, frame: FrameType) -> None:
        if padding is not None:
            self._note(kind, self._place(frame), *padding.words())

    # -- what padding is computed with ------------------------------------------------------------------------------------

    def _masked(self, first: Any, second: Any, result: Any, frame: FrameType) -> None:
        """Elements are multiplied by a mask, or filled where it says so."""
        masks = [one for one in (first, second) if type(one) in PLAIN and not one.requires_grad and one.dim() in (2, 3)]
        recorded = type(result) in PLAIN and result.requires_grad
        for mask in masks if recorded else ():
            padding = self._padding(mask, frame)
            if (
                padding is not None
                and padding.value in (0, 1)
                and int(mask.sum()) in (padding.padded, padding.total - padding.padded)
            ):
                self._put(result, _Followed("masked", padding))

    def _follow(
        self, name: str, fact: _Followed, arguments: Given, options: Any, result: Any, frame: FrameType
    ) -> None:
        kind, padding = fact
        made, given = result[0] if type(result) is tuple and result else result, arguments[0]
        if type(made) not in PLAIN:
            return
        if name in _FLAT and kind in ("constant", "flat"):
            self._put(made, fact)
        elif name == "mean" and made.dim() == 0 and kind == "masked":
            self._means[id(made)] = "masked mean", self._place(frame), padding.words()
        elif name == "mean" and made.dim() == 2 and given.dim() == 3 and kind in ("padded", "recurrent"):
            dim = options.get("dim", arguments[1] if len(arguments) > 1 else None)
            self._averaged("padded mean", padding if dim in (1, -2, [1], (1,)) else None, frame)
        elif name == "getitem" and kind == "recurrent":
            index = arguments[1]
            if type(index) is tuple and index[:2] == (slice(None), -1):
                self._averaged("last of padded", padding, frame)
        elif name in _RECURRENT and kind == "padded" and made.shape[:2] == given.shape[:2]:
            self._put(made, _Followed("recurrent", padding))
        elif name in _POINTWISE and made.shape[:2] == given.shape[:2] and kind != "flat":
            self._put(made, fact)

    # -- labels -------------------------------------------------------------------------------------------------------------

    def _classified(
        self, scores: Any, labels: Any, weight: Any, reduction: int = 1, ignored: int = -100, *, frame: FrameType
    ) -> None:
        """A loss over classes is computed."""
        if type(labels) not in PLAIN or labels.dtype != torch.int64 or not is_readable(labels) or not labels.numel():
            return
        line, fact = self._line(frame), self._of(labels)
        seen = self._classes.setdefault(line, _Classes(self._place(frame)))
        if seen.batches >= _BATCHES * _LOOKS or labels.numel() > LARGEST:
            return
        left, total = int((labels == ignored).sum()), labels.numel()
        seen.add(labels.unique().tolist(), total - left, fact is not None and fact.kind == "constant")
        flat = fact.about if fact is not None and fact.kind == "flat" else ()
        padding = padding_of(labels.detach().reshape(flat or labels.shape)) if reduction and weight is None else None
        words = str(ignored), f"{left:,}", f"{total:,}"
        if padding is not None and padding.value != ignored:
            self._note("padding in loss", seen.place, *padding.words(), str(ignored))
        elif left == total and reduction == 1:
            self._note("all ignored", seen.place, *words)
        elif (
            left
            and ignored >= 0
            and scores.dim() == 2
            and not flat
            and not _is_flattened(scores)
            and self._of(scores) is None
        ):
            self._note("class ignored", seen.place, *words, str(scores.shape[1]))

    def ended(self) -> None:
        """Nothing more comes: which lines have seen one class only."""
        for seen in self._classes.values():
            if len(seen.classes) == 1 and seen.batches >= _BATCHES and seen.count >= _ENOUGH and not seen.constant:
                self._note("one class", seen.place, str(*seen.classes), f"{seen.count:,}")


def _is_flattened(scores: torch.Tensor) -> bool:
    """Whether scores of several positions of each sample were put into one dimension."""
    base = scores._base
    return base is not None and base.dim() > 2
