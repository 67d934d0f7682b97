"""Sees what predictions are compared with: other noise than was mixed into the data, similarities that are nearly alike.

Reads a few batches of each line, of 100,000 elements at most. Keeps no tensor.
"""

from __future__ import annotations

from gradviz.checks.collect.calls import Facts, Observer, TorchCall, reads
from gradviz.checks.collect.lines import line_at
from gradviz.cuts.torch_calls import PLAIN
from gradviz.graph import SourceLine

LARGEST, _LOOKS, _INPUTS = 100_000, 16, 4
"""Elements of a tensor whose numbers are read, batches of a line, and inputs of a step."""
_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub")


class TargetWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._draws = Facts[bool]()  # of this step, and whether something was computed with them
        self._mixed: dict[object, SourceLine] = {}  # by shape: where a draw was scaled for each sample

    @reads("randn", "randn_like")
    def _drawn(self, call: TorchCall) -> None:
        self._draws.put(call.result, False)

    @reads("cross_entropy_loss")
    def _classified(self, call: TorchCall) -> None:
        scores = call.first
        if call.makes and scores.shape[1:] == (1,) and len(scores) > 1:
            self._note("one score", call.place, scores.shape)

    def _forget(self) -> None:
        self._draws.clear()
        self._mixed.clear()

    @reads("mul", "add", "sub", "div", "lerp", "addcmul", "linear", "getitem", "where", "matmul")
    def _mixes(self, call: TorchCall) -> None:
        """Something is computed with a draw: whether each sample has its own factor."""
        for given, other in call.pairs if self._draws else ():
            if self._draws.of(given) is not None:
                self._draws.put(given, True)
                each = (
                    type(other) in PLAIN
                    and bool(other.dim())
                    and 1 < len(other) == len(given) == other.numel() < given.numel()
                )
                place = call.place if each else None
                if place is not None:
                    self._mixed[given.shape] = line_at(place)

    @reads(*_LOSSES)
    def _compared(self, call: TorchCall) -> None:
        """Predictions meet numbers."""
        for given, other in call.pairs if self._mixed else ():
            if type(other) in PLAIN and other.requires_grad and self._draws.of(given) is False:
                mixed = self._mixed.get(other.shape)
                if mixed is not None:
                    self._note("other noise", call.place, f"line {mixed.line}", mixed.text)
