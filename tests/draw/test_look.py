"""The look of a picture: ops in boxes, tensors on edges, inputs without gradient, and a direction by itself."""

from __future__ import annotations

import math
import re

import pytest
import torch

import gradviz
from gradviz.draw.edge_words import tensors_along
from gradviz.draw.kinds import kind_of_group
from gradviz.draw.options import Options
from gradviz.draw.picture import Sketch
from gradviz.draw.scene import Scene
from gradviz.draw.svg import render
from gradviz.graph import Graph, Group
from gradviz.graph.files import dump, loads
from tests.drawn import picture, scene, shown, sketch
from tests.walker.graphs import needs_raw

PLAIN = Options()


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
    made = scene(attention(), PLAIN)
    assert sorted(boxes(made, "op")) == [("/ 2.83",), ("matmul",), ("matmul",), ("matmul",)]
    assert (boxes(made, "shape"), boxes(made, "activation")) == ([("permute",)], [("softmax",)])
    assert sorted(boxes(made, "leaf")) == [("Wk", "(8, 8)"), ("Wq", "(8, 8)")]
    told = {link.label for link in made.links}
    assert told == {"", "q (5, 8)", "k (5, 8)", "(8, 5)", "(5, 5)", "scores"}
    assert made.dtype == "dtype float32"


@needs_raw
def test_an_input_without_gradient_is_one_box_for_all_its_users() -> None:
    """Also in a graph that was read from a file."""
    graph = attention()
    for one in (graph, loads("".join(dump(graph)))):
        made = scene(one, PLAIN)
        assert boxes(made, "input") == [("x", "(5, 8)")]
        (x,) = (box.id for box in made.boxes if box.kind == "input")
        users = [made.boxes[link.target].lines for link in made.links if link.source == x]
        assert users == [("matmul",), ("matmul",)]
    assert boxes(scene(graph, Options()), "input") == [("x", "(5, 8)")]
    for leaves in ("parameters", "hidden"):
        assert not boxes(scene(graph, Options(leaves=leaves)), "input")


def test_it_is_proportional_and_says_the_rest_in_its_description() -> None:
    text = "".join(render(sketch(attention(), PLAIN), PLAIN))
    assert "Helvetica" in text and "Mono" not in text
    shown = re.findall(r"<text[^>]*>([^<]*)<", text)
    assert not any("not drawn" in line or "backward" in line for line in shown)
    (description,) = re.findall(r"<desc[^>]*>([^<]*)<", text)
    assert "6 backward functions" in description and "not drawn" not in description


def mlp(layers: int) -> Graph:
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))
    with gradviz.record() as recording:
        loss = net(torch.ones(2, 4)).sum()
    return recording.graph(loss)


def test_a_layer_is_one_box_without_its_parameters() -> None:
    made = scene(shown(mlp(3), PLAIN), PLAIN)
    assert sorted(boxes(made, "layer")) == [(f"{i} Linear", "20 parameters") for i in range(3)]
    assert not boxes(made, "leaf") and boxes(made, "input")


def test_details_are_said_when_asked_for() -> None:
    told = Options(details=True)
    made = scene(shown(mlp(1), told), told)
    (layer,) = boxes(made, "layer")
    assert layer[1].startswith("2 ops, 20 parameters") and any("(2, 4)" in line for line in layer)


def test_the_direction_is_the_one_that_fits_a_slide_or_a_page() -> None:
    """A few layers go down, some more to the right, as a chain of them would be shown too small."""
    short, long = (picture(shown(mlp(layers), PLAIN), PLAIN) for layers in (4, 12))
    assert short.height > short.width / 2
    assert 1.5 * long.height < long.width < 1_500, "in lines, as text is"
    asked = picture(shown(mlp(12), PLAIN), Options(direction="down"))
    assert asked.height > asked.width


