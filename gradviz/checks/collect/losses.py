"""Notes what named losses are given: the shapes, and which leaves are behind a target
that has a graph.

Looks at shapes and graphs, reads no number, and keeps identities only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch.nn import functional

from gradviz.armour.isolation import isolated
from gradviz.armour.taps import Began
from gradviz.checks.collect.lines import leaf_of, nodes_behind
from gradviz.checks.collect.recorder import Recorder
from gradviz.checks.run import LossArguments

LOOKED = 3
"""Calls of each line that are looked at."""
_LOSSES = (
    functional.mse_loss,
    functional.l1_loss,
    functional.smooth_l1_loss,
    functional.huber_loss,
    functional.kl_div,
    functional.cross_entropy,
    functional.binary_cross_entropy,
    functional.binary_cross_entropy_with_logits,
)


class LossWatch:
    """Of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._seen = recorder, Counter[object]()

    def listeners(self) -> Iterator[tuple[Any, Began]]:
        for function in _LOSSES:
            yield function, self._began

    def _began(
        self, frame: FrameType, given: Any, target: Any, *_: Any, **__: Any
    ) -> None:
        tensors = type(given) is type(target) is torch.Tensor
        if not tensors or self._recorder.rests or not torch.is_grad_enabled():
            return
        source, function = self._recorder.line(frame), frame.f_code.co_name
        self._seen[source] += 1
        if source is None or self._seen[source] > LOOKED:
            return
        shapes = tuple(given.shape), tuple(target.shape)
        arguments = LossArguments(function, shapes)
        if target.requires_grad:
            with isolated():
                arguments = LossArguments(
                    function, shapes, _leaves(target), _leaves(given)
                )
        self._recorder.run.loss_arguments[source] = arguments


def _leaves(tensor: torch.Tensor) -> frozenset[int]:
    behind = map(leaf_of, nodes_behind([tensor]))
    return frozenset(id(leaf) for leaf in behind if leaf is not None)
