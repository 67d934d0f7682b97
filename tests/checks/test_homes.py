"""Parameters that no module lists: where they are kept, and that the advice, followed to the letter, makes a module list them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from torch import nn

from gradviz.checks.collect.models import homes_of
from gradviz.graph import Leaf, TensorInfo
from tests.checks.test_scripts import check, written

SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(2, 1)
        {make}

    def forward(self, x):
        return self.last({use})

net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = net(torch.ones(3, 2)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
KEPT = {
    "layers in a list": ("self.kept = [nn.Linear(2, 2) for _ in range(2)]", "sum(layer(x) for layer in self.kept)"),
    "layers in a dict": ("self.kept = {'a': nn.Linear(2, 2)}", "self.kept['a'](x)"),
    "parameters in a list": ("self.kept = [nn.Parameter(torch.rand(2))]", "x * self.kept[0]"),
    "parameters in a dict": ("self.kept = {'a': nn.Parameter(torch.rand(2))}", "x * self.kept['a']"),
    "an empty list that is filled": ("self.kept = []\n        self.kept.append(nn.Linear(2, 2))", "self.kept[0](x)"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("make", "use"), KEPT.values(), ids=list(KEPT))
def test_the_advice_makes_the_module_list_them(make: str, use: str, tmp_path: Path) -> None:
    script = SCRIPT.format(make=make, use=use)
    (found,), code = check(written(tmp_path, script))
    assert (found["id"], code) == ("nonleaf-parameter", 1)
    line = script.splitlines()[found["line"] - 1]
    assert line.strip() == make.splitlines()[0] == found["code"].strip()
    advice = re.search(rf"script\.py:{found['line']}, make self\.kept a (torch\.nn\.\w+)\(", found["fix"])
    assert advice is not None, found["fix"]
    line = make.splitlines()[0].replace("self.kept = ", f"self.kept = {advice[1]}(") + ")"
    assert check(written(tmp_path, script.replace(make.splitlines()[0], line)))[1] == 0


@pytest.mark.slow
def test_where_a_parameter_is_kept() -> None:
    net = nn.ModuleDict({"part": nn.Sequential(nn.Linear(1, 1))})
    models = [("net", net)]
    names = "net.part.0.kept[2]", "net.kept.weight", "other.kept[0]", "net"
    leaves = [Leaf(i, (name,), "parameter", TensorInfo((1,), "float32", "cpu")) for i, name in enumerate(names)]
    found = homes_of(leaves, models, ())
    assert {i: (one.attribute, one.container) for i, one in found.items()} == {
        0: ("self.kept", "torch.nn.ParameterList"),
        1: ("self.kept", ""),
    }
