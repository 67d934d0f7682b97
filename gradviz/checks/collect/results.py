"""What the results of torch's functions say of a script, whether or not they have a graph.

Lines whose result nobody gets, lines that make NaN or Inf of finite data, lines that fill memory before the first backward
call, and calls of losses that leave no node of their own. Is told of each call by `recording/torch_calls`, and keeps no tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FrameType

import torch

from gradviz.checks.collect.calls import Observer, TorchCall, reads
from gradviz.checks.record import Misuse
from gradviz.cuts.torch_calls import PLAIN, is_real, name_of
from gradviz.packages import Place, is_foundation, package_of
from gradviz.source.code_line import parsed
from gradviz.source.search import Alone, alone
from gradviz.source.statements import line_of
from gradviz.walker.isolation import unrecorded
from gradviz.wording import clip

MOST_FILLED = 10_000
"""Places of memory that are filled before the first backward call of which the line is noted."""
MOST_GIVEN = 1000
"""Calls of one step whose input is noted."""

WITH_POLES = (
    *("log", "log2", "log10", "log1p", "logit", "exp", "sqrt", "rsqrt", "reciprocal", "std", "var", "acos", "asin"),
    *("atanh", "mean", "corrcoef", "float_power", "pow", "rpow", "div", "true_divide", "truediv", "rtruediv", "rdiv"),
)
"""Functions that can make NaN or Inf of finite numbers."""
_CODE = 50  # characters of a line that a sentence quotes
_LOOKS = 3  # how often the numbers of a line are looked at from the first time on; then whenever it ran twice as often
_LARGEST = 1_000_000  # elements of a tensor that is looked at
_THROUGH = frozenset(("torch.overrides", "torch._tensor", "torch.nn.functional"))
"""Modules of torch that a function passes on its way from the line that called it."""


class ResultWatch(Observer):
    """Of one run, in one thread."""

    def _begin(self) -> None:
        self._files: dict[str, dict[int, Alone]] = {}  # of the user's, with the lines that compute something for nobody
        self._dropping = False  # whether any file has such lines
        self._dropped: set[tuple[str, int]] = set()  # those that ran, and made a tensor
        self._begins = True  # no call that was read has run
        # what made NaN or Inf of finite data, without a graph
        self.broken: dict[tuple[str, int], tuple[Place, str]] = {}
        self.nan: Place | None = None  # the first of these lines that made NaN
        self.filled: dict[int, Place] = {}  # the lines that filled memory before the first call, by address
        # where kl_div was called, by the number of the node that made its input
        self.given: dict[int | None, Place] = {}

    def ran(self) -> None:
        self._begins = False
        self.given.clear()

    @reads("fill", "zero", "normal", "uniform")
    def _fills(self, call: TorchCall) -> None:
        """A tensor, or the data of a parameter, is filled with numbers."""
        if call.in_place and call.makes and (self._begins or call.first.requires_grad):
            self._filled(call)

    @reads("copy", "lerp", "mul", "add")
    def _writes(self, call: TorchCall) -> None:
        """A tensor is changed in place by code of the user's, as averages of weights are."""
        if self._begins or not (call.in_place and call.makes) or is_foundation(call.frame.f_code.co_filename):
            return
        recorded = call.first.requires_grad and torch.is_grad_enabled()
        if not recorded and call.first.data_ptr() not in self.filled:
            self._filled(call)

    def _filled(self, call: TorchCall) -> None:
        place = call.place if len(self.filled) < MOST_FILLED else None
        if place is not None:
            self.filled[call.first.data_ptr()] = place

    @reads("kl_div")
    def _gives(self, call: TorchCall) -> None:
        """A loss is called that leaves no node of its own."""
        given = call.given(0, "input")
        if type(given) is torch.Tensor and given.grad_fn is not None and len(self.given) < MOST_GIVEN:
            place = call.place
            if place is not None:
                self.given[given.grad_fn._sequence_nr()] = place

    @reads(*WITH_POLES)
    def _look(self, call: TorchCall) -> None:
        """Data that nobody recorded was computed: whether it is as finite as what it was computed from."""
        data = type(call.result) in PLAIN and not call.result.requires_grad
        caller = _caller(call.frame) if data else None
        if caller is None:
            return
        at = (caller.f_code.co_filename, caller.f_lineno or 0)
        looked = self._looked[at]
        looks = self._looks(at, _LOOKS) or not looked & (looked - 1)
        place = self._place(caller) if looks and not is_foundation(at[0]) and _is_born(call) else None
        if place is not None:
            self.broken.setdefault(at, (place, call.function.__name__))
            if call.result.isnan().any():
                self.nan = self.nan or place

    def runs(self, file: str) -> None:
        """Code of this file is running."""
        lines = alone(file) if not is_foundation(file) and not package_of(file) else {}
        self._files[file] = lines
        self._dropping = self._dropping or bool(lines)

    @reads()
    def _drop(self, call: TorchCall) -> None:
        if call.frame.f_code.co_filename not in self._files:
            self.runs(call.frame.f_code.co_filename)
        around = _caller(call.frame) if self._dropping and type(call.result) in PLAIN else None
        if around is not None:
            unused = self._files.get(around.f_code.co_filename, {}).get(around.f_lineno or 0)
            if unused is not None and name_of(call.function, call.frame) in unused.functions:
                self._dropped.add((around.f_code.co_filename, unused.line))

    def dropped(self) -> Iterator[Misuse]:
        """The lines that ran, as far as this is seen, and whose result nobody got; and those that name a method alone."""
        for file, lines in self._files.items():
            for unused in sorted({*lines.values()}):
                kind = "drops for good" if not unused.mended else "drops" if unused.functions else "names"
                words = clip(unused.text, _CODE), clip(unused.of, _CODE), unused.mended
                if not unused.functions or (file, unused.line) in self._dropped:
                    source = line_of(file, unused.line)
                    begins = unused.mended.startswith(f"{unused.of} = ")
                    alone = (
                        unused.mended if len(parsed(source)) == 1 else f"{unused.of} = {source.text}" if begins else ""
                    )
                    new = source.text.replace(unused.text, unused.mended) if unused.text in source.text else alone
                    yield Misuse(kind, source, words, names=(unused.of,), mended=new)


def _is_born(call: TorchCall) -> bool:
    """Whether numbers that are not finite were computed of finite ones."""
    if call.result.numel() > _LARGEST or not is_real(call.result):
        return False
    given = [argument for argument in call.arguments if type(argument) in PLAIN]
    with unrecorded():
        return not call.result.isfinite().all() and all(tensor.isfinite().all() for tensor in given)


def _caller(frame: FrameType) -> FrameType | None:
    """The frame that called a function of torch's interface."""
    around: FrameType | None = frame
    while around is not None and around.f_globals.get("__name__") in _THROUGH:
        around = around.f_back
    return around
