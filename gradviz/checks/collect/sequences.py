"""Follows the batches of a step, in their order, to what masks and losses make of them: what may be seen, and what is to be said.

Sequences are told from each other by their first rows, of which the numbers are kept until backward. Keeps no tensor.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch

from gradviz.checks.collect.calls import RECURRENT, Facts, Observer, TorchCall, reads
from gradviz.checks.collect.dimensions import modules_around
from gradviz.checks.collect.labels import LARGEST, padding_of
from gradviz.checks.collect.lines import line_at, users_frame
from gradviz.checks.collect.numbers import is_readable
from gradviz.cuts.torch_calls import PLAIN
from gradviz.packages import Place
from gradviz.source.code_line import inverted, passing
from gradviz.source.search import lines_behind
from gradviz.walker.isolation import unrecorded

STEPS = 6
"""Backward calls before which sequences are followed."""
_ROWS, _WIDTH = 8, 64  # of a batch, that are compared
_SUMMARIES = 1  # keys in front of the sequence that stand for all of it
_NEAR = 1  # a score that a softmax gives as much as others
_HIDDEN = -1e4  # a score from which on nothing is left of a softmax
_ENOUGH = 4  # time steps, and different tokens
_BIDIRECTIONAL = 7  # which argument of them says so
Rows = Sequence[Sequence[Any]]
_IS_CAUSAL = (
    "Pass is_causal=True in place of the mask, or torch.tril(...): a bool mask is True where something may be seen"
)
_TRIANGLE = (
    "Invert the mask: it is to hide what comes later, torch.triu(torch.ones(n, n, dtype=torch.bool), diagonal=1)"
)
"""What to do about a mask that hides the past: one of scaled_dot_product_attention, and any other."""


class _Batch(NamedTuple):
    """A batch by its first dimensions, the first rows of its indices, and where these are padded."""

    shape: tuple[int, ...]
    rows: Rows = ()
    padded: Rows = ()

    def is_in(self, shape: Sequence[int]) -> bool:
        """Whether a tensor of this shape, made of the batch, has its order: as it was, flat, or with the features in between."""
        whole = len(shape) > len(self.shape) and tuple(shape[: len(self.shape)]) == self.shape
        return whole or (*shape[:1], *shape[2:]) == self.shape or (len(shape) == 2 and shape[0] == prod(self.shape))


class SequenceWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._followed = Facts[_Batch]()
        self._near = Facts[Place | None]()  # scores of which some are filled with a number near 0, and where
        self._forget()

    def _forget(self) -> None:
        self._followed.clear()
        self._batches: list[_Batch] = []
        self._ordered = False  # something runs from the first step to the last only
        self._sees_all: Place | None = None  # the line that lets each step see later ones

    # -- the batches of a step --------------------------------------------------------------------------------------------

    @reads("embedding", "linear", *RECURRENT)
    def _begins(self, call: TorchCall) -> None:
        """A batch of sequences goes into the model."""
        tokens = call.name == "embedding"
        data = call.arguments[1] if tokens else call.first
        if self._step < STEPS and type(data) in PLAIN and data.dim() == 3 - tokens and torch.is_grad_enabled():
            batch = _batch_of(data, tokens) if not data.requires_grad and is_readable(data) else _Batch(())
            if batch.padded or batch.rows[1:] != batch.rows[:-1]:  # else the positions of all rows
                self._batches.append(batch)
                self._followed.put(call.result, batch)

    @reads("getitem")
    def _shifted(self, call: TorchCall) -> None:
        """The last step of each sequence is left out."""
        batch, index = self._followed.of(call.first), call.arguments[1]
        last = type(index) is tuple and any(type(one) is slice and one == slice(None, -1) for one in index)
        if batch is not None and last and call.result.shape[1] == batch.shape[-1] - 1:
            self._followed.put(call.result, batch._replace(shape=tuple(call.result.shape[:2])))

    @reads()
    def _carried(self, call: TorchCall) -> None:
        """What is computed of a batch, in its order."""
        if self._followed and call.arguments:
            made = call.result[0] if type(call.result) is tuple and call.result else call.result
            batch = next(filter(None, map(self._followed.of, call.arguments[:2])), None)
            if batch is not None and type(made) in PLAIN and batch.is_in(made.shape) and not self._followed.of(made):
                self._followed.put(made, batch)

    # -- what each step sees ----------------------------------------------------------------------------------------------

    @reads(*RECURRENT)
    def _recurs(self, call: TorchCall) -> None:
        if self._batches and call.first.dim() == 3:
            both = bool(call.arguments[_BIDIRECTIONAL])
            self._ordered |= not both
            self._sees_all = call.place if both else self._sees_all

    @reads("scaled_dot_product_attention")
    def _attends(self, call: TorchCall) -> None:
        mask, causal = call.given(3, "attn_mask"), call.given(5, "is_causal", False)
        queries, keys = (one.shape[-2] if type(one) in PLAIN else 0 for one in call.arguments[:2])
        if type(mask) in PLAIN:
            self._hides(call, mask)
        elif self._batches and queries == keys > 1:
            self._ordered |= causal
            self._sees_all = self._sees_all if causal else call.place

    @reads("masked_fill")
    def _filled(self, call: TorchCall) -> None:
        """A mask puts a number in place of scores: whether a softmax would hide that."""
        mask, number = call.given(1, "mask"), call.given(2, "value")
        near = type(number) in (int, float) and abs(number) < _NEAR and call.makes and call.result.requires_grad
        if near and self._looks(call.line, STEPS) and is_readable(mask):
            with unrecorded():
                parts = bool((mask.any(-1) & ~mask.all(-1)).any())  # else whole rows, which nobody reads
            self._near.put(call.result, call.place if parts else None)

    @reads("softmax")
    def _weighs(self, call: TorchCall) -> None:
        """Scores become weights, with what a mask has hidden far below."""
        self._note("hides nothing", self._near.of(call.first))
        if call.makes and call.result.requires_grad:
            self._hides(call, call.first)

    def _hides(self, call: TorchCall, mask: torch.Tensor) -> None:
        """Some keys are hidden: from all queries, as padding is, or from those that are earlier."""
        keys = mask.shape[-1] if mask.dim() > 1 else 0
        batches = [batch for batch in self._batches if 0 <= keys - batch.shape[1] <= _SUMMARIES]
        if not batches or not is_readable(mask):
            return
        with unrecorded():
            last = mask[..., -1, :].reshape(-1, keys) if mask.dim() > 2 else mask
            for batch in batches:
                each, rest = divmod(len(last), batch.shape[0])
                rows = _hidden(last[::each][:_ROWS, -batch.shape[1] :]) if batch.padded and not rest else []
                if rows and rows == [[not one for one in row] for row in batch.padded]:
                    self._hidden_wrong("mask inverted", call, mask.shape)
            if mask.shape[-2] == keys >= _ENOUGH:
                self._orders(call, _hidden(mask.reshape(-1, keys, keys)[0, :_WIDTH]))

    def _orders(self, call: TorchCall, square: Rows) -> None:
        """Each query of one sequence with each key of it."""
        places = range(len(square))
        hidden = [[[key < query + itself for key in places] for query in places] for itself in (0, 1)]
        if square in hidden:
            self._hidden_wrong("past hidden", call, len(square), whole=square == hidden[1])
        else:
            self._ordered |= square[0][-1]
            self._sees_all = self._sees_all if square[0][-1] else call.place

    def _hidden_wrong(self, kind: str, call: TorchCall, *words: object, whole: bool = True) -> None:
        """A mask hides what it should keep. `whole`: inverted, it would be right."""
        place, users = call.place, users_frame(call.frame)
        if place is None or users is None:
            return
        source, own = line_at(place), {type(one) for one in modules_around(call.frame)} <= {torch.nn.Softmax}
        if own and call.name == "softmax":
            source = next((line for line in lines_behind(source) if "masked_fill" in line.text), source)
        new = inverted(source) if whole else ""
        bare = [users.f_locals.get(name) for name in re.findall(r"=~(\w+)\b(?![.(\[])", new)]
        if any(getattr(one, "dtype", None) != torch.bool for one in bare):
            new = ""
        if own and kind == "past hidden" and call.name != "softmax":
            new, words = passing(source, [call.name], attn_mask="", is_causal="True"), (*words, _IS_CAUSAL)
        self._note(kind, source, *words, _TRIANGLE, mended=new)

    # -- what is to be said ---------------------------------------------------------------------------------------------------

    @reads("cross_entropy_loss", "nll_loss_nd")
    def _classified(self, call: TorchCall) -> None:
        """Scores meet the labels of a batch."""
        scores, labels = call.arguments[:2]
        batch = self._followed.of(scores) if type(scores) in PLAIN else None
        if batch is None or type(labels) not in PLAIN or labels.dtype != torch.int64 or not is_readable(labels):
            return
        if batch.rows and labels.numel() == prod(batch.shape):
            rows = labels.detach().reshape(batch.shape)[:_ROWS, :_WIDTH].tolist()
            self._predicts(call, batch, rows)

    def _predicts(self, call: TorchCall, batch: _Batch, rows: Rows) -> None:
        """Each position of a sequence is to say a token: which, and whether it is told that."""
        ignored = call.arguments[4]
        known = [
            (row[i], tokens[i : i + 2])
            for row, tokens in zip(rows, batch.rows)
            for i in range(len(row))
            if row[i] != ignored
        ]
        tokens, total = {label for label, _ in known}, sum(map(len, rows))
        if len(tokens) < _ENOUGH or len(known) * 2 < total or batch.shape[1] < _ENOUGH:
            return
        if self._ordered and all(label == now[0] for label, now in known):
            self._note("not shifted", call.place, batch.shape)
        elif sum(map(bool, (other.rows for other in self._batches))) == 1 and all(
            label == now[1] for label, now in known if len(now) > 1
        ):
            self._note("sees what comes", self._sees_all, batch.shape)


def _batch_of(data: torch.Tensor, tokens: bool) -> _Batch:
    """What is known of tokens, or of sequences of other data."""
    padding = padding_of(data)
    with unrecorded():
        part = data[:_ROWS, :_WIDTH]
        padded = part == padding.value if padding is not None else part[:0]
        rows = part.tolist() if tokens and data.numel() <= LARGEST else ()
        return _Batch(tuple(data.shape[:2]), rows, (padded if tokens else padded.flatten(2).all(2)).tolist())


def _hidden(mask: torch.Tensor) -> list[list[bool]]:
    """Which keys a mask hides: where it is False, or far below."""
    part = mask[:, :_WIDTH]
    hidden: list[list[bool]] = (~part if part.dtype == torch.bool else part <= _HIDDEN).tolist()
    return hidden
