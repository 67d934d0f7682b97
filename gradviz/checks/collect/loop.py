"""What the calls of a training loop are about, and which parameters are younger than an
optimizer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import FrameType, GeneratorType
from typing import Any

import torch

from gradviz.checks.collect.calls import ByIdentity
from gradviz.checks.collect.numbers import optimized
from gradviz.checks.run import TrainingRun
from gradviz.graph import SourceLine
from gradviz.variables.objects import is_a, parameters
from gradviz.walker.signals import uninterrupted
from gradviz.walker.taps import Ended


class Births:
    """The parameters that were made after an optimizer, which may be one too late for
    them, of one run: where, and how many optimizers were there.
    """

    def __init__(
        self, record: TrainingRun, line: Callable[[FrameType], SourceLine | None]
    ) -> None:
        self._record, self._line, self.count = record, line, 0
        self._known = ByIdentity[tuple[SourceLine, int]]()

    def born(self, frame: FrameType, *_: Any, **__: Any) -> Ended | None:
        """A parameter is made."""
        if not self._record.optimizers:
            return None

        @uninterrupted
        def ended(returned: bool, parameter: torch.Tensor) -> None:
            source = self._line(frame) if returned else None
            if source is not None:
                self.count += 1
                self._known.put(parameter, (source, len(self._record.optimizers)))

        return ended

    def of(self, leaf: torch.Tensor) -> tuple[SourceLine, int] | None:
        """The line that made a leaf, and how many optimizers were there."""
        return self._known.of(leaf)

    def lines(self, leaves: Mapping[int, torch.Tensor]) -> dict[int, SourceLine]:
        """The lines that made those that are younger than an optimizer, by key."""
        born = {key: self.of(leaf) for key, leaf in leaves.items()}
        return {key: birth[0] for key, birth in born.items() if birth is not None}


def limit(
    parameters: object = None,
    max_norm: Any = None,
    clip_value: Any = None,
    **_: object,
) -> float:
    """What gradients are clipped to. An infinite limit only asks for the norm, and
    clips nothing.
    """
    given = max_norm if max_norm is not None else clip_value
    return float(given) if isinstance(given, (int, float)) else sys.float_info.max


def tensors_of(about: object) -> frozenset[int] | None:
    """Identities of the parameters that a call is about; None where it cannot be told
    without using something up.
    """
    if is_a(about, torch.optim.Optimizer):
        return frozenset(map(id, optimized(about)))
    if is_a(about, torch.nn.Module):
        return frozenset(map(id, parameters(about)))
    if is_a(about, torch.Tensor):
        return frozenset({id(about)})

    if (
        type(about) is GeneratorType
        and about.gi_code is torch.nn.Module.parameters.__code__
        and about.gi_frame
    ):
        return frozenset(map(id, parameters(about.gi_frame.f_locals["self"])))

    if is_a(about, list) or is_a(about, tuple):
        return frozenset(map(id, about))

    return None
