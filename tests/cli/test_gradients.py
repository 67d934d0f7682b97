"""`gradviz flow` and `gradviz paths`: text, JSON, and the ways to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Gradviz
from tests.cli.scripts import REPOSITORY, TRAINING, script

CHAIN_RULE = REPOSITORY / "samples" / "chain_rule.py"

BROKEN = """
import torch
from torch.utils.checkpoint import checkpoint

x = torch.tensor([0.0, 4.0], requires_grad=True)
w = torch.zeros(2, requires_grad=True)
net = torch.nn.Linear(2, 2)
lost = 3
(x.sqrt() * w).sum().backward()
"""

CHECKPOINTED = """
import torch
from torch.utils.checkpoint import checkpoint

x = torch.ones(2, 2, requires_grad=True)
net = torch.nn.Linear(2, 2)
loss = checkpoint(net, x, use_reentrant={}).sum()
loss.backward()
"""


def test_paths_as_json(gradviz: Gradviz) -> None:
    data = json.loads(gradviz("paths", CHAIN_RULE, "--to", "w", "--json").stdout)
    assert (data["count"], data["complete"], data["total"]["values"]) == (2, True, 5.0)
    assert [(path["names"], path["contribution"]["values"]) for path in data["paths"]] == [
        (["y", "b", "w"], 3.0),
        (["y", "a", "w"], 2.0),
    ]
    assert [step["factor"] for step in data["paths"][0]["steps"]] == [3.0, 1.0]


def test_a_parameter_is_named_as_in_code(gradviz: Gradviz, tmp_path: Path) -> None:
    data = json.loads(gradviz("paths", script(tmp_path, TRAINING), "--to", "model.weight", "--json").stdout)
    assert data["output"] == "loss" and data["target"] == "model.weight"
    assert data["total"]["shape"] == [1, 3]


def test_flow_of_the_chain_rule(gradviz: Gradviz) -> None:
    data = json.loads(gradviz("flow", CHAIN_RULE, "--json").stdout)
    assert {leaf["names"][0]: leaf["norm"] for leaf in data["leaves"]} == {"w": 5.0, "x": 2.0}
    assert [entry["op"] for entry in data["order"][:3]] == ["MulBackward0", "AddBackward0", "AddBackward0"]
    assert sorted(edge["norm"] for edge in data["edges"]) == [2.0, 2.0, 2.0, 3.0, 3.0]
    lines = gradviz("flow", CHAIN_RULE, "--by", "leaf").stdout.splitlines()
    assert "w" in lines[5].split() and "5" in lines[5].split()


@pytest.mark.parametrize("by", ["leaf"])
def test_flow_by(gradviz: Gradviz, tmp_path: Path, by: str) -> None:
    text = gradviz("flow", script(tmp_path, TRAINING), "--by", by).stdout
    assert "gradient of loss" in text
    assert "+" in gradviz("flow", script(tmp_path, TRAINING), "--by", by, "--top", 1).stdout


def test_infinite_gradients_are_text_in_json_and_marked_in_the_table(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, BROKEN.replace("zeros", "ones"))
    (leaf,) = [leaf for leaf in json.loads(gradviz("flow", path, "--json").stdout)["leaves"] if leaf["names"] == ["x"]]
    assert (leaf["norm"], leaf["nonfinite"]) == ("inf", 1)
    (row,) = [line for line in gradviz("flow", path).stdout.splitlines() if " x " in line]
    assert row.split()[-5:] == ["inf", "inf", "0", "%", "1"]


def test_a_checkpoint(gradviz: Gradviz, tmp_path: Path) -> None:
    text = gradviz("flow", script(tmp_path, CHECKPOINTED.format(False)), "--by", "leaf").stdout
    assert "net.weight" in text and "computed once more" in text
    reentrant = script(tmp_path, CHECKPOINTED.format(True))
    assert "stopped at CheckpointFunction" in gradviz("flow", reentrant).stdout
    told = gradviz("flow", reentrant, "--run-custom", code=2).output
    assert "CheckpointFunctionBackward" in told and "use_reentrant=False" in told


@pytest.mark.parametrize(
    ("name", "told"),
    [("los", "Did you mean lost?"), ("lost", "its type is int"), ("net", "net.weight"), ("net.weight", "no path")],
)
def test_wrong_names(gradviz: Gradviz, tmp_path: Path, name: str, told: str) -> None:
    assert told in gradviz("paths", script(tmp_path, BROKEN), "--to", name, code=2).output


def test_wrong_use(gradviz: Gradviz, tmp_path: Path) -> None:
    assert "--to" in gradviz("paths", CHAIN_RULE, code=2).output
    assert "no modules" in gradviz("flow", CHAIN_RULE, "--by", "module", code=2).output
    gradviz("render", CHAIN_RULE, "-o", "graph.json")
    assert "needs the script" in gradviz("flow", "graph.json", code=2).output


STEPS = {
    "z = (x + w) * (w + 1)": ["(w + 1)", "(x + w)"],
    "z = (data + w) * (w + 1)": ["(w + 1)", "add"],
    "z = (w * data) + torch.exp(w) + (1 - w)": ["(1 - w)", "exp(w)", "mul"],
    "z = torch.exp(w / 2).sin() + w.expand(3)[1:].sum()": ["(w / 2)", "expand(w)"],
}


@pytest.mark.parametrize("line", STEPS)
def test_paths_write_what_has_no_name_as_code(gradviz: Gradviz, tmp_path: Path, line: str) -> None:
    head = "import torch\nx, w = (torch.ones((), requires_grad=True) for _ in range(2))\ndata = torch.tensor(5.0)\n"
    said = gradviz("paths", f"{script(tmp_path, head + line)}:z", "--to", "w").stdout
    routes = [text.split("-->") for text in said.splitlines() if text.endswith("--> w")]
    assert sorted(route[-2].split(" --")[0].strip() for route in routes) == STEPS[line]


def test_a_picture_with_gradients_and_its_file(gradviz: Gradviz, tmp_path: Path) -> None:
    asked = ("--color", "grad")
    drawn = gradviz("render", CHAIN_RULE, *asked, "--format", "dot", "-o", "-").stdout
    assert r"w\n()\ngradient norm 5" in drawn
    bare, full = tmp_path / "bare.json", tmp_path / "full.json"
    gradviz("render", CHAIN_RULE, "-o", bare)
    gradviz("render", CHAIN_RULE, "--color", "grad", "-o", full)
    assert gradviz("render", full, *asked, "--format", "dot", "-o", "-").stdout == drawn
    refused = gradviz("render", bare, *asked, "-o", tmp_path / "bare.svg", code=2)
    assert refused.exit_code == 2 and "draw the script itself" in refused.stderr
    assert not (tmp_path / "bare.svg").exists()


def test_without_a_path_it_names_the_command_that_says_why(gradviz: Gradviz, tmp_path: Path) -> None:
    text = "import torch\nw = torch.ones(2, requires_grad=True)\nh = (w * 2).detach()\n(h * w).sum().backward()\n"
    path = script(tmp_path, text)
    said = gradviz("paths", path, "--to", "h", code=2).stderr
    assert "`gradviz why script.py h` says which line cuts it off." in said
    assert "line 3" in gradviz("why", path, "h").stdout.lower()
