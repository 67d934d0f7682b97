"""FLOPs of a graph are those that torch counts while the model runs."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import gradviz
from gradviz.fold.flops import flops

MODELS = {
    "conv": (lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=4)), (2, 3, 9, 9)),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, stride=2)), (2, 3, 5, 5)),
    "linear": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False)), (5, 3)),
    "3d": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2, bias=False)), (2, 5, 3)),
    "conv1d": (lambda: nn.Sequential(nn.Conv1d(3, 4, 3)), (2, 3, 9)),
    "frozen last": (lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2).requires_grad_(False)), (5, 3)),
}


@pytest.mark.parametrize("name", MODELS)
def test_they_are_those_that_torch_counts(name: str) -> None:
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape)
    with FlopCounterMode(display=False) as counter:
        output = model(x)
    counted = flops(gradviz.walk(output, model=model))
    assert sum(counted.of_node.values()) == counter.get_total_flops() > 0


def test_ops_without_a_formula_are_counted_by_name() -> None:
    x = torch.randn(2, 3, 4, requires_grad=True)
    y = torch.bmm(x, x.transpose(1, 2)).relu().relu().exp()
    counted = flops(gradviz.walk(y))
    assert sum(counted.of_node.values()) == 2 * 2 * 3 * 3 * 4
    assert counted.unknown == {"relu": 2, "exp": 1}


def test_attention_is_counted_whichever_kernel_ran() -> None:
    q = torch.randn(1, 2, 8, 4, requires_grad=True)
    counted = flops(gradviz.walk(nn.functional.scaled_dot_product_attention(q, q, q)))
    assert sum(counted.of_node.values()) == 2 * (2 * 2 * 8 * 8 * 4)
