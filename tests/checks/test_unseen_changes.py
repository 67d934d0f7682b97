"""What changes a saved tensor through `.data`, and what adds to one element several times, is found; the advice heals."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz.walker.private import HAS_RAW_DATA
from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

HEAD = """
import torch
from torch import nn

torch.manual_seed(0)
a, b, head = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 1)
every = [*a.parameters(), *b.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(every, lr=0.05)
x, y = torch.randn(32, 6), torch.randn(32, 1)
edges = torch.randint(0, 32, (2, 90))
def features(x):
    FEATURES
for step in range(4):
    loss = (head(features(x)) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for p in every:
        p.data.clamp_(-2, 2)
"""


def program(*lines: str) -> str:
    return HEAD.replace("FEATURES", "\n    ".join(lines))


def of_data(changes: str, instead: str, *lines: str) -> Fault:
    return Fault("wrong-backward", changes, instead, changes, instead, program(*lines))


def of_sum(adds: str, instead: str, *lines: str) -> Fault:
    return Fault("no-effect", adds, instead, adds, instead, program(*lines))


SUM = "s, d = edges", "m = a(x)[s]", "out = torch.zeros_like(x)"
FAULTS = {
    "exp saved its result": of_data(
        "h.data.clamp_(max=2.0)", "h = h.clamp(max=2.0)", "h = torch.exp(a(x))", "h.data.clamp_(max=2.0)", "return b(h)"
    ),
    "sigmoid, of which a part is set": of_data(
        "g.data[g < 0.5] = 0.0",
        "g = g.clone(); g[g < 0.5] = 0.0",
        "g = torch.sigmoid(a(x))",
        "g.data[g < 0.5] = 0.0",
        "return b(x) * g",
    ),
    "a softmax, times a mask": of_data(
        "w.data *= (x > 0)", "w = w * (x > 0)", "w = torch.softmax(a(x), dim=1)", "w.data *= (x > 0)", "return b(x) * w"
    ),
    "a product saved its factor": of_data(
        "h.data.mul_(2)", "h = h.mul(2)", "h = a(x)", "z = h * b(x)", "h.data.mul_(2)", "return z + h"
    ),
    "a layer saved what it was given": of_data(
        "h.data.add_(1)", "h = h.add(1)", "h = a(x)", "z = b(h)", "h.data.add_(1)", "return z - h"
    ),
    "edges that share a node": of_sum(
        "out[d] += m", "out.index_put_((d,), m, accumulate=True)", *SUM, "out[d] += m", "return out"
    ),
    "the same, written out, and subtracted": of_sum(
        "out[d] = out[d] - m.tanh()",
        "out.index_put_((d,), -m.tanh(), accumulate=True)",
        *SUM,
        "out[d] = out[d] - m.tanh()",
        "return out",
    ),
    "columns": of_sum(
        "out[:, c] += b(x)",
        "out.index_add_(1, c, b(x))",
        "c = torch.tensor([0, 1, 1, 2, 3, 3])",
        "out = a(x).clone()",
        "out[:, c] += b(x)",
        "return out",
    ),
    "two indices": of_sum(
        "out[d, i] += m.sum(1)",
        "out.index_put_((d, i), m.sum(1), accumulate=True)",
        *SUM,
        "i = d % 6",
        "out[d, i] += m.sum(1)",
        "return out",
    ),
}
RIGHT = {
    "a straight-through estimator": ("h = a(x)", "h.data = h.data.round()", "return b(h)"),
    "rounded in place, before anything saved it": ("h = a(x)", "h.data.round_()", "return b(h)"),
    "relu saved its result, of which the sign counts": ("h = a(x).relu()", "h.data.clamp_(max=1)", "return b(h)"),
    "on a copy": ("h = a(x).exp()", "h = h.clone()", "h.data.clamp_(max=1)", "return b(h)"),
    "where it never came": ("h = a(x).exp()", "if len(x) < 3:", "    h.data.zero_()", "return b(h)"),
    "numbers that have no graph": ("h = x.exp()", "h.data.clamp_(max=1)", "return b(a(h))"),
    "each index once": (*SUM, "out[d.unique()] += 1 * a(x)[d.unique()]", "return out"),
    "a mask": ("out = a(x).clone()", "out[x > 0] += 1 + b(x)[x > 0]", "return out"),
    "added one after the other": (*SUM, "out.index_put_((d,), m, accumulate=True)", "return out"),
    "what is set, not added": (*SUM, "out[d] = m", "return out"),
    "rows": ("out = a(x).clone()", "out[2:5] += b(x)[2:5]", "return out"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(FAULTS))
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    if not HAS_RAW_DATA:
        pytest.skip("this torch cannot show saved indices without hooks")
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", every_other(RIGHT))
def test_nothing_is_said_of_what_is_right(name: str, tmp_path: Path) -> None:
    assert not alarms(program(*RIGHT[name]), tmp_path)
