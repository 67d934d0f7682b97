"""Findings in pictures: what is marked, numbered and listed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import gradviz
from gradviz.cli.main import cli
from gradviz.draw.options import Options
from gradviz.draw.output import render
from tests.command_line import CliRunner
from tests.drawn import scene
from tests.walker.graphs import needs_raw

SAMPLES = Path(__file__).parents[2] / "samples" / "problems"


def drawn(name: str, *options: str) -> str:
    result = CliRunner().invoke(cli, ["render", "--check", str(SAMPLES / name), "-o", "-", "--format", "dot", *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("name", "mark", "boxes", "listed"),
    [
        ("inplace_saved.py", "1. stale-saved", 1, "1. error: activation was modified in place"),
        ("second_backward.py", "1. freed-graph", 12, "1. error: backward() has already run through 12 nodes"),
        ("no_graph.py", "1. no-graph", 1, "1. error: loss has no graph"),
    ],
)
@needs_raw
def test_boxes_are_marked_and_listed(name: str, mark: str, boxes: int, listed: str) -> None:
    text = drawn(name, "--depth", "all")
    assert text.count(mark) == boxes and listed in text


@needs_raw
def test_the_title_says_which_backward_call_is_drawn() -> None:
    assert "at second_backward.py:33, call 2" in drawn("second_backward.py")
    assert "call 1" in drawn("inplace_saved.py")


def test_a_finding_about_what_is_not_in_the_graph_is_listed() -> None:
    text = drawn("unused_parameter.py")
    assert "2. warning: 2 parameters of model.forgotten" in text


@needs_raw
def test_a_folded_box_is_marked_for_what_is_inside() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()), torch.nn.Linear(2, 1))
    with gradviz.record() as recording:
        hidden = net[0](torch.ones(1, 2))
        loss = net[1](hidden).sum()
    hidden.data.add_(0)
    with torch.no_grad():
        hidden.add_(1)
    graph = gradviz.check(loss, model=net, recording=recording).graph.fold(depth=1)
    made = scene(graph, Options(depth=1))
    flagged = [box.number for box in made.boxes if any("stale-saved" in flag for flag in box.flags)]
    assert flagged and all(node is not None and graph.nodes[node].group is not None for node in flagged)
    assert any(line.startswith("1. error") for line in made.footer)


def test_a_graph_without_findings_looks_as_ever() -> None:
    w = torch.ones(2, requires_grad=True)
    loss = (w * w).sum()
    assert render(gradviz.check(loss).graph, "dot") == render(gradviz.walk(loss), "dot")


def test_check_and_gradient_colours_are_two_pictures() -> None:
    result = CliRunner().invoke(cli, ["render", "--check", "--color", "grad", str(SAMPLES / "nan.py")])
    assert result.exit_code == 2 and "two pictures" in result.output
