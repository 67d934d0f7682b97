"""`gradviz info` and the numbers behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gradviz.cli.info import environment
from gradviz.graph import (
    Edge,
    Graph,
    Leaf,
    Node,
    Root,
    SavedTensor,
    Storage,
)
from gradviz.graph.amounts import depth, elements, overview
from tests.builders import chain, leaf, tensor
from tests.cli.conftest import Gradviz
from tests.cli.scripts import script
from tests.walker.graphs import needs_raw


def test_numbers_of_a_hand_made_graph() -> None:
    slot = SavedTensor("self", tensor(2), 0, "input", "live")
    gone = SavedTensor("other", None, None, None, "freed")
    nodes = (
        Node(0, "AddBackward0", saved=(slot, gone)),
        Node(1, "MulBackward0", saved=(slot,), flags=("freed",)),
        Node(2, "MulBackward0", flags=("freed", "hooks")),
        Node(3, "AccumulateGrad"),
        Node(4, "AccumulateGrad"),
    )
    edges = (Edge(0, 1, 0, 0), Edge(0, 3, 0, 1), Edge(1, 2, 0, 0), Edge(2, 3, 0, 0), Edge(2, 4, 0, 1))
    leaves = (leaf(3, "w", shape=(2, 5)), Leaf(4, ("x",), tensor("s1", 3), "input"))
    roots = (Root(0, 0, "y", tensor()),)
    found = overview(Graph(nodes, edges, leaves, roots, storages=(Storage(0, 100, "input"),)))
    assert (found.nodes, found.edges, found.depth) == (5, 5, 3)
    assert list(found.operations.items()) == [("MulBackward0", 2), ("AddBackward0", 1)]
    assert found.flags == {"freed": 2, "hooks": 1}
    assert found.elements == {"parameter": 10, "input": 0}
    assert (found.saved, found.saved_bytes) == (2, 100)
    assert [one.names for one in found.largest_leaves] == [("w",), ("x",)]
    assert [elements(one.tensor) for one in found.largest_leaves] == [10, None]


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 3, 50_000])
def test_depth_of_a_chain(length: int) -> None:
    graph = chain(length)
    assert depth(graph) == length


def test_an_empty_graph() -> None:
    assert (overview(Graph()).depth, overview(Graph()).nodes) == (0, 0)


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


@pytest.mark.parametrize(
    ("chosen", "said"), [("none", "not used, gradviz places the boxes itself"), ("bundled", "(bundled)")]
)
def test_the_graphviz_in_use_is_named(monkeypatch: pytest.MonkeyPatch, chosen: str, said: str) -> None:
    monkeypatch.setenv("GRADVIZ_GRAPHVIZ", chosen)
    if chosen == "bundled":
        pytest.importorskip("pygraphviz")
    assert said in environment()["graphviz"]


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
