"""Sees what predictions are compared with: other noise than was mixed into the data, similarities that are nearly alike.

Reads a few batches of each line, of 100,000 elements at most. Keeps no tensor.
"""

from __future__ import annotations

import math
import weakref

import torch

from gradviz.checks.collect.calls import RECURRENT, Facts, Observer, TorchCall, reads
from gradviz.checks.collect.lines import line_at
from gradviz.checks.collect.numbers import is_readable
from gradviz.graph import SourceLine
from gradviz.packages import Place
from gradviz.recording.torch_calls import PLAIN
from gradviz.walker.isolation import unrecorded

LARGEST, _LOOKS, _INPUTS = 100_000, 16, 4
"""Elements of a tensor whose numbers are read, batches of a line, and inputs of a step."""
_FLAT = 0.5  # a factor below which similarities of unit vectors say nothing
_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub")


class TargetWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._draws = Facts[bool]()  # of this step, and whether something was computed with them
        self._mixed: dict[object, SourceLine] = {}  # by shape: where a draw was scaled for each sample
        self._flat = Facts[tuple[Place | None, str]]()  # similarities that a factor has made smaller
        self._windows: list[weakref.ref[torch.Tensor]] = []  # data of several steps that went into layers

    @reads("randn", "randn_like")
    def _drawn(self, call: TorchCall) -> None:
        self._draws.put(call.result, False)

    @reads("cross_entropy_loss")
    def _classified(self, call: TorchCall) -> None:
        scores = call.first
        self._note("flat", *self._flat.of(scores) or (None,))
        if call.makes and scores.shape[1:] == (1,) and len(scores) > 1:
            self._note("softmax of one", call.place, "log_softmax", 1, scores.shape)

    def _forget(self) -> None:
        for seen in (self._draws, self._mixed, self._flat, self._windows):
            seen.clear()

    @reads("linear", "conv1d", *RECURRENT)
    def _given(self, call: TorchCall) -> None:
        """Data goes into a layer."""
        data = call.first
        if type(data) in PLAIN and not data.requires_grad and data.dim() in (2, 3) and len(self._windows) < _INPUTS:
            self._windows.append(weakref.ref(data))

    @reads("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
    def _forecast(self, call: TorchCall) -> None:
        """A model predicts one number for each sample: whether that is the last one that it is given."""
        target = call.arguments[1]
        if type(target) not in PLAIN or not 3 < target.numel() == len(target) <= LARGEST or not is_readable(target):
            return
        for data in (window() for window in self._windows if self._looks(call.line, _LOOKS)):
            if (
                data is not None
                and len(data) == len(target)
                and data[0].numel() > 1
                and data.numel() <= LARGEST
                and is_readable(data)
            ):
                with unrecorded():
                    last = data.reshape(len(data), -1)[:, -1]
                    same = torch.equal(last, target.reshape(-1)) and bool(last.frac().any())
                self._note("last of window", call.place if same else None, data.shape)

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

    @reads("mul", "div", "truediv")
    def _scaled(self, call: TorchCall) -> None:
        """A square of similarities is made smaller by a number."""
        given, other = call.pairs[0]
        number = type(other) is float or (type(other) in PLAIN and other.numel() == 1)
        if (
            number
            and type(given) in PLAIN
            and given.dim() == 2
            and 3 < len(given) == given.shape[1]
            and given.numel() <= LARGEST
            and self._looks(call.line, _LOOKS)
            and is_readable(given)
        ):
            with unrecorded():
                factor = float(other) if call.name == "mul" else 1 / (float(other) or math.inf)
                if 0 < factor < _FLAT < float(given.abs().max()) < 1 + 1e-3:
                    self._flat.put(call.result, (call.place, f"{factor:.3g}"))
