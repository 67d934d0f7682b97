"""The numbers of small tensors that a page shows, against torch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import torch

import gradviz
from gradviz.draw.details import value_lines
from gradviz.draw.options import Options
from gradviz.gradients.flow import measure
from gradviz.gradients.live import open_graph
from gradviz.gradients.numbers import numbers
from gradviz.graph import BackwardStep, Graph
from gradviz.graph.files import dump, loads
from gradviz.walker.walk import capture
from tests.drawn import scene


def steps(loss: torch.Tensor) -> dict[str, BackwardStep]:
    graph = measure(open_graph(loss), values=True).graph
    return {graph.nodes[step.node].op: step for step in graph.backward}


def test_they_are_those_of_torch() -> None:
    x = torch.tensor([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    y = x.tanh()
    loss = (y * y).sum()
    found = steps(loss)
    (to_y,) = torch.autograd.grad(loss, y, retain_graph=True)
    (to_x,) = torch.autograd.grad(loss, x)
    close = torch.testing.assert_close
    close(torch.tensor(found["TanhBackward0"].arrived), to_y.flatten())
    close(torch.tensor(found["TanhBackward0"].value), y.detach().flatten())
    close(torch.tensor(found["TanhBackward0"].sent[0]), to_x.flatten())
    close(torch.tensor(found["AccumulateGrad"].arrived), to_x.flatten())
    assert found["AccumulateGrad"].value == tuple(x.flatten().tolist())
    assert x.grad is None


def test_large_tensors_and_others_have_none() -> None:
    assert numbers(torch.zeros(65)) == numbers(torch.zeros(2, dtype=torch.complex64)) == numbers(None) == ()
    assert numbers(torch.zeros(3, device="meta")) == numbers(torch.eye(2).to_sparse()) == ()
    x = torch.ones(65, requires_grad=True)
    assert not any(step.arrived or step.value for op, step in steps(x.exp().sum()).items() if op != "SumBackward0")


def test_they_are_read_only_when_asked() -> None:
    x = torch.ones(2, requires_grad=True)
    assert not any(step.arrived or step.value or step.sent for step in gradviz.flow(x.exp().sum()).graph.backward)


def test_a_graph_keeps_them_in_its_file() -> None:
    x = torch.tensor([0.0, -1.0], requires_grad=True)
    graph: Graph = measure(open_graph(x.log().sum()), values=True).graph
    text = "".join(dump(graph))
    again: Any = json.loads(text)
    assert "NaN" not in text and again
    assert repr(loads(text).backward) == repr(graph.backward)  # with what is not finite


def test_a_packed_tensor_stays_packed() -> None:
    ran: list[str] = []

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        ran.append("unpack")
        return tensor

    x = torch.ones(2, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        loss = x.exp().sum()
    live = open_graph(loss)
    measure(live)
    before = len(ran)
    measure(live, values=True)
    assert len(ran) == 2 * before  # by backward itself, and by nothing else


def test_of_large_tensors_the_spread_is_read_where_somebody_holds_them() -> None:
    x, w = torch.randn(9, 5), torch.randn(5, 9, requires_grad=True)
    held = x @ w  # by cos, which saved it
    saved = held.cos().exp()  # by exp, which saved it
    loss = (saved + 1).mean()
    del saved
    found = steps(loss)
    product = found["MmBackward0"]
    assert product.spread and not product.value
    expected = [held.min(), held.mean(), held.max()]
    torch.testing.assert_close(torch.tensor(product.spread), torch.stack(expected).detach())
    assert found["ExpBackward0"].spread and not found["ExpBackward0"].freed
    assert found["AddBackward0"].freed and found["CosBackward0"].freed and not found["AddBackward0"].spread
    assert found["MeanBackward0"].value == (float(f"{loss.item():.6g}"),)  # the loss itself
    graph = measure(open_graph(loss), values=True).graph
    assert loads("".join(dump(graph))).backward == graph.backward
    assert value_lines(found["AddBackward0"]) == ("value freed",)
    assert value_lines(product)[0].startswith(f"{held.min():.3g} to {held.max():.3g}, mean ")


def test_a_slot_that_nobody_may_read_is_not_called_freed() -> None:
    x = torch.randn(9, 9, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        loss = (x.exp() * 2).sin().sum()
    found = steps(loss)
    assert not found["ExpBackward0"].freed and not found["MulBackward0"].freed
    assert not found["ExpBackward0"].spread


def test_a_closed_box_says_what_it_gives() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    with gradviz.record() as recording:
        logits = net(torch.rand(5, 4))
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1, 2, 0, 1]))
    graph = recording.graph(loss)
    walked = capture(loss, params={"logits": logits})
    graph = replace(graph, backward=measure(open_graph(loss, walked), values=True).graph.backward)
    lines = {box.lines[0]: box.lines for box in scene(graph.fold(), Options()).boxes}
    assert any(line.startswith(f"{logits.min():.3g} to ") for line in lines["2 Linear"])
    assert f"= {loss.item():.4g}, grad 1" in [line for box in lines.values() for line in box]
