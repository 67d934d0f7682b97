"""Lines whose result nobody gets are found as they run, and the advice heals; what has an effect is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.checks.test_leaks import HEAD

SCRIPT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = self.first(x)
        {inside}
        return self.second(h)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in data:
    {before}
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    {after}
    loss.backward()
    {step}
print(loss.item())
"""
PLAIN = {"inside": "pass", "before": "pass", "after": "pass", "step": "optimizer.step()"}


def script(**lines: str) -> str:
    return HEAD + SCRIPT.format(**PLAIN | lines)


LOST = [
    ("inside", "nn.functional.relu(h)", "h = nn.functional.relu(h)"),
    ("inside", "h.clamp(0, 1)", "h = h.clamp(0, 1)"),
    ("before", "x.to('cpu')", "x = x.to('cpu')"),
    ("after", "0.5 * loss", "loss = 0.5 * loss"),
    ("step", "optimizer.step", "optimizer.step()"),
    ("before", "optimizer.zero_grad", "optimizer.zero_grad()"),
]
FINE = {
    "changes in place": {"inside": "h.clamp_(0, 1)", "before": "x.requires_grad_()", "after": "loss.retain_grad()"},
    "a module is moved": {"before": "model.to('cpu').float()"},
    "numbers and waiting": {"before": "len(x) / 2", "after": "loss.item()", "inside": "h @ h.T"},
    "what may fail": {"before": "try:\n        x.to('meta')\n    except RuntimeError:\n        pass"},
    "never called": {"inside": "if x is None:\n            h.detach()"},
}


@pytest.mark.slow
@pytest.mark.parametrize(("place", "line", "mended"), LOST, ids=[line for _, line, _ in LOST])
def test_the_advice_heals(place: str, line: str, mended: str, tmp_path: Path) -> None:
    text = script(**{place: line}).replace("    optimizer.zero_grad()\n", "", line == "optimizer.zero_grad")
    id = "not-called" if line.startswith("optimizer") else "no-effect"
    shows_and_heals(Fault(id, f" {line}", f"Write {mended}.", f" {line}\n", f" {mended}\n", text), tmp_path)


@pytest.mark.parametrize("name", FINE)
def test_lines_with_an_effect_are_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(script(**FINE[name]), tmp_path)
