"""Seconds of forward and backward by module, and what they must not change."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradviz as package
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
    gradviz("render", at, "--color", "time", "-o", tmp_path / "times.json")
    graph = package.load(str(tmp_path / "times.json"))
    assert any(told in note for note in graph.notes)
    assert all(scope.forward > 0 and scope.backward > 0 for scope in graph.scopes)  # type: ignore[operator]
    assert "forward  backward" in gradviz("tree", at, "--time").stdout


@pytest.mark.slow
def test_timing_leaves_the_training_as_it_is(gradviz: Gradviz, tmp_path: Path) -> None:
    at = script(tmp_path, STEPPING.format(steps=8))
    untimed = gradviz("tree", at, "--continue").stderr
    timed = gradviz("tree", at, "--time", "--continue").stderr
    losses = [line for line in untimed.splitlines() if line.startswith("loss")]
    assert len(losses) == 8 and losses == [line for line in timed.splitlines() if line.startswith("loss")]


@pytest.mark.slow
def test_modules_are_coloured_by_their_time(gradviz: Gradviz, tmp_path: Path) -> None:
    at = script(tmp_path, STEPPING.format(steps=8))
    gradviz("render", at, "--color", "time", "-o", tmp_path / "times.svg")
    drawn = (tmp_path / "times.svg").read_text()
    assert "takes more than" in drawn and "time of forward and backward" in drawn
    assert "Draw two pictures" in gradviz("render", at, "--color", "time", "--values", code=2).output
    gradviz("render", at, "-o", tmp_path / "untimed.json")
    untimed = gradviz("render", tmp_path / "untimed.json", "--color", "time", "-o", tmp_path / "no.svg", code=2)
    assert "does not know how long" in untimed.output
