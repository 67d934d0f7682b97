"""A box titled by a module holds exactly that module's ops, parameters and bytes: of every sample, as the picture shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import gradviz
from gradviz.draw.options import Options
from gradviz.fold.export import fold
from gradviz.graph import Graph
from gradviz.graph.amounts import held_bytes
from tests.blocks import ROOT
from tests.drawn import scene
from tests.real.operands import named_by_one


def modules_of(graph: Graph) -> dict[str, set[int]]:
    """The ops of each module by path, without its leaves."""
    inside: dict[str, set[int]] = {}
    for node in graph.nodes:
        if node.id in graph.leaf_of:
            continue
        scope = node.scope
        while scope is not None:
            inside.setdefault(graph.scopes[scope].path, set()).add(node.id)
            scope = graph.scopes[scope].parent
    return inside


def titled_by_one_module(graph: Graph, title: str) -> str | None:
    """The path that a title begins with, where the box is of one module and of all its calls."""
    scopes = {f"{scope.path} {scope.type}".strip(): scope.path for scope in graph.scopes}
    return scopes.get(title)


def false_boxes(whole: Graph) -> list[str]:
    picture = fold(whole)
    inside = modules_of(whole)
    wrong = []
    for node in picture.nodes:
        group = node.folded
        if group is None or group.count > 1:
            continue
        path = titled_by_one_module(whole, group.title)
        if path is None:
            continue
        ops = {at for at in group.nodes if at not in whole.leaf_of}
        calls = {scope.call for scope in whole.scopes if scope.path == path}
        own = inside[path]
        if not ops <= own or (calls == {1} and ops != own) or group.ops != len(ops):
            wrong.append(f"{group.title}: {len(ops)} ops, the module has {len(own)}")
    return wrong


def leaves_without_an_edge(graph: Graph) -> list[str]:
    made = scene(fold(graph), Options())
    ends = {end for link in made.links for end in link[:2]}
    return [box.lines[0] for box in made.boxes if box.kind == "leaf" and box.id not in ends]


class Attention(nn.Module):
    """As most write it: the attention itself between two layers, in no module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.c_attn(x).split(16, dim=2)
        q, k, v = (t.view(2, 5, 2, 8).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / 8**0.5
        mask = torch.ones(5, 5).tril() == 0
        weights = scores.masked_fill(mask, -1e9).softmax(-1)
        y = (weights @ v).transpose(1, 2).reshape(2, 5, 16)
        return self.c_proj(y)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2, self.attn = nn.LayerNorm(16), nn.LayerNorm(16), Attention()
        self.mlp = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Two(nn.Module):
    """Two alike modules of different names, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.fnet, self.cnet = nn.Sequential(*Two.layers()), nn.Sequential(*Two.layers())

    @staticmethod
    def layers() -> list[nn.Module]:
        return [nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)]

    def forward(self, x: Tensor) -> Tensor:
        return self.cnet(self.fnet(x))


def recorded(net: nn.Module, x: Tensor) -> Graph:
    with gradviz.record() as recording:
        loss = net(x).pow(2).mean()
    return recording.graph(loss, model=net)


def test_attention_is_a_box_of_its_own_beside_the_projection() -> None:
    graph = recorded(nn.Sequential(*[Block() for _ in range(12)]), torch.randn(2, 5, 16))
    assert false_boxes(graph) == []
    shown = [node.op for node in fold(graph).nodes]
    assert {"scores", "weights"} <= set(shown)  # by the statements that compute it
    assert any("c_proj Linear" in op for op in shown)


def test_modules_of_different_names_are_never_one_box() -> None:
    graph = recorded(Two(), torch.randn(3, 8))
    for depth in (1, 2):
        titles = [node.folded.title for node in fold(graph, depth=depth).nodes if node.folded is not None]
        assert not any("fnet" in title and "cnet" in title for title in titles)


def test_loose_ops_and_modules_together_have_no_modules_name() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for i in range(70):
                setattr(self, f"layer_{chr(97 + i % 26)}{i}x", nn.Linear(4 + i % 3 * 0, 4))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.children():
                x = torch.tanh(layer(x) + x) * 0.5
            return x

    graph = recorded(Many(), torch.randn(2, 4))
    assert false_boxes(graph) == []
    folded = [node.folded for node in fold(graph).nodes if node.folded is not None]
    mixed = [group for group in folded if " + " in group.title and "module" in group.title]
    for group in mixed:
        count = int(re.findall(r"(\d+) ops?", group.title)[0])
        assert 0 < count < group.ops


SAMPLES = ("mlp_training", "gpt", "resnet", "lstm", "control_flow", "nested_outputs", "checkpoint")


@pytest.mark.parametrize("name", SAMPLES)
def test_boxes_of_the_samples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gradviz.run.reading import read_graph
    from gradviz.run.run import Run
    from gradviz.run.target import parse_target

    monkeypatch.chdir(tmp_path)
    captured: Any = Run(parse_target(str(ROOT / "samples" / f"{name}.py")), read_graph).captured()
    graph: Graph = captured.result
    assert false_boxes(graph) == []
    picture = fold(graph)
    ops = len(graph.nodes) - len(graph.leaves)
    drawn = sum(node.group.ops if node.group else node.id not in picture.leaf_of for node in picture.nodes)
    assert drawn == ops
    held = sum(held_bytes(graph))
    assert sum(node.group.nbytes for node in picture.nodes if node.group) <= held
    assert leaves_without_an_edge(graph) == []


def test_numbers_of_a_list_run_forwards() -> None:
    cells = nn.ModuleList([nn.LSTMCell(8, 8) for _ in range(2)])
    x = torch.randn(20, 1, 8)
    with gradviz.record() as recording:
        states = [(torch.zeros(1, 8), torch.zeros(1, 8)) for _ in range(2)]
        for t in range(20):
            value = x[t]
            for k in range(2):
                states[k] = cells[k](value, states[k])
                value = states[k][0]
        loss = states[-1][0].sum()
    titles = [node.folded.title for node in fold(recording.graph(loss)).nodes if node.folded is not None]
    assert any("0–1 LSTMCell" in title for title in titles) and not any("1–0" in title for title in titles)


class Twice(nn.Module):
    """Calls one module twice: the first call is opened, the second one says that it has the same parameters."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.enc, self.head = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(32, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.head(self.enc(x)), self.enc(x)


def test_parameters_of_a_module_that_is_called_twice_lead_into_its_first_call() -> None:
    net, x = Twice(), torch.rand(2, 5, 32)
    assert leaves_without_an_edge(gradviz.walk(net(x), model=net)) == []
    with gradviz.record() as recording:
        outputs = net(x)
    assert leaves_without_an_edge(recording.graph(outputs, model=net)) == []


def test_a_loop_says_of_which_turn_it_has_parameters() -> None:
    a, b, x = nn.Linear(4, 4), nn.Linear(4, 4), torch.randn(2, 4)
    with gradviz.record() as recording:
        for _ in range(12):
            x = x + a(x).tanh() * b(x).exp()
    groups = fold(recording.graph(x.sum()), depth=2).groups
    # there is no call 1 of a loop
    said = [(group.title, group.same_as, group.shares) for group in groups if group.count == 11]
    assert said == [("for _ in range(12)", None, "turn 1")]


def test_ops_that_repeat_but_differ_have_not_the_title_of_one() -> None:
    """As `[1]` and `[2]` of the projection that torch splits into queries, keys and values."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    with gradviz.record() as recording:
        loss = layer(torch.randn(2, 5, 8)).sum()
    assert not list(named_by_one(recording.graph(loss)))


class Scaled(nn.Module):
    """Gives its weight to another module."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4))
        self.scale = Scale()

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.scale(self.weight))


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step = nn.Parameter(torch.ones(1))

    def forward(self, weight: Tensor) -> Tensor:
        return weight / self.step * 2


def test_a_module_has_no_parameter_that_it_is_given() -> None:
    net = Scaled()
    with gradviz.record() as recording:
        loss = net(torch.ones(2, 4)).sum()
        graph = recording.graph(loss)
    boxes = [box.lines for box in scene(fold(graph, depth=2), Options()).boxes]
    assert ("scale Scale", "1 parameter") in [lines[:2] for lines in boxes]
    assert "weight" in [lines[0] for lines in boxes]
