"""The backward pass that the page plays, against what the engine does."""

from __future__ import annotations

from functools import partial

import torch

import gradviz
from gradviz.graph.ready_queue import engine_order
from gradviz.page.records import backward_steps
from tests.builders import GRAPHS, chain
from tests.walker.graphs import needs_raw


def _note(called: list[str], name: str, gradients: object) -> None:
    called.append(name)


def _loss() -> torch.Tensor:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4), torch.nn.LayerNorm(4))
    x = torch.randn(3, 4)
    h = net(x)
    return ((h * h.exp()).sum(0) + net[0](x).mean()).logsumexp(0)


def test_the_order_is_that_of_the_engine() -> None:
    loss = _loss()
    graph = gradviz.walk(loss)
    called: list[str] = []
    functions = {}
    stack = [loss.grad_fn]
    while stack:
        function = stack.pop()
        if function is None or function in functions:
            continue
        functions[function] = function.register_prehook(partial(_note, called, function.name()))
        stack.extend(following for following, _ in function.next_functions)
    loss.backward()
    assert [graph.nodes[node].op for node in engine_order(graph)] == [name.rpartition("::")[2] for name in called]


def test_the_measured_order_is_kept() -> None:
    measured = gradviz.flow(_loss()).graph
    assert backward_steps(measured).nodes == [step.node for step in measured.backward] == engine_order(measured)


@needs_raw
def test_memory_is_freed_by_the_last_function_that_needs_it() -> None:
    x = torch.randn(100, requires_grad=True)

    def loss() -> torch.Tensor:
        y = x.exp()  # saves its result, which the product and the sine save, too
        return (y * y.sin()).sum()

    graph = gradviz.walk(loss())
    found = backward_steps(graph)
    ops = [graph.nodes[node].op for node in found.nodes]
    freed = dict(zip(ops, found.freed))
    assert sum(found.freed) == 800  # y and sin(y)
    assert freed["ExpBackward0"] == 400
    assert found.waiting[-1] == 0
    assert sum(found.filled) == 400  # x.grad


def test_nothing_is_called_twice_and_freed_graphs_free_nothing() -> None:
    for graph in (*GRAPHS.values(), chain(100)):
        found = backward_steps(graph)
        assert len(set(found.nodes)) == len(found.nodes)
        assert all(waiting >= 0 for waiting in found.waiting)
    assert sum(backward_steps(GRAPHS["freed"]).freed) == 0
