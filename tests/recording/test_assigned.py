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
    assert assigned_names([first, first, None, second], "abcd", [0, 1, 2, 3]) == {1: "v1", 3: "v2"}


def looped(x: Tensor) -> Tensor:
    for _ in range(3): x = torch.tanh(x * 2)  # noqa: E701  # fmt: skip
    for _ in range(3):
        x = torch.exp(x) * 0.5
    for _ in range(2):
        y = x * x * x
        x = y.sum() + 1
    return x * x * x


def test_each_turn_of_a_loop_on_one_line_has_the_name() -> None:
    x = torch.ones(3, requires_grad=True)
    with gradviz.record() as recording:
        loss = looped(x)
    nodes = sorted(recording.graph(loss).nodes, key=lambda node: node.sequence or 0)
    assert [node.assigned for node in nodes if node.sequence is not None] == [
        *["", "x"] * 3, *["", "x"] * 3, *["", "y", "", "x"] * 2, "", "",
    ]  # fmt: skip
