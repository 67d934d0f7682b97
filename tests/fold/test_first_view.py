"""Which modules the first view opens, and that any page can be filled, however small."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

import gradviz
from gradviz.draw.options import Options
from gradviz.fold.export import fold
from gradviz.fold.fold import PAGE, UPRIGHT, Measure
from gradviz.fold.sizes import Size
from gradviz.fold.titles import title
from gradviz.graph import Graph, Root, Scope
from tests.builders import cycles, tensor
from tests.drawn import shown
from tests.fold.test_fold import Program, functions, inside, pages, programs, titles


def opened(graph: Graph) -> set[str]:
    """Modules that are drawn as frames, by path."""
    found: set[str] = set()
    for scope in {node.scope for node in graph.nodes}:
        around: Scope | None = graph.scopes[scope] if scope is not None else None
        while around is not None:
            found.add(around.path)
            around = graph.scopes[around.parent] if around.parent is not None else None
    return found


def network(*, loss: int = 2) -> Graph:
    """Embeddings of six ops, six layers of two parts with six ops each, a head of five, and a loss of single ops."""
    program = Program()
    with program.call("net", "Net"):
        with program.call("net.embeddings", "Embeddings"):
            x = program.op("EmbeddingBackward0", weights=["table"])
            for i in range(5):
                x = program.op(f"Embed{i}Backward0", x)
        for layer in range(6):
            with program.call(f"net.layers.{layer}", "Layer"):
                for part in ("attention", "mlp"):
                    with program.call(f"net.layers.{layer}.{part}", part.title()):
                        for i in range(6):
                            x = program.op(f"{part.title()}{i}Backward0", x, weights=[f"{layer}.{part}.{i}"])
        with program.call("net.head", "Head"):
            for i in range(5):
                x = program.op(f"Head{i}Backward0", x)
    for i in range(loss):
        x = program.op(f"Loss{i}Backward0", x)
    return program.graph()


def dilated(layers: int = 6) -> Graph:
    """Layers of one list that differ in a shape alone, as the padding of a WaveNet."""
    program = Program()
    with program.call("net", "Net"):
        x = program.op("EmbeddingBackward0", weights=["table"])
        for layer in range(layers):
            with program.call(f"net.layers.{layer}", "Residual"):
                for name, size in (("ConstantPadNd", layer), ("Convolution", 1), ("Tanh", 1), ("Mm", 1), ("Add", 1)):
                    for part in range(2):
                        with program.call(f"net.layers.{layer}.{name}{part}", name):
                            for i in range(3):
                                x = program.op(f"{name}{i}Backward0", x, made=tensor(size + 1))
    return program.graph()


def test_of_elements_of_a_list_that_ran_equal_ops_the_first_is_open() -> None:
    layers = {path for path in opened(fold(dilated())) if re.fullmatch(r"net\.layers\.\d", path)}
    assert layers == {"net.layers.0"}


FOUR = ("ExpBackward0", "SoftmaxBackward0", "MulBackward0", "DivBackward0")


def modules_with_ops(count: int, ops: Sequence[str] = FOUR) -> Graph:
    """Different modules with ops beside each, too many for a page."""
    program = Program()
    with program.call("net", "Net"):
        x = program.op("EmbeddingBackward0", weights=["table"])
        for i in range(count):
            with program.call(f"net.{chr(97 + i)}proj", f"Kind{i}"):
                x = program.op("AddmmBackward0", x, weights=[f"w{i}"], made=tensor(i + 1))
                x = program.op("TanhBackward0", x, made=tensor(i + 1))
            for op in ops:
                x = program.op(op, x, made=tensor(i + 1))
    return program.graph()


def test_a_window_closes_ops_and_joins_no_modules() -> None:
    folded = [node.folded for node in fold(modules_with_ops(8), limit=24).nodes if node.folded is not None]
    windows = [group for group in folded if group.kind == "chain"]
    assert windows
    assert {(group.title, group.ops) for group in windows} == {("… 4 ops, exp to div", 4)}


def test_the_body_is_open_whatever_the_page() -> None:
    """One box for a whole network says nothing; only too many boxes say less."""
    graph = modules_with_ops(26, ops=["SoftmaxBackward0"])
    assert "net" in opened(fold(graph))
    assert "net" in opened(fold(graph, measure=pages(10)))
    assert "net" not in opened(fold(graph, limit=20))


def stages() -> Graph:
    """Five stages of one class that differ, each with its blocks in a Sequential."""
    program = Program()
    x = program.op("ExpBackward0", weights=["w"])
    with program.call("net", "Net"):
        for i in range(5):
            x = program.op(f"Before{i}Backward0", x)
            with program.call(f"net.stage{i}", "Stage"), program.call(f"net.stage{i}.blocks", "Sequential"):
                for j in range(4 + i):
                    with program.call(f"net.stage{i}.blocks.{j}", f"Kind{i}{j}"):
                        for _ in range(3):
                            x = program.op("AddmmBackward0", x, weights=[f"w{i}{j}"], made=tensor(i + 1))
    return program.graph()


def test_one_of_several_modules_of_a_class_is_open_if_need_be_on_the_page_turned() -> None:
    folded = fold(stages(), measure=pages(12))
    assert any(path.startswith("net.stage") for path in opened(folded))
    assert boxes(folded) <= 12 * UPRIGHT.height / PAGE.height


@pytest.mark.parametrize("page", [12, 22, 28])
def test_what_is_all_of_a_module_is_open_with_it(page: int) -> None:
    shown = opened(fold(stages(), measure=pages(page)))
    assert {f"net.stage{i}" in shown for i in range(5)} == {True, False}
    assert all((f"net.stage{i}" in shown) == (f"net.stage{i}.blocks" in shown) for i in range(5))


def test_the_repeated_module_is_opened_first_and_the_embeddings_last() -> None:
    opens = [opened(fold(network(), limit=limit)) for limit in (8, 12, 40)]
    assert opens[0] <= opens[1] <= opens[2]
    assert "net.layers.0" in opens[0] and "net.embeddings" not in opens[1]
    assert "net.layers.0.attention" in opens[2]
    assert ("alike", "net.layers.1–5 Layer", 5) in titles(fold(network()))


def experts(n: int, *, before: int, loss: int) -> Graph:
    """A gate of some ops, experts that take what it gives, and a long loss."""
    program = Program()
    x = program.op("ExpBackward0", weights=["w"])
    with program.call("net", "Net"):
        for i in range(before):
            x = program.op(f"Gate{i}Backward0", x)
        outputs = []
        for i in range(n):
            with program.call(f"net.experts.{i}", "Expert"):
                y = x
                for j in range(6):
                    y = program.op(f"Expert{j}Backward0", y, weights=[f"w{i}{j}"])
                outputs.append(y)
        x = program.op("StackBackward0", *outputs)
    for i in range(loss):
        x = program.op(f"Loss{i}Backward0", x)
    return program.graph()


@pytest.mark.parametrize("most", range(10, 50, 6))
def test_what_stands_side_by_side_is_open_or_closed_together(most: int) -> None:
    shown = opened(fold(experts(3, before=3, loss=4), measure=pages(most)))
    assert len({f"net.experts.{i}" in shown for i in range(3)}) == 1


def test_a_block_that_repeats_is_opened_before_a_larger_loss() -> None:
    program = Program()
    x = program.op("ExpBackward0", weights=["w"])
    with program.call("net", "Net"):
        for stage in range(5):
            with program.call(f"net.stages.{stage}", "Stage"):
                for block in range(2):
                    with program.call(f"net.stages.{stage}.{block}", "Block"):
                        for i in range(6):
                            x = program.op(f"Op{i}Backward0", x, made=tensor(stage + 1))
    with program.call("loss", "Loss"):
        for i in range(18):
            x = program.op(f"Loss{i}Backward0", x)
    assert "net.stages.0.0" in opened(fold(program.graph(), measure=pages(20)))


def body_in_the_middle(*, before: int = 9, after: int = 9, loss: int = 1) -> Graph:
    """A module of single ops around a module that has most of all ops, and which is one itself."""
    program = Program()
    x = program.op("ExpBackward0", weights=["w"])
    with program.call("net", "Net"):
        for i in range(before):
            x = program.op(f"Before{i}Backward0", x)
        with program.call("net.mixer", "Mixer"):
            for i in range(55):
                x = program.op(f"Mix{i}Backward0", x)
        for i in range(after):
            x = program.op(f"After{i}Backward0", x)
    for i in range(loss):
        x = program.op(f"Loss{i}Backward0", x)
    return program.graph()


@pytest.mark.parametrize("loss", [1, 20])
def test_what_stands_around_the_largest_part_is_closed_to_make_room_for_it(loss: int) -> None:
    graph = body_in_the_middle(loss=loss)
    folded = fold(graph, measure=pages(20))
    assert "net.mixer" in opened(folded)
    assert (
        sum(group.ops for group in folded.groups) + len(folded.nodes) - len(folded.groups) - 1 == len(graph.nodes) - 1
    )


@pytest.mark.parametrize("page", [100, 30, 3])
def test_a_small_module_in_focus_is_in_full_whatever_the_page(page: int) -> None:
    folded = fold(network(loss=30), focus="net.layers.2", measure=pages(page))
    assert len([node.op for node in folded.nodes if node.op.startswith(("Attention", "Mlp"))]) == 12


# -- pages ---------------------------------------------------------------------------------------------------------------


def boxes(graph: Graph) -> int:
    return len(graph.nodes)


def without_leaves(most: int) -> Measure:
    """A page that holds so many boxes and any leaves."""
    return lambda folding, sheet: Size(0.0, PAGE.height * (folding.size - len(folding.leaf_in)) / most)


def many_leaves() -> Graph:
    program = Program()
    ends = [program.op(f"Op{i}Backward0", weights=[f"w{i}"]) for i in range(60)]
    program.op("StackBackward0", *ends)
    return program.graph()


def _as_inputs(graph: Graph) -> Graph:
    return replace(graph, leaves=tuple(leaf._replace(kind="input") for leaf in graph.leaves))


def test_a_small_graph_is_folded_when_its_page_does_not_hold_it() -> None:
    graph = functions(8)
    assert fold(graph) is graph
    folded = fold(graph, measure=pages(10))
    assert folded is not graph and boxes(folded) <= 10 * UPRIGHT.height / PAGE.height


def test_the_leaves_that_no_page_holds_are_one_box() -> None:
    folded = fold(many_leaves(), measure=pages(12))
    assert boxes(folded) <= 12 * UPRIGHT.height / PAGE.height
    folded = fold(_as_inputs(many_leaves()), measure=pages(12))
    (rest,) = [group for group in folded.groups if group.kind == "more"]
    assert (rest.title, rest.ops, len(rest.nodes)) == ("+56 more leaves", 0, 56)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(programs(), st.integers(2, 12), st.booleans())
def test_every_page_that_holds_two_boxes_and_the_leaves_is_kept(graph: Graph, most: int, inputs: bool) -> None:
    graph = _as_inputs(graph) if inputs else graph
    folded = fold(graph, measure=without_leaves(most))
    # upright it holds more
    assert boxes(folded) - len(folded.leaves) <= most * UPRIGHT.height / PAGE.height
    assert len(folded.leaves) <= len(graph.leaves)
    assert cycles([(edge.consumer, edge.producer) for edge in folded.edges]) == []
    box = inside(folded, graph)
    assert sorted({*box}) == list(range(boxes(folded)))
    assert [root.node for root in folded.roots] == [box[root.node] for root in graph.roots if root.node is not None]
    assert fold(folded, measure=without_leaves(most)) == folded


def test_an_output_without_a_graph_is_kept() -> None:
    graph = Graph(roots=(Root(None, 0, "y", tensor(2), why="made under no_grad"),))
    assert fold(graph, measure=pages(0.001)).roots == graph.roots


@pytest.mark.parametrize("most", [9, 24, 40])
def test_what_is_said_to_be_open_is_what_the_graph_shows(most: int) -> None:
    """As the page reads it, of a picture that was not the last one that was tried."""
    graph = fold(network(loss=30), measure=pages(most))
    assert len(list(graph.folding.opening.visible())) == boxes(graph) - len(graph.leaves)


# -- of programs ---------------------------------------------------------------------------------------------------------


class Pair(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(torch.relu(self.first(x)))


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)


def first_look(loss: torch.Tensor, recording: gradviz.Recording) -> tuple[set[str], set[str]]:
    """What a picture opens, and what it closes, by title."""
    opening = shown(recording.graph(loss), Options()).opening
    assert opening is not None
    return set(map(title, opening.open)), set(map(title, opening.closed()))


@pytest.mark.parametrize("double", [False, True])
def test_what_torch_computes_by_itself_stays_closed_however_much_room_there_is(double: bool) -> None:
    net, x, y = torch.nn.Sequential(Pair(), Gate()), torch.ones(2, 4), torch.ones(2, 4)
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    lstm = torch.nn.LSTM(4, 4, batch_first=True)
    if double:  # which unrolls its steps
        net, attention, lstm = (module.double() for module in (net, attention, lstm))
        x, y = x.double(), y.double()
    with gradviz.record() as recording:
        h = net(x)[None]
        h, _ = attention(h, h, h)
        h, _ = lstm(h)
        loss = torch.nn.KLDivLoss(reduction="sum")(h[0].log_softmax(-1), y) + torch.nn.CosineEmbeddingLoss()(
            h[0], y, torch.ones(2)
        )
    is_open, shut = first_look(loss, recording)
    assert {"net.0 Pair", "net.1 Gate"} <= is_open
    assert {"attention MultiheadAttention", "lstm LSTM", "KLDivLoss", "CosineEmbeddingLoss"} <= shut


def test_a_body_is_open_beside_a_loss_of_more_ops_and_data_than_a_page_holds() -> None:
    net = torch.nn.Sequential(*(torch.nn.Sequential(Pair(), torch.nn.ReLU(), Pair()) for _ in range(3)))
    x, data = torch.ones(2, 4), [[torch.rand(2, 4) for _ in range(8)] for _ in range(3)]
    with gradviz.record() as recording:
        out, loss = net(x), torch.zeros(())
        for a, b, c, d, e, f, g, h in data:
            part = ((out * a + b) * c + d).tanh()
            other = ((out * e + f) * g + h).exp()
            loss = loss + (part * other).mean() + (part - other).abs().mean()
    is_open, _ = first_look(loss, recording)
    assert "net.0 Sequential" in is_open


class Criterion(torch.nn.Module):
    def forward(self, out: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
        difference = (out - goal).abs().clamp(0.1).log()
        near = difference.square().mean().sqrt()
        scaled = (difference + near).exp() * 2
        far = (scaled + 1).reciprocal().exp().sum()
        return near.exp() + far.log() * 2


@pytest.mark.parametrize("has_head", [False, True])
def test_the_terms_of_a_loss_stand_in_a_column_where_the_body_leaves_none(has_head: bool) -> None:
    net, criterion = torch.nn.Transformer(8, 2, 2, 2, 8, batch_first=True), Criterion()
    stem = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.ReLU())
    head = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    with gradviz.record() as recording:
        x = stem(torch.ones(2, 3, 8)).tanh() * 2
        x = net(x, x)
        loss = criterion(head(x) if has_head else x, torch.zeros(8))
    picture = recording.graph(loss).to_svg()
    assert all(f">{name}<" in picture for name in ("near", "far", "multihead_attn MultiheadAttention"))
    width, height = (float(number) for number in re.findall(r'viewBox="0 0 (\S+) (\S+)"', picture)[0])
    assert width <= 1920
    assert height <= 1080


def test_a_sum_over_terms_is_one_box_though_a_loop_makes_them() -> None:
    weights, x = {"a": 1.0, "b": 5.0, "c": 2.0}, torch.ones(4, requires_grad=True)
    net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(6)))
    with gradviz.record() as recording:
        h = net(x)
        losses = {"a": h.mean(), "b": h.exp().mean(), "c": h.tanh().mean()}
        total = sum(losses[name] * weights[name] for name in weights)
        loss = total * 2 + h.sigmoid().mean()
    assert isinstance(loss, torch.Tensor)
    _, shut = first_look(loss, recording)
    assert "total" in shut


class Siamese(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tower = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(5)))

    def embed(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tower(x).tanh()
        return x / (x * x).sum(-1, keepdim=True).sqrt()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.embed(x), self.embed(y)


def test_a_long_method_that_a_module_calls_twice_is_two_boxes_by_its_name() -> None:
    net = Siamese()
    with gradviz.record() as recording:
        one, other = net(torch.ones(2, 4), torch.ones(2, 4))
        loss = (one - other).abs().sum()
    is_open, shut = first_look(loss, recording)
    assert {"embed()", "embed(), call 2"} <= is_open | shut


class QuantConv2d(torch.nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.weight.abs().mean()
        weight = torch.tanh(self.weight / scale) * scale
        return torch.nn.functional.conv2d(x, weight, self.bias)


class OwnNorm(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = x.square().mean((1, 2, 3), keepdim=True)
        return x * torch.rsqrt(scale + 1e-6)


def test_a_layer_that_the_user_wrote_is_open_but_for_a_norm() -> None:
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), QuantConv2d(2, 2, 1), OwnNorm())
    with gradviz.record() as recording:
        loss = net(torch.ones(1, 1, 4, 4)).square().sum()
    is_open, shut = first_look(loss, recording)
    assert "net.1 QuantConv2d" in is_open
    assert {"net.0 Conv2d", "net.2 OwnNorm"} <= shut


class Coupling(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, 1)
        return torch.cat([b + self.net(a).tanh(), a], 1)


class Flow(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = torch.nn.ModuleList(part for _ in range(5) for part in (torch.nn.Linear(4, 4), Coupling()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = x.new_zeros(())
        for step in self.steps:
            x = step(x)
            total = total + x.square().mean()
        return total


def test_turns_that_come_in_one_order_are_shown_once_each() -> None:
    net = Flow()
    with gradviz.record() as recording:
        loss = net(torch.ones(2, 4)) * 2
    is_open, shut = first_look(loss, recording)
    assert "net.steps.1 Coupling" in is_open and "net.steps.0 Linear" in shut
    assert "for step in self.steps" in is_open & shut
    assert not {"net.steps.2 Linear", "net.steps.3 Coupling"} & (is_open | shut)


class Cell(torch.nn.Module):
    """A recurrence of which no gradient of the first state is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.pair, self.gate = Pair(), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros(2, 4)
        for step in x:
            kept = torch.sigmoid(self.gate(step * self.pair.first.bias))
            h = self.pair(step + kept * 2) * kept + (1 - kept) * h.tanh()
        return h


