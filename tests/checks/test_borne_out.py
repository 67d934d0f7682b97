"""What a message of torch's means is told where the run bears it out: scripts of public requests, and near ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written

SECOND = """
import torch
x = torch.rand(12, 2, requires_grad=True)
u = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Linear(8, 1))(x)
du = torch.autograd.grad(u.sum(), x, create_graph=True)[0]
torch.autograd.grad(du.sum(), x, create_graph=True)
"""
UNUSED = """
import torch
x, w = torch.rand(2, requires_grad=True), torch.rand(2, requires_grad=True)
torch.autograd.grad((w * 2).sum(), x)
"""
VMAP = """
import torch
w = torch.rand(3, requires_grad=True)
def force(x):
    energy = (w.detach() * x.sin()).sum()
    return torch.autograd.grad(energy, x)[0]
torch.vmap(force)(torch.rand(4, 3, requires_grad=True))
"""
FORWARD = """
import torch
class Doubler(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x *= 2.0
        return x
    @staticmethod
    def backward(ctx, g):
        return g * 2.0
z = Doubler.apply(torch.nn.Linear(8, 5)(torch.rand(3, 8)))
z *= 30.0
"""
COPIED = """
import copy, torch
net = torch.nn.Sequential(torch.nn.Linear(2, 2))
net[0].kept = net(torch.ones(1, 2))
copy.deepcopy(net)
"""


@pytest.mark.parametrize(
    ("script", "summary", "code", "fix"),
    [
        (SECOND, "a second derivative of x that is 0", "torch.autograd.grad(du.sum()", "materialize_grads=True"),
        (UNUSED, "the gradient of x, which", "torch.autograd.grad((w * 2)", "from x itself"),
        (VMAP, "inside a transform", "return torch.autograd.grad(energy", "torch.func.vmap(torch.func.grad(f))"),
        (FORWARD, "what Doubler returns", "x *= 2.0", "compute a new tensor"),
        (COPIED, "kept", "copy.deepcopy(net)", "kept without its graph"),
    ],
)
def test_the_cause_is_one_that_was_seen(script: str, summary: str, code: str, fix: str, tmp_path: Path) -> None:
    found, _ = check(written(tmp_path, script))
    (told,) = [one for one in found if one["id"] == "raised"]
    assert summary in told["summary"] and fix in told["fix"], told
    assert told["code"].strip().startswith(code)
