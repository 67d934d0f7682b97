"""What the results of torch's functions say of a script, whether or not they have a graph.

Lines whose result nobody gets, lines that make NaN or Inf of finite data, lines that fill memory before the first backward
call, and calls of losses that leave no node of their own. Is told of each call by `recording/torch_calls`, and keeps no tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from gradviz.checks.collect.calls import Observer
from gradviz.checks.record import Misuse
from gradviz.packages import Place, is_foundation, package_of
from gradviz.recording.torch_calls import PLAIN, Given, is_real, name_of
from gradviz.source.search import Alone, alone
from gradviz.source.statements import line_of
from gradviz.walker.isolation import unrecorded
from gradviz.wording import clip

MOST_FILLED = 10_000
"""Places of memory that are filled before the first backward call of which the line is noted."""
MOST_GIVEN = 1000
"""Calls of one step whose input is noted."""

WITH_POLES = frozenset(
    (
        *("log", "log2", "log10", "log1p", "logit", "exp"),
        *("sqrt", "rsqrt", "reciprocal", "std", "var"),
        *("acos", "asin", "atanh", "mean", "corrcoef", "float_power", "div_", "log_", "sqrt_", "pow_", "__itruediv__"),
        *("pow", "__pow__", "__rpow__", "div", "true_divide", "__truediv__", "__rtruediv__", "__rdiv__"),
    )
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
        self.broken: dict[
            tuple[str, int], tuple[Place, str]
        ] = {}  # what made NaN or Inf of finite data, without a graph
        self.nan: Place | None = None  # the first of these lines that made NaN
        self.filled: dict[int, Place] = {}  # the lines that filled memory before the first call, by address
        self.given: dict[
            int | None, Place
        ] = {}  # where kl_div was called, by the number of the node that made its input

    def seen(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        """A function of torch has returned."""
        if frame.f_code.co_filename not in self._files:
            self.reads(frame.f_code.co_filename)
        if type(result) not in PLAIN:
            return
        if self._dropping:
            self._drop(function, frame)
        noted = _NOTED.get(function)
        if noted is not None:
            noted(self, arguments, options, frame)
        elif function.__name__ in WITH_POLES and not result.requires_grad:
            self._look(function.__name__, arguments, result, frame)

    def ran(self) -> None:
        self._begins = False
        self.given.clear()

    def fills(self, arguments: Given, options: Any, frame: FrameType) -> None:
        """A tensor, or the data of a parameter, is filled with numbers."""
        tensor = arguments[0] if arguments else options.get("tensor")
        if type(tensor) in PLAIN and (self._begins or tensor.requires_grad) and len(self.filled) < MOST_FILLED:
            place = self._place(frame)
            if place is not None:
                self.filled[tensor.data_ptr()] = place

    def writes(self, arguments: Given, options: Any, frame: FrameType) -> None:
        """A tensor is changed in place by code of the user's, as averages of weights are."""
        tensor = arguments[0]
        recorded = type(tensor) not in PLAIN or (tensor.requires_grad and torch.is_grad_enabled())
        known = self._begins or recorded or len(self.filled) >= MOST_FILLED or is_foundation(frame.f_code.co_filename)
        if not known and tensor.data_ptr() not in self.filled:
            place = self._place(frame)
            if place is not None:
                self.filled[tensor.data_ptr()] = place

    def gives(self, arguments: Given, options: Any, frame: FrameType) -> None:
        """A loss is called that leaves no node of its own."""
        given = arguments[0] if arguments else options.get("input")
        if type(given) is torch.Tensor and given.grad_fn is not None and len(self.given) < MOST_GIVEN:
            place = self._place(frame)
            if place is not None:
                self.given[given.grad_fn._sequence_nr()] = place

    def _look(self, name: str, arguments: Given, result: Any, frame: FrameType) -> None:
        """Data that nobody recorded was computed: whether it is as finite as what it was computed from."""
        caller = _caller(frame)
        if caller is None:
            return
        at = (caller.f_code.co_filename, caller.f_lineno or 0)
        looked = self._looked[at]
        if not self._looks(at, _LOOKS) and looked & (looked - 1):
            return
        if result.numel() > _LARGEST or not is_real(result) or is_foundation(at[0]):
            return
        given = [argument for argument in arguments if type(argument) in PLAIN]
        with unrecorded():
            born = not result.isfinite().all() and all(tensor.isfinite().all() for tensor in given)
        place = self._place(caller) if born else None
        if place is not None:
            self.broken.setdefault(at, (place, name))
            if result.isnan().any():
                self.nan = self.nan or place

    def reads(self, file: str) -> None:
        """Code of this file is running."""
        lines = alone(file) if not is_foundation(file) and not package_of(file) else {}
        self._files[file] = lines
        self._dropping = self._dropping or bool(lines)

    def _drop(self, function: Any, frame: FrameType) -> None:
        around = _caller(frame)
        if around is not None:
            unused = self._files.get(around.f_code.co_filename, {}).get(around.f_lineno or 0)
            if unused is not None and name_of(function, frame) in unused.functions:
                self._dropped.add((around.f_code.co_filename, unused.line))

    def dropped(self) -> Iterator[Misuse]:
        """The lines that ran, as far as this is seen, and whose result nobody got; and those that name a method alone."""
        for file, lines in self._files.items():
            for unused in sorted({*lines.values()}):
                kind = "drops for good" if not unused.mended else "drops" if unused.functions else "names"
                words = clip(unused.text, _CODE), clip(unused.of, _CODE), unused.mended
                if not unused.functions or (file, unused.line) in self._dropped:
                    source = line_of(file, unused.line)
                    new = source.text.replace(unused.text, unused.mended) if unused.text in source.text else ""
                    yield Misuse(kind, source, words, names=(unused.of,), mended=new)


def _caller(frame: FrameType) -> FrameType | None:
    """The frame that called a function of torch's interface."""
    around: FrameType | None = frame
    while around is not None and around.f_globals.get("__name__") in _THROUGH:
        around = around.f_back
    return around


_NOTED: dict[Any, Callable[[ResultWatch, Given, Any, FrameType], None]] = {
    torch.kl_div: ResultWatch.gives,
    **dict.fromkeys((torch.Tensor.fill_, torch.Tensor.zero_), ResultWatch.fills),
    **dict.fromkeys((torch.Tensor.normal_, torch.Tensor.uniform_), ResultWatch.fills),
    **dict.fromkeys((torch.Tensor.copy_, torch.Tensor.lerp_, torch.Tensor.mul_, torch.Tensor.add_), ResultWatch.writes),
}
"""Functions of which the call itself is noted."""
