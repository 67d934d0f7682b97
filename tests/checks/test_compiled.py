"""Parameters of compiled models: which take part is exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written

SCRIPT = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.last = nn.Linear(4, 1)
        self.side = nn.Linear(4, 1)
    def forward(self, x):
        h = self.body(x).relu()
        return self.last(h) + self.side(h).detach()

torch.manual_seed(0)
net = Net()
fast = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(3):
    loss = fast(torch.ones(2, 4)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_branch_that_is_cut_inside_a_compiled_function_is_named(tmp_path: Path) -> None:
    (found,), code = check(written(tmp_path, SCRIPT))
    assert (found["id"], found["severity"], code) == ("none-grad", "warning", 1)
    assert [name.partition(".")[2] for name in found["names"]] == ["side.weight", "side.bias"]
    assert "in a compiled function for .detach()" in found["fix"] and "_orig_mod" not in str(found)


@pytest.mark.slow
def test_a_compiled_model_that_is_right_is_left_alone(tmp_path: Path) -> None:
    assert check(written(tmp_path, SCRIPT.replace(".detach()", ""))) == ([], 0)
