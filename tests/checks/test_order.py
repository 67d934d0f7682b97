"""Loops that call backward, zero_grad, clip and step in the wrong order: found, and the advice, followed to the letter, helps."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.checks.test_scripts import check, written


class Case(NamedTuple):
    """A loop, the finding, the line that is to blame, a piece of the advice, and what in the loop the advice replaces by what."""

    text: str
    id: str
    line: str
    advice: str
    replace: tuple[str, str]


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
CASES = {
    "values clipped after the step": Case(
        """
def train_one(x, y):
    opt.zero_grad()
    criterion(net(x), y).backward()
    opt.step()
    clip_grad_value_(net.parameters(), 0.5)

for x, y in data:
    train_one(x, y)
""",
        "clip-order", "clip_grad_value_(", "Move clip_grad_value_(net.parameters(), 0.5) above opt.step()",
        (
            "    opt.step()\n    clip_grad_value_(net.parameters(), 0.5)",
            "    clip_grad_value_(net.parameters(), 0.5)\n    opt.step()",
        ),
    ),
    "clipped with the scale": Case(
        """
for x, y in data:
    opt.zero_grad()
    scaler.scale(criterion(net(x), y)).backward()
    clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
""",
        "clip-order", "clip_grad_norm_(", "scaler.unscale_(optimizer) directly before",
        ("    clip_grad", "    scaler.unscale_(opt)\n    clip_grad"),
    ),
    "past the scaler": Case(
        """
for x, y in data:
    opt.zero_grad()
    loss = criterion(net(x), y)
    scaler.scale(loss).backward()
    opt.step()
""",
        "scaler-order", "opt.step()", "Replace opt.step() with scaler.step(optimizer) and then scaler.update()",
        ("    opt.step()", "    scaler.step(opt)\n    scaler.update()"),
    ),
    "never updated": Case(
        """
scaler = torch.amp.GradScaler("cpu", enabled=False)
for x, y in data:
    opt.zero_grad()
    scaler.scale(criterion(net(x), y)).backward()
    scaler.step(opt)
""",
        "scaler-order", "scaler.step(opt)", "Call scaler.update() after scaler.step(opt)",
        ("    scaler.step(opt)", "    scaler.step(opt)\n    scaler.update()"),
    ),
    "a schedule that begins with its second value": Case(
        """
schedule = torch.optim.lr_scheduler.MultiStepLR(opt, [2, 3])
for epoch in range(3):
    schedule.step()
    for x, y in data[:3]:
        opt.zero_grad()
        criterion(net(x), y).backward()
        opt.step()
""",
        "scheduler-order", "schedule.step()", "to the end of the round, after opt.step()",
        (
            "    schedule.step()\n    for x, y in data[:3]:\n        opt.zero_grad()\n        criterion(net(x), y).backward()\n"
            "        opt.step()\n",
            "    for x, y in data[:3]:\n        opt.zero_grad()\n        criterion(net(x), y).backward()\n        opt.step()\n"
            "    schedule.step()\n",
        ),
    ),
    "two schedules in a row, in front of each step": Case(
        """
warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=3)
schedule = torch.optim.lr_scheduler.SequentialLR(opt, [warm, torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)], [3])
def update():
    schedule.step()
    opt.step()
for x, y in data:
    opt.zero_grad()
    criterion(net(x), y).backward()
    update()
""",
        "scheduler-order", "    schedule.step()", "to the end of the round, after opt.step()",
        ("    schedule.step()\n    opt.step()", "    opt.step()\n    schedule.step()"),
    ),
}  # fmt: skip
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


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_it_is_found_and_the_advice_helps(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    script = HEAD + case.text
    found, code = check(written(tmp_path, script))
    (alarm,) = [one for one in found if one["severity"] != "note"]
    assert code == 1 and alarm["id"] == case.id and case.advice in alarm["fix"]
    assert case.line in script.split("\n")[alarm["line"] - 1]
    assert script.count(case.replace[0]) == 1
    mended = script.replace(*case.replace)
    if case.replace[1] == "":  # moved
        mended += "    net.zero_grad()\n"
    found, code = check(written(tmp_path, mended))
    assert code == 0, found


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    found, code = check(written(tmp_path, HEAD + RIGHT[name]))
    assert code == 0, found
