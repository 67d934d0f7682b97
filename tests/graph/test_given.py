"""Functions take what people have: a Graph, tensors, names; and say what else they need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import gradviz
from gradviz.errors import GradvizError, NotATensorError

net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
x = torch.ones(1, 2)


@pytest.mark.parametrize(
    "call",
    [
        lambda given: gradviz.saved(given).totals,
        lambda given: gradviz.show(given).summary.splitlines()[1],  # type: ignore[union-attr]
        lambda given: gradviz.diff(given, given).empty,
        lambda given: gradviz.merge([given, given]).groups,
        lambda given: gradviz.checkpoint_plan(given, 10).held,
    ],
)
def test_a_graph_or_its_tensors(call: Callable[[object], object]) -> None:
    loss = net(x).sum()
    assert call(loss) == call(gradviz.walk(loss))
    assert call({"a": loss, "b": [loss * 2]})


def test_names_are_those_of_the_caller() -> None:
    energy = net(x).sum()
    assert gradviz.diff(energy, energy).before.roots[0].name == "energy"
    assert {row.name for row in gradviz.saved(energy, by="module").rows} >= {"net.1"}


def test_lines_are_known_while_something_records() -> None:
    with gradviz.record():
        loss = net(x).sum()
        assert gradviz.saved(loss, by="line").by == "line"


@pytest.mark.parametrize("name", ["net.0.weight", "net[0].weight", "0.weight"])
def test_a_tensor_by_name(name: str) -> None:
    loss = net(x).sum()
    assert gradviz.paths(loss, name).count == 1
    assert gradviz.why(loss, name).grad.startswith("empty now, filled")
    assert gradviz.paths(loss, "0.weight", model=net).count == 1


def test_names_of_a_model_that_no_variable_holds() -> None:
    def held() -> dict[str, nn.Module]:
        return {"one two": nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))}

    class Trainer:
        nets = held()

    loss = Trainer.nets["one two"](x).sum()
    assert gradviz.why(loss, "1.weight", model=Trainer.nets["one two"]).names
    with pytest.raises(GradvizError, match="Did you mean weight"):
        gradviz.why(net(x).sum(), "net.0.wieght")
    with pytest.raises(GradvizError, match=r"Did you mean net\.0\.weight"):
        gradviz.why(net(x).sum(), "0.wieght")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda loss: gradviz.flow(gradviz.walk(loss)), r"flow needs the tensor.*gradviz.flow\(loss\)"),
        (lambda loss: gradviz.check(gradviz.walk(loss)), r"gradviz.check\(loss\)"),
        (lambda loss: gradviz.paths(gradviz.walk(loss), x), r"gradviz.paths\(loss, w\)"),
        (lambda loss: gradviz.why(gradviz.walk(loss), x), r"gradviz.why\(loss, w\)"),
        (lambda loss: gradviz.why(net[0].weight, loss), r"the output comes first: gradviz.why\(loss, "),
        (lambda loss: gradviz.paths(x, loss), r"the output comes first: gradviz.paths\(loss, x\)"),
        (lambda loss: gradviz.why(loss, 3), "needs a tensor or its name, not a int"),
        (lambda loss: gradviz.why(loss, "net.7"), "has no '7'"),
        (lambda loss: gradviz.saved(net), "call it and pass what it returns"),
        (lambda loss: gradviz.draw(loss), r"gradviz.walk\(loss\).save"),
        (lambda loss: gradviz.walk(loss).to_dataframe(), "pandas.DataFrame"),
        (lambda loss: gradviz.walk(loss).to_dot(), r"graph.save\('net.dot'\)"),
        (lambda loss: gradviz.to_networkx(loss), r"gradviz.walk\(loss\).to_networkx"),
    ],
)
def test_anything_else_gets_one_sentence(call: Callable[[torch.Tensor], object], words: str) -> None:
    gradviz.walk(net(x)).to_svg()  # or gradviz.draw is not yet the package
    with pytest.raises(GradvizError, match=words):
        call(net(x).sum())
    assert issubclass(NotATensorError, TypeError)


def test_a_graph_has_its_outputs_as_methods() -> None:
    graph = gradviz.walk(net(x).sum())
    assert graph.to_png().startswith(b"\x89PNG") and graph.to_html().startswith("<!doctype html>")
    assert len(graph.to_networkx()) == len(graph.nodes) and graph.show().page == graph.to_html()
    assert not hasattr(graph, "wheels") and not hasattr(graph, "_repr_png_")
