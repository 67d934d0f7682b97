"""Pictures for a text: ops in boxes, tensors on edges, inputs without gradient, and nothing below."""

from __future__ import annotations

import math
import re

import pytest
import torch

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.picture import picture
from gradviz.draw.scene import Scene, scene
from gradviz.draw.svg import render
from gradviz.graph import Graph
from gradviz.graph.files import dump, loads
from tests.draw.test_scene import GRAPHS
from tests.walker.graphs import needs_raw

PAPER = Options(style="paper")


def attention() -> Graph:
    x = torch.randn(5, 8)
    Wq, Wk = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
    q, k = x @ Wq, x @ Wk
    scores = q @ k.T / math.sqrt(8)
    with gradviz.record():
        return gradviz.walk(scores.softmax(-1))


def boxes(made: Scene, kind: str) -> list[tuple[str, ...]]:
    return [box.lines for box in made.boxes if box.kind == kind]


@needs_raw
def test_ops_are_boxes_and_tensors_stand_on_edges() -> None:
    made = scene(attention(), PAPER)
    assert sorted(boxes(made, "op")) == [("/ 2.83",), ("matmul",), ("matmul",), ("matmul",), ("permute",), ("softmax",)]
    assert sorted(boxes(made, "leaf")) == [("Wk", "(8, 8)"), ("Wq", "(8, 8)")]
    told = {link.label for link in made.links}
    assert told == {"", "q (5, 8)", "k (5, 8)", "(8, 5)", "(5, 5)", "scores (5, 5)"}
    assert made.footer == () and made.title == "" and made.dtype == "dtype float32"


@needs_raw
def test_an_input_without_gradient_is_one_box_for_all_its_users() -> None:
    """Also in a graph that was read from a file."""
    graph = attention()
    for one in (graph, loads("".join(dump(graph)))):
        made = scene(one, PAPER)
        assert boxes(made, "input") == [("x", "(5, 8)")]
        (x,) = (box.id for box in made.boxes if box.kind == "input")
        users = [made.boxes[link.target].lines for link in made.links if link.source == x]
        assert users == [("matmul",), ("matmul",)]
    assert boxes(scene(graph, Options()), "input") == [("x", "(5, 8)")]
    for leaves in ("parameters", "hidden"):
        assert not boxes(scene(graph, Options(leaves=leaves)), "input")


def test_it_is_proportional_light_and_says_the_rest_in_its_description() -> None:
    text = "".join(render(attention(), PAPER))
    assert "Helvetica" in text and "Mono" not in text and "prefers-color-scheme" not in text
    shown = re.findall(r"<text[^>]*>([^<]*)<", text)
    assert not any("not drawn" in line or "backward" in line for line in shown)
    (description,) = re.findall(r"<desc[^>]*>([^<]*)<", text)
    assert "not drawn" not in description  # the number is in its op's title


@pytest.mark.parametrize("name", GRAPHS)
def test_every_graph_has_a_picture(name: str) -> None:
    made = picture(GRAPHS[name], PAPER)
    assert len(made.blocks) >= len(scene(GRAPHS[name], Options()).boxes)
