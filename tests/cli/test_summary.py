"""`gradviz summary` and `gradviz.summary`: the table of modules with chosen columns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import gradviz
from gradviz.draw.options import COLUMNS
from gradviz.errors import FormatError, TargetError
from tests.cli.conftest import Gradviz
from tests.cli.scripts import script

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(3, 8), nn.ReLU()).requires_grad_(False)
        self.head = nn.Linear(8, 2)
        self.unused = nn.Linear(4, 4)

    def forward(self, x, scale=1.0):
        return self.head(self.backbone(x)) * scale
"""


def rows(text: str) -> dict[str, list[str]]:
    return {words[0]: words[1:] for words in map(str.split, text.splitlines()) if words}


def test_frozen_and_unused_modules_have_a_row(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, CODE, "model.py")
    said = rows(gradviz("summary", "model.py:Net", "--input", "5,3").stdout)
    assert said["module"] == ["output", "parameters", "trainable", "FLOPs", "saved"]
    assert said["Net"][:5] == ["(5,", "2)", "70", "18", "160"]
    assert said["head"][-5:] == ["18", "18", "160", "160", "B"]
    assert said["backbone"][-2:] == ["32", "0"] and "requires_grad" in said["backbone"]
    assert said["unused"][-2:] == ["20", "0"]


def test_columns_are_chosen_by_name(gradviz: Gradviz, tmp_path: Path) -> None:
    script(tmp_path, CODE, "model.py")
    command = ["summary", "model.py:Net", "--input", "5,3", "--columns"]
    assert rows(gradviz(*command, "flops,Output").stdout)["module"] == ["FLOPs", "output"]
    assert rows(gradviz(*command, ",".join(COLUMNS)).stdout)["module"] == COLUMNS
    refused = gradviz(*command, "flop", code=2).stderr
    assert "Valid are: output, parameters, trainable, FLOPs" in refused


def test_it_is_the_tree_of_a_script(gradviz: Gradviz, tmp_path: Path) -> None:
    code = "import torch\nnet = torch.nn.Linear(2, 1)\nnet(torch.ones(3, 2)).sum().backward()\n"
    said = rows(gradviz("summary", script(tmp_path, code)).stdout)
    assert said["net"][-6:] == ["1)", "3", "3", "12", "24", "B"]


def test_a_model_and_a_shape_in_python() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    before = net[1].running_mean.clone()
    for given in ((2, 3, 8, 8), "2,3,8,8", torch.randn(2, 3, 8, 8)):
        said = str(gradviz.summary(net, given))
        assert said.startswith("net\n") and "0 Conv2d" in said and "(2, 4, 6, 6)" in said
    assert torch.equal(net[1].running_mean, before) and net[1].num_batches_tracked == 0


def test_a_graph_or_tensors_that_are_there_already() -> None:
    net = nn.Linear(3, 2)
    loss = net(torch.ones(1, 3)).sum()
    for given in (loss, {"loss": loss}, gradviz.walk(loss)):
        assert "FLOPs" in str(gradviz.summary(given, columns=["FLOPs"]))


def test_a_named_argument_and_what_is_missing() -> None:
    net = nn.Bilinear(3, 4, 2)
    assert "(5, 2)" in str(gradviz.summary(net, (5, 3), input2=(5, 4)))
    with pytest.raises(TargetError, match="1 more input: input2"):
        gradviz.summary(net, (5, 3))
    with pytest.raises(FormatError, match="columns cannot be"):
        gradviz.summary(net, (5, 3), (5, 4), columns=["x"])
