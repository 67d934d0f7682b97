"""A layer that nothing uses is found in whichever object the model is: the recording knows every module that ran."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written

SCRIPT = """
import functools
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.spare = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

    def forward(self, x):
        return self.used(x)

class Box:
    __slots__ = ("inside",)

    def __init__(self, inside):
        self.inside = inside

class Estimator:
    def __init__(self, kind):
        self._state = {"built": [Box((kind(),))]}

    def fit(self, x):
        for _ in range(3):
            step(self._state["built"][0].inside[0](x))

class Hidden:
    def __init__(self, net):
        self.infer = lambda x: net(x)

def step(output):
    output.pow(2).sum().backward()

def outputs(net, x):
    for _ in range(3):
        yield net(x)

def steps(x, net):
    for _ in range(3):
        step(net(x))

x = torch.ones(2, 3)
"""
HOLDERS = {
    "an estimator": ("estimator = Estimator(Net)\nestimator.fit(x)", "estimator._state['built'][0].inside[0]"),
    "an estimator that no variable holds": ("Estimator(Net).fit(x)", "Net"),
    "a list in a list": ("nets = [[(Net(),)]]\nsteps(x, nets[0][0][0])", "net"),
    "a closure": ("hidden = Hidden(Net())\nfor _ in range(3):\n    step(hidden.infer(x))", "Net"),
    "a partial call": ("run = functools.partial(steps, net=Net())\nrun(x)", "net"),
    "a generator": ("for output in outputs(Net(), x):\n    step(output)", "Net"),
    "a bound method": ("call = Net().__call__\nfor _ in range(3):\n    step(call(x))", "Net"),
    "a cache": ("net = functools.cache(Net)\nfor _ in range(3):\n    step(net()(x))", "Net"),
    "two of one class": (
        "a, b = Hidden(Net()), Hidden(Net())\nfor _ in range(3):\n    step(a.infer(x) + b.infer(x))",
        "Net",
    ),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_unused_layer_is_named(tmp_path: Path, holder: str) -> None:
    code, name = HOLDERS[holder]
    found, _ = check(written(tmp_path, SCRIPT + code))
    unused = [finding for finding in found if finding["id"] == "unused-parameter"]
    names = [name for finding in unused for name in finding["names"]]
    expected = [f"{name}.spare.weight", f"{name}.spare.bias"]
    if holder == "two of one class":
        expected += ["Net_2.spare.weight", "Net_2.spare.bias"]
    assert names == expected
    assert all(finding["where"].endswith("script.py:8") for finding in unused)


def test_one_that_has_died_and_one_without_parameters_are_left_out(tmp_path: Path) -> None:
    code = "Net()(x)\nnet = Net().used\nsteps(x, torch.nn.Sequential(net, torch.nn.Tanh()))"
    found, _ = check(written(tmp_path, SCRIPT + code))
    assert [finding["id"] for finding in found] == []
