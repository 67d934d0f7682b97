"""First pictures of whole programs fit the page: 2,000 pixels wide, 1,600 tall."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import gradviz
from gradviz.draw.options import Options
from gradviz.fold.fold import PAGE
from gradviz.graph.files import dump, loads
from tests.builders import chain
from tests.drawn import picture, scene, shown, sketch
from tests.fold.test_fold import Program as Builder

pytestmark = pytest.mark.slow

Program = Callable[[], Any]


def deep(width: int = 8) -> nn.Sequential:
    return nn.Sequential(*(layer for _ in range(5) for layer in (nn.Linear(width, width), nn.Tanh())))


def siamese() -> Tensor:
    """Small enough to be drawn in full by its nodes, and 3,000 pixels wide then."""
    net = deep()
    return F.pairwise_distance(net(torch.ones(2, 8)), net(torch.zeros(2, 8))).sum()


def triplet() -> Tensor:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    return F.triplet_margin_loss(*(net(torch.full((2, 8), float(i))) for i in range(3)))


def many_outputs() -> list[Tensor]:
    net = nn.Linear(4, 4)
    return [net(torch.ones(2, 4)) for _ in range(400)]


def one_op_many_outputs() -> list[Tensor]:
    return list(torch.ones(300, 2, requires_grad=True).unbind())


def tangle() -> Tensor:
    """Every value uses two earlier ones: no order of boxes is quiet."""
    values = [torch.ones(3, requires_grad=True) for _ in range(5)]
    for i in range(200):
        one, other = values[i * 7 % len(values)], values[i * 11 % len(values)]
        values.append(one.sin() * other if i % 3 else one + other)
    return torch.stack(values).sum()


PROGRAMS: tuple[Program, ...] = (
    siamese, triplet, many_outputs, one_op_many_outputs, tangle,
)  # fmt: skip


@pytest.mark.parametrize("how", ["recorded", "walked"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_first_picture_fits_the_page(program: Program, how: str) -> None:
    with gradviz.record() as recording:
        outputs = program()
    graph = recording.graph(outputs) if how == "recorded" else gradviz.walk(outputs)
    folding = shown(graph, Options())
    made = picture(folding, Options())
    assert made.width <= PAGE.width and made.height <= PAGE.height
    assert folding.size > 1
    assert sum(map(len, folding.inside)) == len(graph.nodes)  # nothing is lost
    if folding.opening is not None:
        assert any(line.startswith("folded: ") for line in scene(folding, Options()).footer)


def test_pictures_that_run_sideways_have_the_page_on_its_side() -> None:
    options = Options(direction="right")
    made = picture(shown(gradviz.walk(triplet()), options), options)
    assert made.width <= PAGE.height and made.height <= PAGE.width


def test_what_the_reader_asks_for_is_drawn_however_large() -> None:
    graph = chain(100)
    assert sketch(graph, Options()).measured(PAGE).height > PAGE.height
    assert shown(graph, Options()).size < 10
    assert shown(graph, Options(depth="all")).graph is graph


def test_a_second_call_says_whose_parameters_it_has_and_draws_no_lines_to_them() -> None:
    with gradviz.record() as recording:
        outputs = siamese()
    drawn = scene(shown(recording.graph(outputs), Options()), Options())
    later = next(box for box in drawn.boxes if box.lines[0].endswith("Linear, call 2"))
    assert later.lines[1] == "same parameters as call 1"
    links = [link for link in drawn.links if link.target == later.id]
    assert links and not any(drawn.boxes[link.source].kind == "leaf" for link in links)
    assert len([link for link in drawn.links if link.source == later.id]) == 1


def test_outputs_of_one_box_are_cut_and_counted() -> None:
    drawn = scene(shown(gradviz.walk(many_outputs()), Options()), Options())
    ends = [box.lines for box in drawn.boxes if box.kind == "output"]
    assert ("+388 more", "outputs") in ends and len(ends) == 13  # one of the first call, twelve of the others
    assert "drawn as one box: 388 outputs; --depth all draws each" in drawn.footer


def test_data_that_flows_into_a_later_call_is_drawn_and_its_parameters_are_not() -> None:
    program = Builder()
    x = program.op("ExpBackward0")
    for _ in range(2):
        with program.call("net", "Net"):
            for i in range(2):
                with program.call(f"net.{i}", "Linear"):
                    x = program.op("AddmmBackward0", x, weights=[f"net.{i}.weight"])
    folded = program.graph().fold(depth=2)
    drawn = scene(folded, Options())
    later = next(box for box in drawn.boxes if box.lines[0] == "net Net, call 2")
    assert [(drawn.boxes[link.source].lines[0], link.label) for link in drawn.links if link.target == later.id] == [
        ("1 Linear", "")
    ]
    (group,) = [group for group in folded.groups if group.same_as == 1]
    assert sum(uses.count for uses in group.shared) == 2
    read = loads("".join(dump(folded)))  # by who was given the folded graph alone
    assert [link[:2] for link in scene(read, Options()).links] == [link[:2] for link in drawn.links]
