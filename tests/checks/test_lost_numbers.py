"""Numbers without a graph that are lost: found at their line, healed by the advice; rounding and NaN that stay nowhere are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

LOOP = """
        import torch
        from torch import nn
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        pixels = torch.randint(0, 200, (40, 6), dtype=torch.uint8)
        level = torch.zeros(1)
        history = []
        for step in range({steps}):
            x, y = {data}, torch.rand(40, 1)
            error = (net(x) - y).square()
            opt.zero_grad()
            error.mean().backward()
            opt.step()
            {after}
"""
REAL = "torch.randn(40, 6)"
FAULTS = {
    "a mean of nothing that a running one takes in": Fault(
        "lost-numbers", "level.mul_", "leave out what is empty", "y > 0.9 + step / 100", "y >= 0",
        LOOP.format(steps=40, data=REAL, after="level.mul_(0.9).add_(error.detach()[y > 0.9 + step / 100].mean())"),
    ),
    "a metric that divides zero by zero": Fault(
        "lost-numbers", "history.append", ".clamp(min=1e-6)", "/ hits)", "/ hits.clamp(min=1e-8))",
        LOOP.format(
            steps=12, data=REAL,
            after="hits = (y > 2).sum().float(); history.append(float(((y > 2) & (error < 1)).sum() / hits))",
        ),
    ),
    "rows that are changed where they are stored": Fault(
        "lost-numbers", "rows[i] -= 0.5", "take the part with .clone()", "rows[i] -= 0.5; part.append(rows[i])",
        "part.append(rows[i] - 0.5)",
        LOOP.format(steps=4, data="torch.stack(part)", after="pass").replace(
            "x, y = ", "part = []\n            for i in range(40): rows[i] -= 0.5; part.append(rows[i])\n            x, y = "
        ).replace("level =", "rows = torch.randn(40, 6); level =").replace("net(x)", "net(rows[:8]).mean() + net(x)"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_found_at_its_line_and_healed(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize(
    ("data", "after"),
    [
        ("(pixels // 100).float()", "pass"),
        ("(255 - pixels).float()", "pass"),
        ("(pixels - pixels.minimum(pixels.flip(0))).float()", "pass"),
        ("pixels.float()", "labels = (pixels > 100).byte() - 1; left = (labels == 255).sum()"),
        (REAL, "rate = torch.zeros(1) / torch.zeros(1); rate = rate.nan_to_num(0)"),
        (REAL, "missing = float('nan')"),
        (REAL, "mask = torch.zeros(40, 40).masked_fill(torch.ones(40, 40).triu(1) > 0, -torch.inf)"),
    ],
)
def test_what_loses_nothing(data: str, after: str, tmp_path: Path) -> None:
    assert not alarms(LOOP.format(steps=8, data=data, after=after), tmp_path)


def test_a_gradient_for_data_is_a_constant_in_the_loss(tmp_path: Path) -> None:
    script = """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
        opt = torch.optim.Adam(net.parameters())
        for step in range(4):
            place = torch.rand(16, 1, requires_grad=True)
            height = net(place)
            (slope,) = torch.autograd.grad(height.sum(), place, retain_graph=True)
            loss = (slope - height).square().mean() + (net(torch.zeros(1, 1)) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
"""
    shows_and_heals(
        Fault(
            "first-order", "torch.autograd.grad", "create_graph=True", "retain_graph=True", "create_graph=True", script
        ),
        tmp_path,
    )
    against = script.replace("(slope - height)", "(net(place.detach() + 0.1 * slope.sign()) - height)")
    assert not alarms(against, tmp_path)