def test_a_first_turn_that_lacks_an_op_is_shown_for_all() -> None:
    net = Cell()
    with gradviz.record() as recording:
        loss = net(torch.ones(6, 2, 4)).sum()
    is_open, shut = first_look(loss, recording)
    assert "turn 1" in is_open
    assert not {"turn 1", "turn 2"} & shut


class UNet(torch.nn.Module):
    """`order`: in which the decoder takes up what the encoder kept."""

    def __init__(self, order: Sequence[int]) -> None:
        super().__init__()
        self.order = order
        for name in ("downs", "pools", "ups"):
            layers = [Pair() for _ in order]
            self.add_module(name, torch.nn.ModuleList(layers))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        kept = []
        for down, pool in zip(self.downs, self.pools):
            h = down(h)
            kept.append(h)
            h = pool(h)
        for up, place in zip(self.ups, self.order):
            h = up((h + kept[place]).tanh())
        return h


@pytest.mark.parametrize(("order", "loops"), [((2, 1, 0), 0), ((0, 1, 2), 2), ((1, 2, 0), 2)])
def test_loops_of_an_encoder_and_its_decoder_have_no_frames(order: Sequence[int], loops: int) -> None:
    net = UNet(order)
    with gradviz.record() as recording:
        loss = net(torch.ones(2, 4)).sum()
    is_open, shut = first_look(loss, recording)
    heads = {one for one in is_open | shut if one.startswith("for ")}
    assert len(heads) == loops


