"""Loops that call backward, zero_grad, clip and step in an order of their own are left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written

HEAD = """
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
data = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(12)]
criterion = nn.CrossEntropyLoss()
"""
RIGHT = {
    "each sample's gradient clipped and taken away": """
def take():
    for weight in net.parameters():
        weight.total = getattr(weight, "total", 0) + weight.grad
        weight.grad = None
for x, y in data:
    for sample, label in zip(x.chunk(4), y.chunk(4)):
        criterion(net(sample), label).backward()
        clip_grad_norm_(net.parameters(), 0.1)
        take()
    for weight in net.parameters():
        weight.grad, weight.total = weight.total, 0
    opt.step()
    opt.zero_grad()
""",
    "each sample's gradient clipped and zeroed in place": """
def take():
    for weight in net.parameters():
        weight.total = getattr(weight, "total", 0) + weight.grad
        weight.grad.zero_()
def fit(x, y):
    for sample, label in zip(x.chunk(4), y.chunk(4)):
        criterion(net(sample), label).backward()
        clip_grad_norm_(net.parameters(), 0.1)
        take()
for x, y in data:
    fit(x, y)
    for weight in net.parameters():
        weight.grad.copy_(weight.total)
        weight.total = 0
    opt.step()
    opt.zero_grad()
""",
    "a schedule that catches up with a checkpoint": """
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
for epoch in range(3):
    schedule.step()
for epoch in range(3, 6):
    for x, y in data[:2]:
        opt.zero_grad()
        criterion(net(x), y).backward()
        opt.step()
    schedule.step()
""",
    "a schedule that is told its epoch": """
schedule = torch.optim.lr_scheduler.StepLR(opt, 2)
for epoch in range(4):
    schedule.step(epoch)
    for x, y in data[:2]:
        opt.zero_grad()
        criterion(net(x), y).backward()
        opt.step()
""",
    "a divided loss, and another that is not, after the run": """
for i, (x, y) in enumerate(data):
    (criterion(net(x), y) / 4).backward()
    if (i + 1) % 4 == 0:
        opt.step()
        opt.zero_grad()
nn.functional.mse_loss(nn.Linear(4, 8)(x), torch.zeros(8, 8)).backward()
""",
    "a warm-up that leaves out its 0": """
schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, step / 5))
for x, y in data:
    schedule.step()
    opt.zero_grad()
    criterion(net(x), y).backward()
    opt.step()
""",
    "an attack in each step": """
for x, y in data:
    x.requires_grad_()
    for turn in range(2):
        criterion(net(x), y).backward()
        x = (x + 0.01 * x.grad.sign()).detach().requires_grad_()
        net.zero_grad()
    criterion(net(x), y).backward()
    opt.step()
    opt.zero_grad()
""",
    "a loss that is a sum": """
for i, (x, y) in enumerate(data):
    nn.functional.cross_entropy(net(x), y, reduction="sum").backward()
    if (i + 1) % 4 == 0:
        opt.step()
        opt.zero_grad()
""",
    "several losses with one update": """
for x, y in data:
    opt.zero_grad()
    criterion(net(x), y).backward()
    (1e-3 * net[0].weight.square().sum()).backward()
    opt.step()
""",
    "several optimizers": """
shift = nn.Parameter(torch.zeros(2))
other = torch.optim.SGD([shift], lr=0.1)
for x, y in data:
    opt.zero_grad()
    other.zero_grad()
    scaler.scale(criterion(net(x) + shift, y)).backward()
    scaler.unscale_(opt)
    clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.step(other)
    scaler.update()
""",
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    found, code = check(written(tmp_path, HEAD + RIGHT[name]))
    assert code == 0, found
