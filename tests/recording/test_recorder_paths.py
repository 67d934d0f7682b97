"""Where a recording places nodes: the paths, calls and parents of modules."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import gradviz
from tests.walker.graphs import needs_raw
from tests.walker.models import MODELS
from tests.walker.placed import place, places


@needs_raw
def test_paths_types_calls_and_parents() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    with gradviz.record() as recording:
        loss = net(torch.ones(1, 2)).sum()
    graph = recording.graph(loss, model=net)
    told = [(scope.path, scope.type, scope.call, scope.parent, scope.parameters) for scope in graph.scopes]
    assert told == [
        ("net", "Sequential", 1, None, 17),
        ("net.0", "Linear", 1, 0, 9),
        ("net.1", "Sequential", 1, 0, 8),
        ("net.1.0", "ReLU", 1, 2, 0),
        ("net.1.1", "Linear", 1, 2, 8),
    ]
    assert [scope.output.shape for scope in graph.scopes if scope.output] == [(1, 2), (1, 3), (1, 2), (1, 3), (1, 2)]
    assert places(graph, "Sum") == [None]
    assert places(graph, "Addmm") == [("net.1.1", 1), ("net.0", 1)]
    assert places(graph, "Relu") == [("net.1.0", 1)]
    assert graph.attribution == "recorded" and graph.notes == ()


def test_leaves_lie_in_the_module_that_owns_them() -> None:
    _net, run = MODELS["attention"]()
    with gradviz.record() as recording:
        loss = run()
    graph = recording.graph(loss, model=_net)
    for leaf in graph.leaves:
        found = place(graph, graph.nodes[leaf.node])
        owner = leaf.names[0].rpartition(".")[0]
        assert found == (owner.removesuffix(".out_proj"), 1)  # out_proj is read by its parent, and never called


def test_calls_are_counted_per_module() -> None:
    cell, run = MODELS["recurrent"]()
    with gradviz.record() as recording:
        with torch.no_grad():
            run()  # makes no node, so its calls are no calls of the graph
        loss = run()
    graph = recording.graph(loss, model=cell)
    assert [(scope.path, scope.call, scope.parent) for scope in graph.scopes] == [
        ("cell", i, None) for i in (1, 2, 3, 4)
    ]
    assert sorted(places(graph, "Addmm"), key=str) == [("cell", i) for i in (1, 1, 2, 2, 3, 3, 4, 4)]
    assert {place(graph, graph.nodes[leaf.node]) for leaf in graph.leaves} == {("cell", 1)}


def test_outermost_modules_are_named_by_variable_else_by_class() -> None:
    encoder, heads = nn.Linear(2, 2), [nn.Linear(2, 2), nn.Tanh()]
    with gradviz.record() as recording:
        loss = heads[1](heads[0](encoder(torch.ones(1, 2))))
    paths = [scope.path for scope in recording.graph(loss).scopes]
    assert paths == ["encoder", "heads[0]", "heads[1]"]
    with ThreadPoolExecutor() as elsewhere:  # no function on that thread's stack knows the modules
        paths = [scope.path for scope in elsewhere.submit(recording.graph, loss).result().scopes]
    assert paths == ["Linear", "Linear_2", "Tanh"]


def test_a_single_outermost_module_without_a_name_has_an_empty_path() -> None:
    with gradviz.record() as recording:
        loss = nn.Sequential(nn.Linear(2, 2))(torch.ones(1, 2)).sum()  # the module is gone before the graph is read
    graph = recording.graph(loss)
    assert [(scope.path, scope.type) for scope in graph.scopes] == [("", "Sequential"), ("0", "Linear")]
    assert graph.scopes[1].parameters == 6


def test_a_module_that_is_registered_nowhere_is_named_by_its_class() -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.Linear(2, 2)(x)  # type: ignore[no-any-return]

    with gradviz.record() as recording:
        loss = Net()(torch.ones(1, 2))
    assert [scope.path for scope in recording.graph(loss).scopes] == ["", "Linear"]


def test_a_module_that_torch_does_not_know_is_named_as_it_is_held() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(2, 2), nn.Linear(2, 2)]
            self.kinds = {"a.b": nn.Linear(2, 2)}
            self.__dict__["hidden"] = nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in (*self.layers, self.kinds["a.b"], self.hidden):
                x = layer(x)
            return x

    net = Net()
    with gradviz.record() as recording:
        loss = net(torch.ones(1, 2))
    paths = [scope.path for scope in recording.graph(loss, model=net).scopes]
    assert paths == ["net", "net.layers[0]", "net.layers[1]", "net.kinds['a.b']", "net.hidden"]


def test_a_wrapped_model_keeps_its_own_paths() -> None:
    net = nn.Sequential(nn.Linear(2, 2))

    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = net

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.module(x)  # type: ignore[no-any-return]

    with gradviz.record() as recording:
        loss = Wrapper()(torch.ones(1, 2))
    graph = recording.graph(loss, model=net)
    assert places(graph, "Addmm") == [("net.0", 1)]
