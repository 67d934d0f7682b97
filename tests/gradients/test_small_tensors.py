"""The numbers of small tensors that a page shows, against torch."""

from __future__ import annotations

import json
from typing import Any

import torch

import gradviz
from gradviz.gradients.flow import measure
from gradviz.gradients.live import open_graph
from gradviz.gradients.numbers import numbers
from gradviz.graph import BackwardStep, Graph
from gradviz.graph.files import dump, loads


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
