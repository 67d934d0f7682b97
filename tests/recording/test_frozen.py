"""What is frozen says so, also where the graph does not lead to it."""

from __future__ import annotations

import torch
from torch import nn

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.graph import Graph
from gradviz.graph.files import dump, loads
from tests.drawn import scene


def recorded(net: nn.Module) -> Graph:
    with gradviz.record() as recording:
        loss = net(torch.rand(3, 4)).sum()
    return recording.graph(loss, model=net)


def layers(trained: str) -> Graph:
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.startswith(trained))
    return recorded(net)


def test_layers_before_and_after_the_trained_one_are_told() -> None:
    """Layers 0 and 1 were absent without a word, and layer 3 looked trained."""
    graph = layers("2.")
    frozen = {scope.path: scope.is_frozen for scope in graph.scopes}
    assert frozen == {"net": False, "net.2": False, "net.3": True}
    assert "frozen: net.0, net.1, net.3" in graph.notes
    rows = str(render(graph, "txt")).splitlines()
    assert [line.split()[:4] for line in rows if "Linear" in line] == [
        ["2", "Linear", "2", "20"],
        ["3", "Linear", "1", "20,"],
    ]
    shown = scene(graph.fold(), Options())
    lines = {box.lines[0]: box.lines[1:] for box in shown.boxes}
    assert lines["2 Linear"] == ("20 parameters",) and lines["3 Linear"] == ("frozen",)
    assert "frozen: net.0, net.1, net.3" in shown.footer


def test_a_frozen_module_is_told_as_a_whole_and_a_frame_too() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)), nn.Linear(4, 4))
    net[1].requires_grad_(False)
    net[2].bias.requires_grad_(False)
    graph = recorded(net)
    assert "frozen: net.1, net.2.bias" in graph.notes
    titles = [frame.title for frame in scene(graph, Options()).frames]
    assert "1 Sequential, 28 parameters, frozen" in titles
    again = loads("".join(dump(graph)))
    assert again.scopes == graph.scopes and again.notes == graph.notes


def test_nothing_is_said_where_all_is_trained() -> None:
    graph = layers("")
    assert not any("frozen" in note for note in graph.notes)
    assert not any(scope.is_frozen for scope in graph.scopes)
