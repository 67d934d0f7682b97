"""Sees targets that lost their fractions on their way to a loss.

Reads a few batches of each line, of 100,000 elements at most. Keeps no tensor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

from gradviz.checks.collect.calls import Call, Facts, Readers
from gradviz.checks.collect.numbers import is_readable
from gradviz.packages import Place, PlaceOf
from gradviz.recording.torch_calls import PLAIN
from gradviz.walker.isolation import isolated

LARGEST, _LOOKS = 100_000, 16
"""Elements of a tensor whose numbers are read, and batches of a line."""
_CUT_OFF = 0.05  # of the variance of numbers, that their fractions make
_CASTS = frozenset(("long", "int", "to", "type", "tensor"))
_CARRIES = ("getitem", "stack", "to", "float", "double", "view", "reshape", "squeeze", "unsqueeze", "index_select")
_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub", "rsub")


class TargetWatch:
    """Of one run, in one thread. `note` keeps a line with words; `place` tells the user's line of a frame."""

    def __init__(self, place: PlaceOf, note: Callable[..., None]) -> None:
        self._place, self._note = place, note
        self._looked: Counter[object] = Counter()
        self._cut = Facts[tuple[Place | None, str]]()  # by which call

    @property
    def readers(self) -> Readers:
        """Which functions of torch are looked at, and how."""
        return (
            (_CASTS, self._cast),
            (_CARRIES, self._carried),
            (_LOSSES, self._compared),
        )

    def _reads(self, call: Call, tensor: torch.Tensor) -> bool:
        """Whether the numbers of a tensor are still to be read for a line."""
        line = call.frame.f_code, call.frame.f_lineno
        self._looked[line] += 1
        return is_readable(tensor) and tensor.numel() <= LARGEST and self._looked[line] <= _LOOKS

    def _cast(self, call: Call) -> None:
        """Numbers become integers: whether their fractions are a part of what they say."""
        made, before = call.result, call.first
        if type(made) not in PLAIN or made.dtype not in (torch.int64, torch.int32, torch.int16):
            return
        cut = type(before) is float and before % 1
        if type(before) in PLAIN and before.is_floating_point() and before.numel() > 1 and self._reads(call, before):
            with isolated(), torch.no_grad():
                cut = before.frac().var() > _CUT_OFF * before.var()
        if cut:
            self._cut.put(made, (self._place(call.frame), call.name))

    def _carried(self, call: Call) -> None:
        if self._cut:
            cut = self._cut.of(call.first[0] if isinstance(call.first, (list, tuple)) else call.first)
            if cut is not None:
                self._cut.put(call.result, cut)

    def _compared(self, call: Call) -> None:
        """Predictions meet numbers."""
        for given, other in call.pairs if self._cut else ():
            if type(other) in PLAIN and other.requires_grad and other.shape == getattr(given, "shape", None):
                self._note("fractions cut", *self._cut.of(given) or (None,))