def test_no_second_picture_is_made_where_a_wide_one_did_not_fit() -> None:
    """The search for a view has measured a picture that runs sideways, and found none that a slide holds."""
    folding = shown(mlp(12), PLAIN)
    assert Sketch(folding, PLAIN).picture().width > 1_000
    measured = Sketch(folding, PLAIN, tried={False, True}).picture()
    assert measured.height > measured.width


def test_what_goes_round_is_said_at_the_loop() -> None:
    cell = torch.nn.Linear(4, 4)
    h = torch.zeros(2, 4)
    with gradviz.record() as recording:
        for _ in range(30):
            h = torch.tanh(cell(h)) + h
        loss = h.sum()
    made = scene(shown(recording.graph(loss), PLAIN), PLAIN)
    (loop,) = (link for link in made.links if link.source == link.target)
    assert loop.label == "h"


def test_each_part_of_a_split_is_told_by_its_own_name_and_never_by_one_of_another() -> None:
    x = torch.ones(2, 6, requires_grad=True)
    with gradviz.record() as recording:
        q, k, v = x.exp().split(2, dim=-1)
        parts = x.exp().chunk(2, dim=-1)
        loss = (q * k + v.sin()).sum() + parts[0].sin().sum() * parts[1].cos().sum()
    made = scene(recording.graph(loss), PLAIN)
    told = {link.label for link in made.links if made.boxes[link.source].lines[0] in ("split", "chunk")}
    assert told == {"q (2, 2)", "k (2, 2)", "v (2, 2)", "(2, 3)"}


def test_queries_keys_and_values_keep_their_names_through_views() -> None:
    x = torch.ones(2, 3, 12, requires_grad=True)
    net = torch.nn.Linear(12, 36)
    with gradviz.record() as recording:
        q, k, v = net(x).split(12, dim=-1)
        q, k, v = (part.view(2, 3, 4, 3).transpose(1, 2) for part in (q, k, v))
        scores = (q @ k.transpose(-2, -1)).softmax(-1)
        loss = (scores @ v).sum()
    made = scene(shown(recording.graph(loss), PLAIN), PLAIN)
    told = {link.label.partition(" (")[0] for link in made.links if made.boxes[link.source].lines[0] == "split"}
    assert told == {"q", "k", "v"}


def test_what_stands_side_by_side_in_the_code_does_so_in_the_picture() -> None:
    """Two layers of one tensor, one of which is used far below: as mu and logvar."""
    x, low, high = torch.ones(2, 3), torch.nn.Linear(3, 4), torch.nn.Linear(3, 4)
    with gradviz.record() as recording:
        h = torch.nn.functional.relu(torch.nn.Linear(3, 3)(x))
        mu, logvar = low(h), high(h)
        loss = (mu + (0.5 * logvar).exp().sin().cos().tanh()).sum()
    drawn = picture(shown(recording.graph(loss), PLAIN), Options(direction="down"))
    layers = [block for block in drawn.blocks if "Linear" in block.words[0].text]
    assert len({block.rect.y for block in layers}) == 2, "one above, two beside each other"


def test_the_length_of_a_vector_is_no_norm_layer_and_a_path_gives_no_colour() -> None:
    x = torch.ones(2, 3, requires_grad=True)
    net = torch.nn.ModuleDict({"Attention": torch.nn.Linear(3, 3), "after": torch.nn.LayerNorm(3)})
    with gradviz.record() as recording:
        loss = net["after"](net["Attention"](x)).norm()
    made = scene(shown(recording.graph(loss), PLAIN), PLAIN)
    kinds = {box.lines[0]: box.kind for box in made.boxes}
    assert kinds["norm"] == "op"
    assert kinds["net.Attention Linear"] == "layer" and kinds["net.after LayerNorm"] == "norm"


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("1–3 ReLU, Linear", "group"),
        ("fc.1–3 Linear", "layer"),
        ("act ReLU, call 2", "activation"),
        ("q, k, v Linear", "layer"),
    ],
)
def test_a_box_of_several_classes_has_the_colour_of_none_of_them(title: str, kind: str) -> None:
    assert kind_of_group(Group("chain", title, (0, 1, 2), ops=3, parameters=9)) == kind


