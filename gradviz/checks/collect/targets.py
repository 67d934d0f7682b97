"""Sees what predictions are compared with: other noise than was mixed into the data, similarities that are nearly alike.

Reads a few batches of each line, of 100,000 elements at most. Keeps no tensor.
"""

from __future__ import annotations

import math

import torch

from gradviz.checks.collect.calls import Call, Facts, Observer, Readers
from gradviz.checks.collect.lines import line_at
from gradviz.checks.collect.numbers import is_readable
from gradviz.graph import SourceLine
from gradviz.packages import Place
from gradviz.recording.torch_calls import PLAIN
from gradviz.walker.isolation import unrecorded

LARGEST, _LOOKS = 100_000, 16
"""Elements of a tensor whose numbers are read, and batches of a line."""
_FLAT = 0.5  # a factor below which similarities of unit vectors say nothing
_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub")
_MIXES = ("mul", "add", "sub", "div", "lerp", "addcmul", "linear", "getitem", "where", "matmul")


class TargetWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._draws = Facts[bool]()  # of this step, and whether something was computed with them
        self._mixed: dict[object, SourceLine] = {}  # by shape: where a draw was scaled for each sample
        self._flat = Facts[tuple[Place | None, str]]()  # similarities that a factor has made smaller

    @property
    def readers(self) -> Readers:
        """Which functions of torch are looked at, and how."""
        return (
            (("randn", "randn_like"), lambda call: self._draws.put(call.result, False)),
            (_MIXES, self._mixes),
            (_LOSSES, self._compared),
            (("mul", "div", "truediv"), self._scaled),
            (("cross_entropy_loss",), lambda call: self._note("flat", *self._flat.of(call.first) or (None,))),
        )

    def next_step(self) -> None:
        """A call of backward comes."""
        for seen in (self._draws, self._mixed, self._flat):
            seen.clear()

    def _reads(self, call: Call, tensor: torch.Tensor) -> bool:
        """Whether the numbers of a tensor are still to be read for a line."""
        line = call.frame.f_code, call.frame.f_lineno
        self._looked[line] += 1
        return is_readable(tensor) and tensor.numel() <= LARGEST and self._looked[line] <= _LOOKS

    def _mixes(self, call: Call) -> None:
        """Something is computed with a draw: whether each sample has its own factor."""
        for given, other in call.pairs if self._draws else ():
            if self._draws.of(given) is not None:
                self._draws.put(given, True)
                each = (
                    type(other) in PLAIN
                    and bool(other.dim())
                    and 1 < len(other) == len(given) == other.numel() < given.numel()
                )
                place = self._place(call.frame) if each else None
                if place is not None:
                    self._mixed[given.shape] = line_at(place)

    def _compared(self, call: Call) -> None:
        """Predictions meet numbers."""
        for given, other in call.pairs if self._mixed else ():
            if type(other) in PLAIN and other.requires_grad and self._draws.of(given) is False:
                mixed = self._mixed.get(other.shape)
                if mixed is not None:
                    self._note("other noise", self._place(call.frame), f"line {mixed.line}", mixed.text)

    def _scaled(self, call: Call) -> None:
        """A square of similarities is made smaller by a number."""
        given, other = call.pairs[0]
        number = type(other) is float or (type(other) in PLAIN and other.numel() == 1)
        if (
            number
            and type(given) in PLAIN
            and given.dim() == 2
            and 3 < len(given) == given.shape[1]
            and self._reads(call, given)
        ):
            with unrecorded():
                factor = float(other) if call.name == "mul" else 1 / (float(other) or math.inf)
                if 0 < factor < _FLAT < float(given.abs().max()) < 1 + 1e-3:
                    self._flat.put(call.result, (self._place(call.frame), f"{factor:.3g}"))
