"""The variable by which the last op of a line is known."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import gradviz
from gradviz.graph import SourceLine
from gradviz.recording.assigned import assigned, assigned_names


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)
        self.last = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.query(x), self.key(x)
        scores = q @ k.transpose(-2, -1) / 2.0
        weights = torch.softmax(
            scores,
            dim=-1,
        )
        weights *= 0.5
        self.last = weights.sum()
        return self.last


def test_the_last_op_of_a_line_has_the_name_in_forward_too(tmp_path: Path) -> None:
    net = Attention()
    with gradviz.record() as recording:
        loss = net(torch.ones(2, 3, 4))
    graph = recording.graph(loss)
    named = {node.assigned: node.op for node in graph.nodes if node.assigned}
    assert named == {
        "scores": "DivBackward0",
        "weights": "MulBackward0",
        "self.last": "SumBackward0",
    } or named == {**named, "weights": "SoftmaxBackward0"}
    assert [node.assigned for node in graph.nodes].count("weights") == 2
    assert gradviz.load(graph.save(str(tmp_path / "graph.json"))).nodes == graph.nodes
    assert not any(node.assigned for node in gradviz.walk(loss).nodes)  # nobody recorded


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("loss: Tensor = f(x)", "loss"),
        ("self.h += x", "self.h"),
        ("a = b = f(x)", ""),
        ("a, b = f(x)", ""),
        ("x[0] = f(x)", ""),
        ("return f(x)", ""),
        ("losses = [f(x) for x in xs]", ""),
        ("pair = f(x), g(x)", ""),
        ("first = [f(x)][0]", "first"),
        ("x = (", ""),
        ("x = 1; y = 2", ""),
        ("\x00", ""),
        ("", ""),
    ],
)
def test_only_one_variable_is_a_name(text: str, name: str) -> None:
    assert assigned(SourceLine("no such file.py", 1, text=text)) == name


def test_a_file_that_changed_since_names_nothing(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("other = torch.softmax(\n    x,\n)\n")
    assert assigned(SourceLine(str(path), 1, text="weights = torch.softmax(")) == ""
    assert assigned(SourceLine(str(path), 2, text="x,")) == "other"


def test_of_several_ops_of_a_line_only_the_last_is_named() -> None:
    first, second = (SourceLine("net.py", i, text=f"v{i} = f(x)") for i in (1, 2))
    assert assigned_names([first, first, None, second], [0, 1, 2, 3]) == {1: "v1", 3: "v2"}
