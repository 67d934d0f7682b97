"""Seconds of forward and backward by module, and what they must not change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradviz.gradients.times import STEPS
from tests.cli.conftest import Gradviz
from tests.cli.scripts import script

STEPPING = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range({steps}):
    loss = net(torch.randn(128, 64)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "told"), [(10, f"medians of {STEPS - 1} steps"), (1, "1 step: the script has no other")]
)
def test_every_module_has_its_times(gradviz: Gradviz, tmp_path: Path, steps: int, told: str) -> None:
    at = script(tmp_path, STEPPING.format(steps=steps))
    said = gradviz("tree", at, "--time").stdout
    assert "forward  backward" in said and told in said
    rows = [line for line in said.splitlines() if "Linear" in line or "Tanh" in line]
    assert len(rows) == 3 and all(len(re.findall(r"\d (?:s|ms|µs)\b", row)) == 2 for row in rows)


@pytest.mark.slow
def test_timing_leaves_the_training_as_it_is(gradviz: Gradviz, tmp_path: Path) -> None:
    at = script(tmp_path, STEPPING.format(steps=8))
    untimed = gradviz("tree", at, "--continue").stderr
    timed = gradviz("tree", at, "--time", "--continue").stderr
    losses = [line for line in untimed.splitlines() if line.startswith("loss")]
    assert len(losses) == 8 and losses == [line for line in timed.splitlines() if line.startswith("loss")]
