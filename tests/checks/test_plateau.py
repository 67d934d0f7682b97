"""A plateau that is none: a number that falls is to grow, a sum never begins anew, batches count as epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

LOOP = """
    import torch
    torch.manual_seed(0)
    x = torch.randn(96, 8)
    y = x[:, :2].sum(1, keepdim=True) + 0.1 * torch.randn(96, 1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.05)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, {options})
    total = 0.0
    for epoch in range(16):
        {begin}
        for part in torch.arange(72).split({size}):
            loss = (net(x[part]) - y[part]).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            {step}
        with torch.no_grad():
            error = (net(x[72:]) - y[72:]).square().mean()
        {epoch}
"""


def loop(options: str, epoch: str = "pass", begin: str = "pass", step: str = "pass", size: int = 24) -> str:
    return LOOP.format(options=options, epoch=epoch, begin=begin, step=step, size=size)


MAX, SUM = "mode='max', factor=0.7, patience=1", "total += loss.item()"
FAULTS = {
    "a validation loss that is to grow": Fault(
        "misled-plateau", "mode='max'", "Pass mode='min'", "'max'", "'min'", loop(MAX, "plateau.step(error)")
    ),
    "a training loss that is to grow": Fault(
        "misled-plateau",
        "'max'",
        "Pass mode='min'",
        "'max'",
        "'min'",
        loop("'max', patience=2", "plateau.step(total / 3)", "total = 0.0", SUM),
    ),
    "a sum over all epochs": Fault(
        "misled-plateau",
        "plateau.step(total / 3)",
        "Set the sum to 0 at the beginning of each epoch",
        "    pass\n    for part",
        "    total = 0.0\n    for part",
        loop("patience=2", "plateau.step(total / 3)", step=SUM),
    ),
    "a patience of batches": Fault(
        "misled-plateau",
        "plateau.step(loss)",
        "Call plateau.step(loss) once in each epoch",
        "        plateau.step(loss)\n",
        "        pass\n    plateau.step(loss)\n",
        loop("patience=2, factor=0.5, min_lr=1e-4", step="plateau.step(loss)", size=8),
    ),
}
RIGHT = {
    "a reward that grows": loop(MAX, "plateau.step(-error)"),
    "a share of right answers that comes to stay": loop(MAX, "plateau.step(((net(x) > 0) == (y > 0)).float().mean())"),
    "a validation loss that grows, as the model overfits": loop(
        "factor=0.7, patience=1", "plateau.step(error + 0.02 * epoch)"
    ),
    "a mean over all epochs": loop("patience=1", "plateau.step(total / (epoch + 1))", step=SUM),
    "a patience of steps, for a loss that is smooth": loop(
        "patience=40", step="total = 0.9 * total + 0.1 * loss.item(); plateau.step(total)", size=8
    ),
    "all data in each step, and several rounds of it": loop(
        "patience=3, threshold=0.1", step="plateau.step(loss)", size=72
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
