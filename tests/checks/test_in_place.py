"""Who changed a saved tensor in place: a module or a function that is told to, or the forward() of a custom Function."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, shows_and_heals
from tests.walker.graphs import needs_raw

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\ntorch.manual_seed(0)\n"
TWICE = f"""{HEAD}
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4))
        self.b = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4))
    def forward(self, x):
        s = torch.sigmoid(x)
        left = self.a(s.clone())
        right = self.b(s)
        return left + right
cell = Cell()
cell(torch.rand(2, 4, requires_grad=True)).sum().backward()
"""
DROPS = f"""{HEAD}
first, last = nn.Linear(3, 4), nn.Linear(4, 1)
h = torch.tanh(first(torch.randn(5, 3)))
z = F.dropout(h, 0.5, True, inplace=True)
last(z).sum().backward()
"""
SCALES = f"""{HEAD}
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x *= 8.0
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        return gradient * 8.0
first, last = nn.Linear(3, 4), nn.Linear(4, 1)
last(Scale.apply(torch.tanh(first(torch.randn(5, 3))))).sum().backward()
"""
GATE = f"""{HEAD}
class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.net = nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        t = torch.sigmoid(self.gate(x))
        out = t * torch.tanh(self.net(x))
        carry = t.neg_().add_(1.0)
        return out + carry * x
Gate()(torch.rand(2, 4)).sum().backward()
"""
IN_TURN = "carry = t.neg_().add_(1.0)"
FAULTS = {
    "methods in a row": Fault(
        "stale-saved", IN_TURN, "t.neg().add(1.0) instead of t.neg_()", IN_TURN, "carry = t.neg().add(1.0)", GATE
    ),
    "methods in a row, and nothing else": Fault(
        "stale-saved",
        "t.neg_()",
        "t = t.neg().add(1.0) instead of t.neg_()",
        "        t.neg_().add_(1.0)",
        "        t = t.neg().add(1.0)",
        GATE.replace(IN_TURN, "t.neg_().add_(1.0)\n        carry = t"),
    ),
    "what is read later": Fault(
        "stale-saved",
        "t.neg_()",
        "Change a copy: t = t.clone() before script.py",
        "        carry =",
        "        t = t.clone()\n        carry =",
        GATE.replace("carry * x", "t * x"),
    ),
    "a method that has no other form": Fault(
        "stale-saved",
        "t.zero_()",
        "Change a copy: t = t.clone() before script.py",
        "        carry =",
        "        t = t.clone()\n        carry =",
        GATE.replace("t.neg_()", "t.zero_()"),
    ),
    "what a call returns": Fault(
        "stale-saved",
        "carry = torch.exp(t)",
        "torch.exp(t).mul(2).add(1) instead of",
        ".mul_(2).add_(1)",
        ".mul(2).add(1)",
        GATE.replace("t.neg_().add_(1.0)", "torch.exp(t).mul_(2).add_(1)"),
    ),
    "a module": Fault(
        "stale-saved",
        "right = self.b(s)",
        "Make cell.b.0 (ReLU) without inplace=True",
        "self.b = nn.Sequential(nn.ReLU(inplace=True)",
        "self.b = nn.Sequential(nn.ReLU()",
        TWICE,
    ),
    "a function": Fault(
        "stale-saved",
        "z = F.dropout",
        "F.dropout(h, 0.5, True) instead of F.dropout(h, 0.5, True, inplace=True)",
        ", inplace=True)\nlast",
        ")\nlast",
        DROPS,
    ),
    "a forward()": Fault(
        "stale-saved", "x *= 8.0", "x = x * 8.0 instead of x *= 8.0", "x *= 8.0", "x = x * 8.0", SCALES
    ),
}


@pytest.mark.slow
@needs_raw
@pytest.mark.parametrize("name", FAULTS)
def test_who_changed_it_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shows_and_heals(FAULTS[name], tmp_path)
