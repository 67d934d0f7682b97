"""Rows that are in the training set and in the validation set: found where the set is made, unless one is a part of the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import alarms

TRAIN = """
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset, random_split
torch.manual_seed(0)
x = torch.randn(100, 6)
data = TensorDataset(x, x[:, :1])
{split}
net = torch.nn.LazyLinear(1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for a, b in DataLoader(train, 20, shuffle=True):
        loss = ((net(a) - b) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(sum(((net(a) - b) ** 2).mean().item() for a, b in DataLoader(test, 20)))
"""
BOTH = {
    "split twice": "train = random_split(data, [80, 20])[0]\ntest = random_split(data, [80, 20])[1]",
    "slices": "train = TensorDataset(x[:80], x[:80, :1])\ntest = TensorDataset(x[70:], x[70:, :1])",
    "drawn twice": "order = torch.randperm(100)\ntrain, test = Subset(data, order[:80]), Subset(data, torch.randperm(100)[80:])",
}
APART = {
    "split once": "train, test = random_split(data, [80, 20])",
    "a part of what is trained on": "train, test = data, Subset(data, range(20))",
    "the same": "train = test = data",
    "rows that are alike": "few = x.sign()[:, :2]\ntrain, test = TensorDataset(few[:80], x[:80]), TensorDataset(few[80:], x[80:])",
}


@pytest.mark.parametrize("split", BOTH.values(), ids=BOTH)
def test_rows_in_both(split: str, tmp_path: Path) -> None:
    script = TRAIN.format(split=split)
    found = alarms(script, tmp_path)
    assert [one["id"] for one in found] == ["leak"], found
    number = next(i for i, text in enumerate(script.splitlines(), 1) if "test =" in text or "train, test" in text)
    assert f"script.py:{number}" in found[0]["where"]


def test_arguments_by_name(tmp_path: Path) -> None:
    """What is tapped is called as before, however its arguments are given."""
    split = "train, test = (Subset(dataset=data, indices=part) for part in (range(80), range(70, 100)))\n"
    split += "torch.manual_seed(seed=3)\ntorch.set_rng_state(new_state=torch.get_rng_state())"
    assert [one["id"] for one in alarms(TRAIN.format(split=split), tmp_path)] == ["leak"]


@pytest.mark.parametrize("split", APART.values(), ids=APART)
def test_rows_apart(split: str, tmp_path: Path) -> None:
    assert not alarms(TRAIN.format(split=split), tmp_path)
