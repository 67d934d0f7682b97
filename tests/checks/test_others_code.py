"""What an installed library does of itself is its own affair: at most a note, and never the line that called it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written

LIBRARY = """
import torch
import torch.nn.functional as F


class Agent:
    def __init__(self):
        self.nets = torch.nn.ModuleList([torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)])
        self.opt = torch.optim.Adam(self.nets.parameters())
        self.losses = []

    def learn(self, steps):
        for _ in range(steps):
            x, y = torch.randn(8, 3), torch.randn(8, 1)
            loss = 0.5 * sum(F.mse_loss(net(x), y) for net in self.nets)
            self.losses.append(loss.item())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()


class Layers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)

    def forward(self, x):
        return self.used(x)


def dual(x, y):
    return torch.cdist(x, y).mean(1).sum() + torch.cdist(y, x.detach()).mean(1).sum()
"""
BEGIN = """
import os, sys
import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "site-packages"))
"""
STEPS = """
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    x, y = torch.randn(10, 6), torch.randn(12, 4)
    z = net(x)
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
REVERSIBLE = """
import torch
from torch import nn


class Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, block):
        ctx.block = block
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            torch.autograd.backward(ctx.block(x), grad)
        return x.grad, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block = nn.Linear(6, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        return Again.apply(self.embed(x), self.block)


net = Net()
"""
OWN = "z.pow(2).mean()"
SCRIPTS = {
    "a library's sum begins with 0": f"{BEGIN}import dummy\nagent = dummy.Agent()\nagent.learn(3)\n",
    "a library's term without a graph": f"{BEGIN}import dummy\nnet = nn.Linear(6, 4)\n"
    + STEPS.format(loss=f"dummy.dual(z, y) + {OWN}"),
    "backward runs the module again": REVERSIBLE + STEPS.format(loss=OWN),
}


def beside_the_library(folder: Path, script: str) -> Path:
    package = folder / "site-packages" / "dummy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(LIBRARY)
    return written(folder, textwrap.dedent(script))


@pytest.mark.parametrize("case", SCRIPTS)
def test_it_is_left_alone(case: str, tmp_path: Path) -> None:
    found, _ = check(beside_the_library(tmp_path, SCRIPTS[case]))
    assert found == []


def test_a_module_that_a_library_does_not_run_is_a_note_at_the_library(tmp_path: Path) -> None:
    script = f"{BEGIN}import dummy\nnet = dummy.Layers()\n" + STEPS.format(loss=OWN)
    found, code = check(beside_the_library(tmp_path, script))
    assert [(one["id"], one["severity"]) for one in found] == [("unused-parameter", "note")]
    assert "dummy: __init__.py" in found[0]["where"] and "self.spare" in found[0]["code"]
    assert code == 0
