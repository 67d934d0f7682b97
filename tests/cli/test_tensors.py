"""`gradviz tensors`: the table, the JSON, and the ways to get it wrong."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Gradviz
from tests.cli.scripts import REPOSITORY, TRAINING, script

SAMPLES = REPOSITORY / "samples"


def test_views_share_a_letter_and_stale_ones_are_not_read(gradviz: Gradviz) -> None:
    found = json.loads(gradviz("tensors", SAMPLES / "inplace_view.py", "--json").stdout)["tensors"]
    facts = {one["names"][0]: one for one in found}
    assert facts["row"]["storage"] == facts["table"]["storage"] == "A"
    assert facts["row"]["grad_fn"] is None and facts["table"]["grad_fn"].endswith("CopySlices")
    assert "would add to the graph" in gradviz("tensors", SAMPLES / "inplace_view.py").stdout


def test_at_a_call_local_variables_are_there_and_gradients_are_not(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    at_end = gradviz("tensors", path).stdout
    assert "model.weight" in at_end and "loss" not in at_end and "norm" in at_end
    at_first = gradviz("tensors", path, "--at", 1).stdout
    assert "loss" in at_first and "model.weight" in at_first and "norm" not in at_first


STEPS = """
import torch

def train(steps):
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(steps):
        loss = model(torch.ones(2, 3)).sum()
        loss.backward()
        optimizer.step()
        print("step", step)
    return model

if __name__ == "__main__":
    model = train(3)
"""


def test_it_stops_after_the_first_optimizer_step(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, STEPS)
    result = gradviz("tensors", path)
    assert result.stdout.startswith("script.py: after the first optimizer step at script.py:10\n")
    assert "model.weight" in result.stdout and "loss" in result.stdout and "norm 3.464" in result.stdout
    assert "step" not in result.stderr
    facts = {one["names"][0]: one for one in json.loads(gradviz("tensors", path, "--json").stdout)["tensors"]}
    assert facts["model.weight"]["version"] == facts["model.bias"]["version"] > 0


def test_continue_lists_what_is_there_at_the_end(gradviz: Gradviz, tmp_path: Path) -> None:
    result = gradviz("tensors", script(tmp_path, f"{STEPS}\n    model = train(2)\n"), "--continue")
    assert result.stderr.count("step") == 5 and result.stdout.startswith("script.py: after the first optimizer step")
    made = "    model = torch.nn.Linear(3, 1)\n"
    text = STEPS.replace(made, "").replace("def train", f"{made.strip()}\n\ndef train")
    result = gradviz("tensors", script(tmp_path, text), "--continue")
    assert "loss" not in result.stdout and "norm 10.39" in result.stdout


def test_a_name_a_module_and_data_without_a_graph(gradviz: Gradviz, tmp_path: Path) -> None:
    path = script(tmp_path, TRAINING)
    assert [line.split()[0] for line in gradviz("tensors", f"{path}:model").stdout.splitlines()[1:3]] == [
        "model.weight",
        "model.bias",
    ]
    data = script(tmp_path, "import torch\nx = torch.arange(48).view(6, 8)\ny = x[1:5:2, 1:4]", "data.py")
    rows = [line.split() for line in gradviz("tensors", data).stdout.splitlines()]
    assert rows[2][-4:] == ["A", "(16,", "1)", "9"]


def test_nothing_to_list(gradviz: Gradviz, tmp_path: Path) -> None:
    assert (
        "no global variable that holds a tensor"
        in gradviz("tensors", script(tmp_path, "import torch\nx = 3"), code=2).output
    )
    assert "holds no tensor" in gradviz("tensors", f"{script(tmp_path, 'x = 3')}:x", code=2).output
    assert "no variable" in gradviz("tensors", f"{script(tmp_path, 'x = 3')}:y", code=2).output