class Scores(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.a = torch.nn.Parameter(torch.rand(3, 4)), torch.nn.Parameter(torch.rand(8, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x @ self.w
        e1, e2 = h @ self.a[:4], h @ self.a[4:]
        return (torch.relu(e1 + e2.T).softmax(1) @ h).tanh().square()


def test_the_shape_at_a_name_is_that_of_the_variable_and_not_of_a_view_of_it() -> None:
    net = Scores()
    with gradviz.record() as recording:
        loss = net(torch.rand(6, 3)).exp().sum().sin().cos()
    made = scene(shown(recording.graph(loss), PLAIN), PLAIN)
    labels = {link.label for link in made.links}
    assert any("e1" in label for label in labels) and not any("e2 (1, 6)" in label for label in labels)


def test_what_a_view_with_a_box_of_its_own_makes_has_not_the_name_of_its_input() -> None:
    lstm = torch.nn.LSTM(3, 4)
    with gradviz.record() as recording:
        scores, _ = lstm(torch.rand(5, 2, 3))
        squares = scores.square()
        loss = torch.nn.functional.cross_entropy(squares.flatten(0, 1), torch.zeros(10, dtype=torch.long))
    made = scene(shown(recording.graph(loss), PLAIN), PLAIN)
    named = [made.boxes[link.source].lines[0] for link in made.links if "squares" in link.label]
    assert named == ["square"]


def test_parameters_that_a_later_call_uses_again_are_no_data_on_the_way_to_it() -> None:
    cell = torch.nn.GRUCell(3, 4)
    state = torch.zeros(2, 4)
    with gradviz.record() as recording:
        for _ in range(30):
            state = cell(torch.ones(2, 3), state)
        loss = state.sum()
    folding = shown(recording.graph(loss), PLAIN)
    later = next(i for i, box in enumerate(folding.boxes) if box.folded and box.folded.count == 29)
    (edge,) = (edge for edge in folding.inputs(later) if edge.producer != later)
    assert [node in folding.graph.leaf_of for node, _ in tensors_along(folding, edge)] == [False]


def inputs(made: Scene) -> list[str]:
    return [box.lines[0] for box in made.boxes if box.kind == "input"]


@needs_raw
def test_data_of_which_an_op_saved_a_copy_is_drawn_by_the_name_it_was_passed_with() -> None:
    lstm, x = torch.nn.LSTM(3, 4, batch_first=True), torch.rand(5, 6, 3)
    conv, images = torch.nn.Conv2d(3, 2, 3), torch.rand(2, 3, 8, 8)
    with gradviz.record() as recording:
        out, _ = lstm(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = conv(images)
        loss = out.mean() + made.float().mean()
    assert sorted(inputs(scene(shown(recording.graph(loss), PLAIN), PLAIN))) == ["images", "x"]


@needs_raw
def test_a_mask_that_nobody_holds_is_counted() -> None:
    w, mask = torch.rand(4, 4, requires_grad=True), torch.eye(4, dtype=torch.bool)
    made = scene(gradviz.walk((w * 2)[~mask].relu().sum()), PLAIN)
    assert not inputs(made) and "not drawn: 1 input without gradient" in made.footer
    held = scene(gradviz.walk((w * 2)[mask].relu().sum()), PLAIN)
    assert inputs(held) == ["mask"] and not [line for line in held.footer if "input" in line]


@needs_raw
def test_noise_of_the_size_of_an_argument_is_not_taken_for_it() -> None:
    class Dropped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.dropout(self.fc(x))

    net, x = Dropped(), torch.rand(3, 4)
    with gradviz.record() as recording:
        loss = net(x).sum()
    (data,) = recording.graph(loss).data
    assert [recording.graph(loss).nodes[node].op for node in data.nodes] == ["AddmmBackward0"]


def test_a_u_net_is_no_u_where_the_reader_asks_for_a_direction() -> None:
    x = torch.ones(2, requires_grad=True)
    kept = []
    for _ in range(4):
        x = x.sin().cos()
        kept.append(x)
    for value in reversed(kept):
        x = (x.tanh() + value).exp()
    graph = gradviz.walk(x)
    down, right, free = (picture(graph, Options(direction=way)) for way in ("down", "right", "auto"))
    assert right.width > 2 * right.height and down.height > 1.5 * free.height


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(self.up(self.norm(x)).relu())
        y = y.sin().exp().tanh().cos().sigmoid().abs()
        return x + self.scale * y


class _Stages(torch.nn.Module):
    """As ConvNeXt: the first turn of its loop differs from the others."""

    def __init__(self) -> None:
        super().__init__()
        reduce = [torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 8)) for _ in range(3)]
        self.reduce = torch.nn.ModuleList([torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.LayerNorm(8)), *reduce])
        self.stages = torch.nn.ModuleList(torch.nn.Sequential(_Block(), _Block()) for _ in range(4))
        self.head = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(4):
            x = self.reduce[i](x)
            x = self.stages[i](x)
        logits: torch.Tensor = self.head(x)
        return logits


def test_a_block_is_open_in_the_turn_of_a_loop_that_is_shown() -> None:
    model = _Stages()
    with gradviz.record() as recording:
        loss = torch.nn.functional.cross_entropy(model(torch.ones(2, 3)), torch.tensor([0, 1]))
    made = scene(shown(recording.graph(loss), PLAIN), PLAIN)
    assert any(frame.title.startswith("0 _Block") for frame in made.frames)


class Tied(torch.nn.Module):
    """Two stages of which some layers have the same parameters, as CoaT has its position encodings."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        linear = torch.nn.Linear
        self.early, self.late = (torch.nn.Sequential(*(linear(4, 4) for _ in range(layers + 1))) for _ in range(2))
        for i in range(layers):
            self.late[i].weight, self.late[i].bias = self.early[i].weight, self.early[i].bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.late(self.early(x).tanh())  # type: ignore[no-any-return]


@pytest.mark.parametrize(("layers", "leaves"), [(3, 6), (4, 0)])
def test_many_parameters_of_two_boxes_stand_with_the_first(layers: int, leaves: int) -> None:
    net = Tied(layers)
    with gradviz.record() as recording:
        loss = net(torch.ones(2, 4)).sum()
    closed = Options(depth=2)
    made = scene(shown(recording.graph(loss), closed), closed)
    assert [box.kind for box in made.boxes].count("leaf") == leaves
    said = [line for line in made.footer if line.startswith("drawn with the first box")]
    assert said == ([] if leaves else ["drawn with the first box that uses them: 8 parameter tensors"])
    assert {"early Sequential", "late Sequential"} <= {box.lines[0] for box in made.boxes}


def _node(layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    for layer in layers:
        x = layer(x).tanh()
    return x.sum(0).exp().sin().cos()


def _both(layers: torch.nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    return _node(layers, x) * _node(layers, x.cos()) + _node(layers, x.sin())


@pytest.mark.parametrize("first", [4, 2])
def test_no_edge_joins_boxes_that_only_share_parameters(first: int) -> None:
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(6))
    with gradviz.record() as recording:
        loss = (_node(layers[:first], torch.ones(3, 4)) + _both(layers, torch.ones(3, 4))).sum()
    graph, closed = recording.graph(loss), Options(depth=1)
    made = scene(shown(graph, closed), closed)
    boxes = {box.lines[0]: box for box in made.boxes}
    node, both = boxes["_node()"], boxes["_both()"]
    is_joined = any((link.source, link.target) == (node.id, both.id) for link in made.links)
    # a few parameters are boxes of their own, with an arrow to each that uses them
    assert not is_joined and ("shares parameters with _node()" in both.lines) == (first == 4)
    assert sum(box.kind == "leaf" for box in made.boxes) == (0 if first == 4 else 4)
