"""What trains what, in one table, and the line that froze a part."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Gradviz, gradviz as run_gradviz
from tests.cli.scripts import script

gradviz_command = run_gradviz
TEXT = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.gate, self.head = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 1)
    def forward(self, x):
        h = self.body(x)
        return self.head(h) * self.gate(h).argmax(1, keepdim=True)
net, free = Net(), torch.ones(1, requires_grad=True)
for weight in net.body.parameters():
    weight.requires_grad = False
opt = torch.optim.SGD([*net.gate.parameters(), *net.head.parameters()], lr=0.1)
loss = (net(torch.ones(2, 4)) * free).sum()
loss.backward()
"""


def test_each_part_has_its_loss_and_its_optimizer(gradviz_command: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TEXT)
    parts = json.loads(gradviz_command("why", path, "--json").stdout)["parts"]
    found = {
        one["names"][0]: (one["outputs"], one["optimizers"], one["cause"] and one["cause"]["line"]) for one in parts
    }
    assert found == {
        "net.body.weight": ([], [], 13),
        "net.gate.weight": ([], ["opt"], 10),
        "net.head.weight": (["loss"], ["opt"], None),
        "free": (["loss"], [], None),
    }
    table = gradviz_command("why", path).stdout
    assert "net.body.*" in table and "requires_grad is False, set in line 13" in table
    assert "into integers or booleans" in table
