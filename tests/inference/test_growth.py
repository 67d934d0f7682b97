"""Inferring modules is linear. Work is counted in lines, not timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradviz


class Product(nn.Module):
    """A weight that is computed from all parameters."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.factors = nn.ParameterList([torch.ones(4) for _ in range(size)])

    def forward(self, x: Tensor) -> Tensor:
        weight = torch.ones(4)
        for factor in self.factors:
            weight = weight * factor if weight.requires_grad else factor
        return x * weight


class Unrolled(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.last, self.size = nn.Linear(4, 4), nn.Linear(4, 4), size

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(self.size):
            x = x.sin()
        return self.last(x)  # type: ignore[no-any-return]


def tied(size: int) -> nn.Module:
    """Layers of one weight."""
    layers = [nn.Linear(4, 4, bias=False) for _ in range(size)]
    for layer in layers:
        layer.weight = layers[0].weight
    return nn.Sequential(*layers)


def layers(size: int) -> nn.Module:
    return nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(size)])


def lines_run(model: nn.Module) -> int:
    """Lines of the inference that a walk runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "inference" in frame.f_code.co_filename else None

    loss = model(torch.ones(2, 4)).sum()
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        gradviz.walk(loss, model=model)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("make", [Product, Unrolled, tied, layers])
def test_work_grows_no_faster_than_the_model(make: Callable[[int], nn.Module]) -> None:
    lines_run(make(4))  # reads code
    assert lines_run(make(400)) < 5 * lines_run(make(100))
