"""Every command that runs a script records: its graphs have modules and source lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradviz.walker.private import missing
from tests.run.running import run_target

_SCRIPT = """\
import os
os.environ["BEFORE_TORCH"] = "1"
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
    def forward(self, x):
        return self.layer(x).relu()
net = Net()
for step in range(3):
    loss = net(torch.ones(1, 2)).sum()
    loss.backward()
"""


@pytest.mark.parametrize("at", [None, 3])
def test_modules_and_lines(tmp_path: Path, at: int | None) -> None:
    path = tmp_path / "train.py"
    path.write_text(_SCRIPT)
    graph = run_target(str(path), at=at).result
    told = {
        node.op: (graph.scopes[node.scope].path if node.scope is not None else None, node.source and node.source.line)
        for node in graph.nodes
        if node.sequence is not None
    }
    assert told == {
        "SumBackward0": (None, 13),
        "ReluBackward0": ("net", 10),
        "AddmmBackward0": ("net.layer", 10),
        "TBackward0": ("net.layer", 10),
    }
    assert [(scope.path, scope.call) for scope in graph.scopes] == [("net", 1), ("net.layer", 1)]
    assert graph.attribution == "recorded" and graph.notes == missing()
