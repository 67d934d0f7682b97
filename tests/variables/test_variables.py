"""The scanner of the user's variables: what it finds, under which name, and that nothing of the user's runs."""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import gradviz
from gradviz.graph import Graph
from gradviz.variables import scanner
from gradviz.variables.scanner import scan
from gradviz.walker.names import module_paths, outermost_modules
from tests.walker.graphs import leaf


class Thing:
    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


class Slotted:
    __slots__ = ("left", "net")


@dataclass
class Output:
    logits: torch.Tensor


def names(**variables: Any) -> list[str]:
    return [held.name for held in scan([variables])]


def slotted(**parts: Any) -> Slotted:
    made = Slotted()
    for name, value in parts.items():
        setattr(made, name, value)
    return made


def holding(net: torch.nn.Module, part: str, value: Any) -> torch.nn.Module:
    setattr(net, part, value)
    return net


X, NET = leaf(), torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Thing(policy=NET), "it.policy"),
        (Thing(agent=Thing(policy=NET)), "it.agent.policy"),
        ([Thing(weight=X)], "it[0].weight"),
        (slotted(net=NET), "it.net"),
        (Output(X), "it.logits"),
        (deque([X]), "it[0]"),
        ({"a": [0, {"b": X}]}, "it['a'][1]['b']"),
        (holding(torch.nn.Tanh(), "blocks", [NET]), "it.blocks[0]"),
        (torch.nn.Sequential(holding(torch.nn.Tanh(), "seen", X)), "it.0.seen"),
        (Thing(_net=NET), "it._net"),
    ],
)
def test_what_a_variable_leads_to(value: Any, name: str) -> None:
    assert name in names(it=value)


def test_what_holds_itself_is_entered_once() -> None:
    thing = Thing(x=X)
    thing.me, thing.several = thing, [thing]  # type: ignore[attr-defined]
    assert names(it=thing, again=thing) == ["it.x"]


def test_nothing_of_the_users_runs() -> None:
    class Loud:
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(name)

        __bool__ = __eq__ = __len__ = __iter__ = __hash__ = __repr__ = __getattribute__  # type: ignore[assignment]

    class Proxy(Thing):
        @property
        def __dict__(self) -> Any:  # type: ignore[override]
            raise AssertionError("__dict__")

        @property
        def __class__(self) -> Any:
            raise AssertionError("__class__")

        @property
        def loss(self) -> Any:
            raise AssertionError("loss")

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(name)

    class Overriding(torch.nn.Linear):
        def named_parameters(self, *arguments: Any, **options: Any) -> Any:
            raise AssertionError("named_parameters")

        def named_modules(self, *arguments: Any, **options: Any) -> Any:
            raise AssertionError("named_modules")

    class Meta(type):
        def __hash__(cls) -> int:
            raise AssertionError("__hash__")

    odd = Meta("Odd", (), {})()
    loud, proxy, net = Loud(), object.__new__(Proxy), torch.nn.Sequential(Overriding(1, 1))
    y = net(torch.ones(1))
    several = [loud, proxy, odd, net]
    assert {one.names for one in gradviz.walk(y).leaves} == {("net.0.weight",), ("net.0.bias",)}
    assert names(several=several, proxy=proxy, loud=loud, odd=odd) == ["several[3]"]


def test_many_values_end_the_search() -> None:
    shared = [X] * 1000
    found = names(several=[[shared, *([X] * 999)] for _ in range(300)], x=X)
    assert found[0] == "x" and len(found) < 100_000


def test_a_long_list_of_numbers_does_not() -> None:
    assert names(many=list(range(200_000)), later=[X]) == ["later[0]"]


# -- which name is taken -------------------------------------------------------------------------------------------------


class Agent:
    def __init__(self) -> None:
        self.policy = torch.nn.Linear(1, 1, bias=False)
        self.seen = leaf(1)

    def leaves(self) -> list[tuple[str, ...]]:
        return [one.names for one in gradviz.walk(self.policy(self.seen)).leaves]


