"""Sees what losses and means are given: padding that counts, classes that are left out, and labels of one class.

Padding is known by its numbers: rows of a batch end with one value, from different places on, and have it nowhere else. Reads a
few batches of each line, and what is computed of padding is followed while it lives. Keeps no tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from gradviz.checks.collect.calls import Facts, Observer, TorchCall, reads
from gradviz.checks.collect.dimensions import maker
from gradviz.checks.collect.numbers import is_readable
from gradviz.cuts.torch_calls import PLAIN
from gradviz.graph import SourceLine
from gradviz.packages import Place
from gradviz.walker.isolation import unrecorded

LARGEST = 1_000_000
"""Elements of a tensor whose numbers are read."""
_LOOKS = 6  # batches of a line that are read for padding
_ENOUGH, _BATCHES = 64, 3  # labels of one class, and batches of them, from which it is said
_JUDGED, _FEW = 256, 8  # labels, and those of a class, that say how often it comes
_SAME = 2  # how far equal shares may differ
_LOSSES = ("CTCLoss", "BCEWithLogitsLoss", "CrossEntropyLoss", "NLLLoss")
_NEAR = 1e-4  # how far equal scores may differ
_SUM = 0.1  # how far the sum of probabilities may be from 1, as a logarithm
_CONSTANT = ("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full")
_FLAT = ("reshape", "view", "flatten", "contiguous", "long", "to", "clone", "expand", "repeat")
_SIGNED = {"cosine_embedding_loss": 2, "margin_ranking_loss": 2, "hinge_embedding_loss": 1, "soft_margin_loss": 1}
"""Losses whose targets are 1 or -1, and at which place they are given."""
_ERRORS = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
_POINTWISE = (
    *("square", "pow", "abs", "sub", "add", "neg", "relu", "tanh", "gelu", "mul", "div"),
    *("dropout", "layer_norm", "linear", "index_select"),
)
_MASKS = ("mul", "masked_fill", "where")
_LAYERS = ("linear", "gru", "lstm", "rnn_tanh", "rnn_relu")
_OVER_CLASSES = ("cross_entropy_loss", "nll_loss_nd", "binary_cross_entropy", "binary_cross_entropy_with_logits")


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
    made: SourceLine | None = None  # where the code makes the module of the loss
    counts: Counter[int] = field(default_factory=Counter)  # of each class, without what is ignored
    batches: int = 0
    constant: bool = False  # labels that the code made so: the first of several candidates is the right one
    signed: bool = False  # the loss expects 1 and -1
    weights: Sequence[float] = ()
    blank: tuple[int, int] | None = None  # of CTC, and how many classes there are
    ignored: int | None = None  # the label that is left out
    padding: Padding | None = None  # of the first batch that looks padded
    inside: set[int] = field(default_factory=set)  # classes that another one comes after, in a sequence: no padding

    def add(self, labels: Any) -> None:
        """Another batch of labels."""
        self.batches += 1
        with unrecorded():
            self.counts.update(dict(zip(*(one.tolist() for one in labels.unique(return_counts=True)))))

    def end(self, labels: Any) -> None:
        """Another batch of labels that all count alike, as sequences."""
        self.padding = self.padding or padding_of(labels)
        if labels.dim() > 1:
            before, after = labels[:, :-1], labels[:, 1:]
            self.inside.update(before[before != after].tolist())

    @property
    def inverted(self) -> bool:
        """Whether the weights are in proportion to how often classes come, which is not alike."""
        counts = [self.counts[label] for label in range(len(self.weights))]
        shares = [weight / max(count, 1) for weight, count in zip(self.weights, counts)]
        enough = sum(counts) >= _JUDGED and min(counts) >= _FEW and max(counts) > 2 * min(counts)
        return enough and max(shares) < _SAME * min(shares)


class _Followed(NamedTuple):
    """What is known of a tensor: "flat" of which shape, "constant" at which version, "masked", "padded" or "recurrent" with
    which padding."""

    kind: str
    about: Any


def _wins_with_itself(scores: torch.Tensor, labels: torch.Tensor) -> bool:
    """Whether the diagonal of a square of scores has one number, which is the largest of each row and in no row the right one."""
    with unrecorded():
        own = scores.diagonal()
        alike = len(own) > _FEW and is_readable(scores) and bool(((own - own[0]).abs() <= _NEAR * own[0].abs()).all())
        largest = alike and bool((own >= scores.amax(1) - _NEAR * own.abs()).all())
        return largest and not (labels == torch.arange(len(own), device=labels.device)).any()


def padding_of(tensor: torch.Tensor) -> Padding | None:
    """The padding of a batch of sequences, the batch first.

    >>> padding_of(torch.tensor([[5, 2, 7, 3], [4, 6, 0, 0], [8, 0, 0, 0]]))
    Padding(value=0.0, padded=5, total=12, rows=2, all_rows=3)
    >>> padding_of(torch.tensor([[5, 0, 7, 3], [4, 6, 0, 0], [8, 0, 0, 0]]))
    >>> padding_of(torch.tensor([[1, 2, 3, 8], [4, 6, 8, 8], [7, 8, 8, 8]]))  # sorted
    """
    readable = is_readable(tensor) and not tensor.is_complex() and 4 <= tensor.numel() <= LARGEST
    if not readable or tensor.dim() not in (2, 3) or tensor.shape[1] < 2:
        return None
    with unrecorded():
        numbers = tensor.reshape(*tensor.shape[:2], -1)
        numbers = numbers.int() if numbers.dtype == torch.bool else numbers
        value = numbers[:, -1, 0].mode().values
        same = (numbers == value).all(2)
        lengths = same.flip(1).int().cumprod(1).sum(1)
        count, longest = int(lengths.sum()), int(lengths.max())
        ends = count >= 3 and longest > 1 and int(lengths.min()) < longest and int((lengths > 0).sum()) > 1
        is_sorted = ends and bool((numbers.diff(dim=1) >= 0).all()) and len(torch.unique(numbers)) > 2  # else a mask
        if not ends or is_sorted or int(same.sum()) != count:
            return None
        return Padding(float(value), count, same.numel(), int((lengths > 0).sum()), len(lengths))


class LabelWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._facts = Facts[_Followed]()
        self._means: dict[int, tuple[str, Place | None, tuple[str, ...]]] = {}  # until backward, by identity
        self._times = Facts[tuple[str, ...]]()  # scores that a mask has multiplied
        self._classes: dict[object, _Classes] = {}

    def _forget(self) -> None:
        """The means that a call begins at are what they are."""
        for kind, place, words in self._means.values():
            self._note(kind, place, *words)
        self._means.clear()
        self._facts.clear()
        self._times.clear()

    @reads(*_CONSTANT)
    def _made(self, call: TorchCall) -> None:
        self._follow(call.result, "constant", _version(call.result))

    def _of(self, tensor: object, *kinds: str) -> Any:
        """What is known of a tensor, if it is of these kinds."""
        fact = self._facts.of(tensor)
        return fact.about if fact is not None and fact.kind in kinds else None

    def _padding(self, tensor: Any, call: TorchCall) -> Padding | None:
        """The padding of a tensor, as far as one of its line is still to be read."""
        data = type(tensor) in PLAIN and not tensor.requires_grad
        return padding_of(tensor) if data and self._looks(call.users_line, _LOOKS) else None

    def _tell(self, kind: str, padding: Padding | None, call: TorchCall) -> None:
        if padding is not None:
            self._note(kind, call.place, *padding.words())

    @reads(*_ERRORS)
    def _error(self, call: TorchCall) -> None:
        if len(call.arguments) > 2 and call.arguments[2]:
            self._tell("padding in error", self._padding(call.arguments[1], call), call)

    # -- what padding is computed with ------------------------------------------------------------------------------------

    @reads("embedding")
    def _embedded(self, call: TorchCall) -> None:
        self._follow(call.result, "padded", self._padding(call.arguments[1], call))

    @reads(*_OVER_CLASSES[2:])
    def _swapped(self, call: TorchCall) -> None:
        """A loss takes hard labels for probabilities, and probabilities for labels; or weighs the positives."""
        given, target = call.arguments[:2]
        weight: Any = call.arguments[3] if call.name.endswith("logits") else None
        seen = (
            self._seen(call, target) if type(weight) in PLAIN and weight.numel() == 1 and is_readable(target) else None
        )
        if seen is not None:
            seen.weights, seen.constant = (1, float(weight)), True
            seen.add(target)
        if type(given) in PLAIN and type(target) in PLAIN and target.requires_grad and not given.requires_grad:
            with unrecorded():
                hard = is_readable(given) and bool(((given == 0) | (given == 1)).all())
            self._note("swapped", call.place if hard else None, call.name)

    @reads(*_MASKS)
    def _masked(self, call: TorchCall) -> None:
        """Elements are multiplied by a mask, or filled where it says so."""
        recorded = type(call.result) in PLAIN and call.result.requires_grad
        for mask in call.arguments[:2] if recorded else ():
            padding = self._padding(mask, call) if type(mask) in PLAIN and mask.dim() in (2, 3) else None
            sums = (padding.padded, padding.total - padding.padded) if padding is not None else ()
            if padding is not None and padding.value in (0, 1) and int(mask.sum()) in sums:
                self._follow(call.result, "masked", padding)
                if call.name == "mul":
                    self._times.put(call.result, padding.words())

    @reads(*_FLAT)
    def _flattened(self, call: TorchCall) -> None:
        """Labels get another shape."""
        if call.makes and call.first.dim() > call.result.dim():
            self._follow(call.result, "flat", self._of(call.first, "flat") or call.first.shape)
        if self._of(call.first, "constant") == _version(call.first):
            self._follow(call.result, "constant", _version(call.result))

    @reads("mean")
    def _averaged(self, call: TorchCall) -> None:
        padding, rank = self._of(call.first, "masked", "padded", "recurrent"), call.makes and call.result.dim()
        if padding is not None and rank == 0 and self._of(call.first, "masked"):
            self._means[id(call.result)] = "masked mean", call.place, padding.words()
        elif padding is not None and rank == 2 and call.first.dim() == 3 and call.dim in (1, -2):
            self._tell("padded mean", padding if not self._of(call.first, "masked") else None, call)

    @reads("div", "truediv", "mul")
    def _divided(self, call: TorchCall) -> None:
        for one, _ in call.pairs:
            self._means.pop(id(one), None)

    @reads("softmax", "log_softmax")
    def _weighs(self, call: TorchCall) -> None:
        """Scores become weights: those that a mask has set to 0 get some, unless the mask comes once more."""
        words = self._times.of(call.first)
        if words is not None:
            self._times.put(call.result, words)
            self._means[id(call.result)] = "times mask", call.place, words

    @reads("pad_packed_sequence")
    def _unpacked(self, call: TorchCall) -> None:
        """Sequences of different lengths are padded again."""
        output, lengths = call.result
        padded = int((lengths < lengths.max()).sum())
        if padded and call.arguments[2]:
            total = len(lengths) * output.shape[1]
            self._follow(output, "recurrent", Padding(0, total - int(lengths.sum()), total, padded, len(lengths)))

    @reads("getitem")
    def _picked(self, call: TorchCall) -> None:
        index = call.arguments[1]
        if type(index) is tuple and index[:2] == (slice(None), -1):
            self._tell("last of padded", self._of(call.first, "recurrent"), call)

    @reads(*_LAYERS)
    def _layered(self, call: TorchCall) -> None:
        """A layer is given sequences that may be data."""
        padding = self._of(call.first, "padded")
        if padding is None and type(call.first) in PLAIN and call.first.dim() == 3:
            padding = self._padding(call.first, call)
        made = call.result[0] if type(call.result) is tuple else call.result
        if padding is not None and made.shape[:2] == call.first.shape[:2]:
            self._follow(made, "padded" if call.name == "linear" else "recurrent", padding)

    @reads(*_POINTWISE)
    def _passed(self, call: TorchCall) -> None:
        new = call.makes and self._facts.of(call.result) is None
        kept = new and call.result.shape[:2] == call.first.shape[:2]
        for kind in ("masked", "padded", "recurrent") if kept else ():
            self._follow(call.result, kind, self._of(call.first, kind))

    def _follow(self, tensor: Any, kind: str, about: Any) -> None:
        if about is not None:
            self._facts.put(tensor, _Followed(kind, about))

    # -- labels -------------------------------------------------------------------------------------------------------------

    @reads(*_OVER_CLASSES[:2])
    def _classified(self, call: TorchCall) -> None:
        """A loss over classes is computed."""
        scores, labels, weights, averaged, ignored = call.arguments[:5]
        numbers = type(labels) in PLAIN and labels.dtype == torch.int64 and is_readable(labels) and labels.numel()
        seen = self._seen(call, labels) if numbers else None
        if seen is None:
            return
        seen.ignored = ignored
        seen.add(labels[labels != ignored])
        seen.weights = weights.tolist() if weights is not None else ()
        if scores.dim() == 2 and scores.shape[0] == scores.shape[1]:  # pairs, of which each has its own place
            self._paired(call, seen)
        else:
            seen.constant |= self._of(labels, "constant") == _version(labels)
        if averaged and weights is None:
            seen.end(labels.detach().reshape(self._of(labels, "flat") or labels.shape))
        if seen.padding is None or seen.padding.value == ignored:
            self._ignores(call, seen, ignored)

    def _paired(self, call: TorchCall, seen: _Classes) -> None:
        """A loss over the similarities of each sample with each."""
        if call.makes and call.result.requires_grad and _wins_with_itself(call.first, call.arguments[1]):
            self._note("with itself", seen.place, call.first.shape[0])

    def _ignores(self, call: TorchCall, seen: _Classes, ignored: int) -> None:
        """Whether all labels are left out of a loss, or those of a class."""
        scores, labels = call.arguments[:2]
        left, total = int((labels == ignored).sum()), labels.numel()
        words = ignored, f"{left:,}", f"{total:,}"
        single = scores.dim() == 2 and self._of(labels, "flat") is None and self._facts.of(scores) is None
        if left == total and call.arguments[3] == 1:
            self._note("all ignored", seen.place, *words)
        elif left and ignored >= 0 and single and not _is_flattened(scores):
            self._note("class ignored", seen.made or seen.place, *words, scores.shape[1])

    def _seen(self, call: TorchCall, labels: torch.Tensor) -> _Classes | None:
        """What is known of the labels of a line, as far as more of them are to be read."""
        line = call.users_line
        if line not in self._classes:
            self._classes[line] = _Classes(call.place, maker(call.frame, _LOSSES))
        seen = self._classes[line]
        return seen if seen.batches < _BATCHES * _LOOKS and labels.numel() <= LARGEST else None

    @reads(*_SIGNED)
    def _sided(self, call: TorchCall) -> None:
        """Targets are to be 1 or -1."""
        target = call.arguments[_SIGNED[call.name]]
        seen = self._seen(call, target) if is_readable(target) else None
        if seen is not None:
            seen.signed = True
            seen.add(target)

    @reads("ctc_loss")
    def _spelled(self, call: TorchCall) -> None:
        """A loss aligns labels with time steps, and one of its classes is the blank between them."""
        scores, labels, _, lengths, blank = call.arguments[:5]
        seen = self._seen(call, labels) if is_readable(labels) and is_readable(scores) else None
        if seen is not None:
            seen.blank = blank, scores.shape[-1]
            with unrecorded():
                chances = scores.detach().logsumexp(-1).abs().max() < _SUM
            self._note("no logarithms", None if chances else call.place)
            used = torch.arange(labels.shape[-1]) < torch.as_tensor(lengths)[:, None] if labels.dim() > 1 else ...
            seen.add(labels[used])

    def ended(self) -> None:
        """Nothing more comes: which lines have seen one class only."""
        for seen in self._classes.values():
            self._judge(seen)

    def _judge(self, seen: _Classes) -> None:
        """What all labels of a line say."""
        total, padding = seen.counts.total(), seen.padding
        if padding is not None and padding.value not in seen.inside | {seen.ignored}:
            self._note("padding in loss", seen.made or seen.place, *padding.words(), seen.ignored)
        elif seen.blank is not None:
            self._takes_blank(seen, *seen.blank)
        elif seen.signed:
            place = seen.place if seen.counts.keys() == {0, 1} else None
            self._note("not signed", place, f"{seen.counts[0]:,}", f"{total:,}")
        elif len(seen.counts) == 1 and seen.batches >= _BATCHES and total >= _ENOUGH and not seen.constant:
            self._note("one class", seen.place, *seen.counts, f"{total:,}")
        elif seen.inverted:
            counts = sorted(seen.counts.values())
            ratio = f"{max(seen.weights) / min(seen.weights):.3g}"
            at = seen.made or seen.place
            self._note("weighs the frequent", at, ratio, f"{counts[-1]:,}", f"{counts[0]:,}")

    def _takes_blank(self, seen: _Classes, blank: int, classes: int) -> None:
        free = [label for label in range(classes) if label not in seen.counts]
        if seen.counts[blank]:
            words = f"pass blank={free[0]}, which is no label" if len(free) == 1 else "add 1 to all labels"
            self._note(
                "blank",
                seen.made or seen.place,
                blank,
                f"{seen.counts[blank]:,}",
                f"{seen.counts.total():,}",
                words,
            )


def _is_flattened(scores: torch.Tensor) -> bool:
    """Whether scores of several positions of each sample were put into one dimension."""
    base = scores._base
    return base is not None and base.dim() > 2


def _version(tensor: Any) -> int:
    """How often something was written into a tensor, and one more, so that it is not 0."""
    return 1 if type(tensor) not in PLAIN or tensor.is_inference() else tensor._version + 1
