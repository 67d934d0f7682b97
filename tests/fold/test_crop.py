"""A module drawn alone: itself, its weights, what goes into it and what comes out."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

import gradviz
from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.draw.scene import Scene
from gradviz.fold.crop import Crop
from gradviz.graph import Data, Graph, Mark
from gradviz.graph.files import dump, loads
from tests.builders import tensor
from tests.drawn import picture, scene, shown


class Double(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        layers = (nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.net = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.net(x)
        return y


class Steps(nn.Module):
    """Blocks with a skip around each, a cell that is called again, and a scale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Double(2) for _ in range(12))
        self.cell, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            skip = x
            x = block(x) + skip
        for _ in range(3):
            x = self.cell(x) * self.scale
        return x


def recorded() -> Graph:
    torch.manual_seed(0)
    model = Steps()
    with gradviz.record() as recording:
        loss = model(torch.rand(1, 2, 4, 4)).square().mean()
    return recording.graph(loss)


GRAPH = recorded()


def drawn(focus: str, **options: object) -> Scene:
    asked = Options.of({"focus": focus, **options})
    return scene(shown(GRAPH, asked, True), asked)


def titles(made: Scene) -> list[str]:
    return [box.lines[0] for box in made.boxes]


def test_a_module_in_focus_is_drawn_alone() -> None:
    """A block of a U-Net took 3,142 pixels with all that is around it."""
    made = drawn("model.blocks.7")
    assert sorted(titles(made)) == ["0 Conv2d", "1 BatchNorm2d", "2 ReLU", "x", "y"]
    (entry,) = [box for box in made.boxes if box.kind == "outside"]
    assert entry.lines[0] == "x" and entry.frame is None
    assert made.frames[0].title.startswith("model.blocks.7 Double")
    assert any(line.startswith("model.blocks.7 alone: 3 of ") for line in made.footer)
    asked = Options(focus="model.blocks.7")
    assert picture(shown(GRAPH, asked, True), asked).height < 900


def test_inputs_and_outputs_have_the_names_of_the_script() -> None:
    class Split(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k = self.first(x.tanh()).chunk(2, 1)
            return self.last(q) * k

    model = Split()
    model.first, model.last = nn.Linear(4, 4), nn.Linear(2, 2)
    x = torch.rand(3, 4, requires_grad=True)
    with gradviz.record() as recording:
        loss = model(x).sum()
    part = Crop(recording.graph(loss), "model.last").graph()
    assert [node.op for node in part.nodes if "outside" in node.flags] == ["q"]
    part = Crop(recording.graph(loss), "model.first").graph()
    assert [node.op for node in part.nodes if "outside" in node.flags] == ["TanhBackward0"]
    assert [root.name for root in part.roots] == ["output"]


def test_findings_stay_at_their_edges() -> None:
    users = {edge.consumer for edge in GRAPH.edges}
    marks = (Mark(1, "stale-saved", "words", tuple(users), tuple((user, 0) for user in users)),)
    part = Crop(replace(GRAPH, marks=marks), "model.blocks.7").graph()
    nodes = {node.id for node in part.nodes if part.inputs(node.id)}
    assert set(part.marks[0].nodes) == {user for user, _ in part.marks[0].edges} == nodes


def test_data_stays_at_its_ops_with_its_inputs_and_its_source() -> None:
    part = Crop(GRAPH, "model.blocks.7").graph()
    inside = [node.sequence for node in part.nodes if part.inputs(node.id)]
    first, last = (node.id for node in GRAPH.nodes if node.sequence in (inside[0], inside[-1]))
    outside = GRAPH.roots[0].node
    assert outside is not None
    data = (
        Data(("elsewhere",), tensor(2), (outside,)),
        Data(("x",), tensor(2), (outside, first, last), position=(5, 6, 7)),
        Data(("x[0]",), tensor(), (first,), of=(1,)),
    )
    part = Crop(replace(GRAPH, data=data), "model.blocks.7").graph()
    taken = {part.nodes[node].sequence: entry for node, entry in zip(part.data[1].nodes, part.data[1].position)}
    assert taken == {GRAPH.nodes[first].sequence: 6, GRAPH.nodes[last].sequence: 7}
    (source,) = part.data[2].of
    assert part.data[source].names == ("x",)


def test_its_own_weights_are_inside() -> None:
    made = drawn("model.blocks.7.net.0")
    frames = {box.lines[0]: box.frame for box in made.boxes}
    assert frames["weight"] == frames["bias"] == frames["conv"] == 0 and frames["output"] is None


def test_of_several_calls_the_first_is_drawn_and_said() -> None:
    made = drawn("model.cell")
    assert any(line.startswith("call 1 of 3 of model.cell alone") for line in made.footer)
    assert "addmm" in titles(made) and "t" not in titles(made)  # views are merged, however few ops there are
    assert "t" in titles(drawn("model.cell", views="show"))


def test_a_crop_holds_what_the_whole_has() -> None:
    by_sequence = {node.sequence: node for node in GRAPH.nodes}
    for path in {scope.path for scope in GRAPH.scopes if ".blocks" in scope.path or scope.path.endswith("cell")}:
        part = Crop(GRAPH, path).graph()
        for node in part.nodes:
            ends = [(edge.position, edge.output) for edge in part.inputs(node.id)]
            if node.sequence is not None and "outside" not in node.flags:
                same = by_sequence[node.sequence]
                assert same.op == node.op
                assert ends == [(edge.position, edge.output) for edge in GRAPH.inputs(same.id)]
            else:
                assert not ends
        assert {root.node for root in part.roots} <= set(part.order) and part.roots


def test_a_saved_graph_and_a_page() -> None:
    again, asked = loads("".join(dump(GRAPH))), Options(focus="model.blocks.7")
    assert render(again, "svg", asked) == render(GRAPH, "svg", asked)
    assert len(str(render(GRAPH, "html", asked))) > 0.9 * len(str(render(GRAPH, "html")))  # it has all the rest