def test_a_global_variable_is_preferred_to_self(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Agent().leaves() == [("self.seen",), ("self.policy.weight",)]
    monkeypatch.setitem(globals(), "agent", Agent())
    assert globals()["agent"].leaves() == [("agent.seen",), ("agent.policy.weight",)]


def test_an_attribute_says_more_than_a_number() -> None:
    layers = [Thing(weight=leaf())]
    parameters = [layer.weight for layer in layers]  # type: ignore[attr-defined]
    assert [one.names for one in gradviz.walk(parameters[0] * 2).leaves] == [("layers[0].weight",)]


def test_a_variable_names_a_model_that_a_deep_object_wraps() -> None:
    model = torch.nn.Linear(1, 1)
    wrapped = Thing(strategy=Thing(model=torch.nn.Sequential(model)))
    paths = module_paths(None, [{"trainer": wrapped, "model": model}])
    assert paths[id(model)] == "model" and "trainer.strategy.model" in paths.values()


def test_a_module_of_an_object_has_its_path_in_walk_and_record() -> None:
    trainer = Thing(model=torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
    with gradviz.record() as recording:
        loss = trainer.model(torch.ones(2)).sum()  # type: ignore[attr-defined]
    for graph in (recording.graph(loss), gradviz.walk(loss)):
        assert {scope.path for scope in graph.scopes} >= {"trainer.model", "trainer.model.0"}
        assert {one.names for one in graph.leaves} == {("trainer.model.0.weight",), ("trainer.model.0.bias",)}


def test_what_a_model_holds_past_torch_is_named_below_it() -> None:
    model = holding(torch.nn.Sequential(NET), "seen", leaf())
    assert gradviz.walk(model.seen * 2, model=model).leaves[0].names == ("model.seen",)
    assert [name for name, _ in outermost_modules(None, [{"model": model}])] == ["model"]


def report(loss: torch.Tensor) -> Graph:
    return gradviz.walk(loss)


def test_a_helper_is_told_the_names_of_its_caller() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(2, 2)), leaf(2)
    graph = report((model(x) * x).sum())
    assert {one.names for one in graph.leaves} == {("model.0.weight",), ("model.0.bias",), ("x",)}
    assert "model.0" in {scope.path for scope in graph.scopes}


def test_the_frames_of_callers_keep_nothing() -> None:
    y = torch.tanh(leaf())
    dead = weakref.ref(y)
    report(y)
    del y
    assert dead() is None


def test_a_graph_that_is_kept_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gradviz.walk((leaf() * 2).sum())
    met: list[type] = []
    entered = scanner._Scanner._enter
    monkeypatch.setattr(
        scanner._Scanner, "_enter", lambda self, held: (met.append(type(held.value)), entered(self, held))
    )
    assert names(graph=graph, w=leaf()) == ["w"]
    assert not met


def test_what_changes_between_two_walks_is_seen_and_nothing_of_the_model_is_kept() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2))
    gradviz.walk(net(torch.ones(1, 2)), model=net)
    net.append(torch.nn.Linear(2, 1))
    graph = gradviz.walk(net(torch.ones(1, 2)), model=net)
    assert "net.1.weight" in [name for held in graph.leaves for name in held.names]
    gone = weakref.ref(net[0])
    del net
    assert gone() is None


def test_data_in_a_long_list_is_not_searched_and_what_lies_in_it_directly_is_named() -> None:
    pairs = [(i, X) for i in range(5_000)]
    assert names(it=pairs) == []
    assert names(it=[*pairs, NET]) == ["it[5000]"]
    assert names(it=pairs[:500])[:1] == ["it[0][1]"]


def test_a_scan_takes_no_longer_for_more_data(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[str] = []
    enter = scanner._Scanner._enter
    monkeypatch.setattr(
        scanner._Scanner, "_enter", lambda self, holder: (entered.append(holder.name), enter(self, holder))[1]
    )
    names(it=[(i, str(i)) for i in range(300_000)], also={i: (i, i) for i in range(300_000)}, net=NET)
    assert len(entered) == 3
    entered.clear()
    names(it=[[(i, j) for j in range(300)] for i in range(300)], net=NET)
    assert len(entered) < 1_100


def test_what_lies_deep_in_data_is_still_named_where_it_is_a_tensor() -> None:
    data = [[(i, j) for j in range(300)] for i in range(300)]
    data[299].append(X)  # type: ignore[arg-type]
    assert names(it=data) == ["it[299][300]"]