class HyperNet(torch.nn.Module):
    """Makes the weights of a layer from a task."""

    def __init__(self) -> None:
        super().__init__()
        self.task = torch.nn.Embedding(3, 4)
        self.maker = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 24))

    def forward(self, x: torch.Tensor, task: int) -> torch.Tensor:
        weight = self.maker(self.task(torch.tensor(task))).view(4, 6)
        out = torch.tanh(torch.nn.functional.linear(x, weight))
        return (out * out).sum(-1)


@pytest.mark.parametrize("tasks", [1, 2, 3, 5])
def test_a_loop_that_is_all_of_a_graph_is_a_frame_when_it_has_turns(tasks: int) -> None:
    """As of a loss that is summed over tasks: likeness alone would count the turns anew."""
    net, weights = HyperNet(), torch.nn.Parameter(torch.zeros(5))
    with gradviz.record() as recording:
        for _ in range(2):
            total = torch.zeros(())
            for task in range(tasks):
                error = net(torch.ones(5, 6), task % 3).mean()
                total = total + torch.exp(-weights[task]) * error + weights[task]
            total.backward()
        graph = recording.graph(total, model=net)
    picture = fold(graph)
    frame = "for task in range(tasks)"
    turns = {scope.turns for scope in picture.scopes if scope.path == frame}
    assert turns == ({tasks} if tasks > 1 else set())
    closed = [group.title for group in picture.groups]
    assert frame in {*opened(picture), *closed} or tasks == 1
    assert not any(re.search(r"turn \d+ of", title) for title in closed)
