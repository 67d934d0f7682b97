"""`gradviz info` and the numbers behind it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Gradviz
from tests.cli.scripts import script
from tests.walker.graphs import needs_raw


def test_the_screen_and_the_json_say_the_same(gradviz: Gradviz, tmp_path: Path) -> None:
    code = (
        "import torch\nws = [torch.ones(i + 1, requires_grad=True) for i in range(30)]\ny = sum(w.sum() for w in ws)\n"
    )
    path = script(tmp_path, code)
    data = json.loads(gradviz("info", "--json", path).stdout)
    said = gradviz("info", path).stdout
    assert data["operations"] == {"AddBackward0": 30, "SumBackward0": 30}
    assert len(data["leaves"]) == 30
    assert (data["nodes"], data["edges"], data["depth"]) == (90, 89, 31)
    assert "60 backward functions, 30 leaves, 89 edges, longest path 31" in said
    assert "reaches  30 inputs of 465 elements" in said
    assert len(said.splitlines()) <= 40
    assert data["environment"]["torch"] and "graphviz" in data["environment"]


def test_the_parts_of_the_model_are_the_pictures_top_level(gradviz: Gradviz, tmp_path: Path) -> None:
    code = (
        "import torch\nfrom torch import nn\nmodel = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))\n"
        "hidden = model(torch.ones(4, 2)) * 2\nhidden.sum().backward()\n"
    )
    lines = gradviz("info", script(tmp_path, code)).stdout.splitlines()
    first = lines.index("What runs") + 1
    titles = [line.strip().split("  ")[0] for line in lines[first : lines.index("", first)]]
    assert titles == ["model.0 Linear", "model.1 Tanh", "model.2 Linear", "hidden", "sum"]


FAULTY = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.spare = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(2, 2)
    def forward(self, x):
        return self.b(self.a(x).relu().detach())
net = Net()
net.register_module("<script>`x`|@you\\n# no", nn.Linear(1, 1))
loss = net(torch.ones(2, 4)).pow(2).mean()
loss.backward()
"""


@needs_raw
def test_findings_memory_and_gradient_are_on_the_screen(gradviz: Gradviz, tmp_path: Path) -> None:
    said = gradviz("info", script(tmp_path, FAULTY)).stdout
    assert "warning  2 parameters of net.a (Linear) do not reach the output" in said
    assert "in all" in said and "72 B in 2 saved tensors" in said
    assert "reaches  2 parameters of 9 elements" in said
    assert "none     net.a.weight: net.a ran, but the loss does not use its result, script.py:9" in said
    data = json.loads(gradviz("info", "--json", "script.py").stdout)
    assert data["findings"][0]["id"] == "unused-parameter" and len(data["no_gradient"]) == 6


def test_the_findings_are_those_of_the_one_graph_and_measure_nothing(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, f"{FAULTY}print('not reached')")
    assert "not reached" not in gradviz("info", path).stderr
    gradviz("render", path, "-o", "g.json")
    assert "Findings" not in gradviz("info", "g.json").stdout
