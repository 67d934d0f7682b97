"""Names: from the model, from params=, from the caller's variables; and what reading those leaves behind (nothing)."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch

import gradviz
from gradviz.errors import NotATensorError
from gradviz.graph import Graph
from gradviz.variables.scanner import namespaces
from gradviz.walker.names import Names
from tests.walker.graphs import leaf

at_module_level = leaf(7)
_private = leaf(8)


def names_by_op(graph: Graph) -> list[tuple[str, tuple[str, ...]]]:
    return [(node.op.removesuffix("Backward0"), node.names) for node in graph.nodes]


def leaf_names(graph: Graph) -> list[tuple[str, ...]]:
    return [found.names for found in graph.leaves]


# -- the caller's variables ------------------------------------------------------------------------------------------------


def test_the_callers_variables_name_leaves_and_results() -> None:
    x, w = leaf(), leaf()
    a = x + w
    b = w + 1
    y = a * b
    assert names_by_op(gradviz.walk(y)) == [
        ("Mul", ("y",)),
        ("Add", ("a",)),
        ("Add", ("b",)),
        ("AccumulateGrad", ("x",)),
        ("AccumulateGrad", ("w",)),
    ]


def test_global_variables_are_found_from_inside_a_function() -> None:
    assert leaf_names(gradviz.walk(at_module_level * 2)) == [("at_module_level",)]


def test_a_private_variable_names_what_no_other_does() -> None:
    assert leaf_names(gradviz.walk(_private * 2)) == [("_private",)]
    public = _private
    assert leaf_names(gradviz.walk(public * 2)) == [("public",)]


def test_throw_away_names_are_left_alone() -> None:
    for _ in [leaf()]:
        y = _ * 2
    assert leaf_names(gradviz.walk(y)) == [()]


def test_the_inner_variable_wins() -> None:
    inner = at_module_level
    assert leaf_names(gradviz.walk(inner * 2)) == [("inner",)]


def test_two_variables_for_one_tensor_are_both_told() -> None:
    x = leaf()
    same = x
    assert leaf_names(gradviz.walk(same * 2)) == [("x", "same")]


Pair = namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda x: [0, x], "held[1]"),
        (lambda x: {"weight": x}, "held['weight']"),
        (lambda x: OrderedDict(w=x), "held['w']"),
        (lambda x: Pair(x, 0), "held.left"),
    ],
)
def test_one_level_of_containers(make: Any, name: str) -> None:
    held = make(leaf())
    value = (
        next(iter(held.values())) if isinstance(held, dict) else next(i for i in held if isinstance(i, torch.Tensor))
    )
    y = value * 2
    del value
    assert leaf_names(gradviz.walk(y)) == [(name,)]


def test_keys_that_are_no_plain_values_are_not_written() -> None:
    x = leaf()
    state = {x: x * 2}
    y = state[x] + 1
    assert names_by_op(gradviz.walk(y)) == [("Add", ("y",)), ("Mul", ()), ("AccumulateGrad", ("x",))]


def test_outputs_of_one_operation_are_named_in_their_order() -> None:
    x = leaf(3)
    b, a, c = (x * 1).unbind()
    y = a + b + c
    assert dict(names_by_op(gradviz.walk(y)))["Unbind"] == ("b", "a", "c")


def test_proxies_among_the_variables_are_not_woken() -> None:
    class Proxy:
        @property
        def __class__(self) -> type:  # type: ignore[override]
            raise AssertionError("asked for its class")

    proxy = Proxy()
    x = leaf()
    assert leaf_names(gradviz.walk(x * 2)) == [("x",)]
    assert type(proxy) is Proxy


# -- modules -----------------------------------------------------------------------------------------------------------------


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(5))

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(self.embedding(index)) * self.scale
        return made


def test_tied_parameters_have_all_their_names() -> None:
    model = Tied()
    y = model(torch.tensor([1, 2]))
    (found,) = gradviz.walk(y, model=model).leaves
    assert (found.names, found.kind) == (("model.embedding.weight", "model.head.weight"), "parameter")
    assert leaf_names(gradviz.walk(y)) == [("model.embedding.weight", "model.head.weight")]


def test_a_model_wins_over_params_and_those_over_variables() -> None:
    model = torch.nn.Linear(3, 1)
    weight, bias = model.weight, model.bias
    y = model(torch.ones(3))
    assert set(leaf_names(gradviz.walk(y, model=model))) == {("model.weight",), ("model.bias",)}
    assert set(leaf_names(gradviz.walk(y, params={"W": weight}))) == {("W",), ("model.bias",)}
    assert set(leaf_names(gradviz.walk(y, model=model, params={"W": weight}))) == {("model.weight",), ("model.bias",)}
    assert bias is model.bias


def test_what_the_model_does_not_know_comes_from_the_variables() -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    x = leaf(3)
    assert set(leaf_names(gradviz.walk(model(x), model=model))) == {("model.weight",), ("x",)}


def test_a_weight_that_two_modules_share_has_both_names() -> None:
    one, other = torch.nn.Linear(3, 3, bias=False), torch.nn.Linear(3, 3, bias=False)
    other.weight = one.weight
    assert leaf_names(gradviz.walk(other(one(torch.ones(3))))) == [("one.weight", "other.weight")]


def test_a_module_inside_another_one_gives_one_name() -> None:
    inner = torch.nn.Linear(3, 1, bias=False)
    outer = torch.nn.Sequential(inner)
    assert leaf_names(gradviz.walk(outer(torch.ones(3)))) == [("outer.0.weight",)]


def test_a_method_sees_its_own_module() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 1, bias=False)

        def look(self) -> Graph:
            return gradviz.walk(self.linear(torch.ones(3)))

    assert leaf_names(Model().look()) == [("Model.linear.weight",)]


def test_params_must_be_tensors() -> None:
    with pytest.raises(NotATensorError, match=r"params\['w'\] is a float"):
        gradviz.walk(leaf() * 2, params={"w": 1.0})  # type: ignore[dict-item]


# -- names of roots ------------------------------------------------------------------------------------------------------------


def test_roots_are_named_by_their_path() -> None:
    x = leaf()
    out = {"loss": (x * 2).sum(), "aux": [x * 3]}
    assert [root.name for root in gradviz.walk(out).roots] == ["out['loss']", "out['aux'][0]"]
    assert gradviz.walk(out).title == "out['loss'], out['aux'][0]"


def test_a_root_without_a_variable_is_called_output() -> None:
    assert [root.name for root in gradviz.walk(leaf() * 2).roots] == ["output"]
    assert [root.name for root in gradviz.walk({"loss": leaf() * 2}).roots] == ["output['loss']"]


def test_a_tensor_in_a_container_is_called_by_its_path_there() -> None:
    outputs = [leaf() * 2]
    assert gradviz.walk(outputs[0]).roots[0].name == "outputs[0]"


def test_two_tensors_of_one_name_are_told_apart() -> None:
    """What a function calls its argument may be the name of another tensor outside."""
    space: dict[str, Any] = {"gradviz": gradviz, "x": leaf(), "t": leaf()}
    exec("u = x * t\ndef d(y, x):\n    return gradviz.walk(y)\ngraph = d(u, t)\nother = d(u, x)", space)
    assert [one.names for one in space["graph"].leaves] == [("x",), ("t",)]
    assert [one.names for one in space["other"].leaves] == [("x",), ("t",)]


# -- nothing is left behind ------------------------------------------------------------------------------------------------------


def test_deleting_a_variable_frees_what_it_freed_before() -> None:
    y = torch.tanh(leaf())
    dead = weakref.ref(y)
    gradviz.walk(y)
    del y
    assert dead() is None


def test_the_user_keeps_the_locals_that_he_asked_for() -> None:
    y = leaf() * 2
    mine = locals()
    gradviz.walk(y)
    assert mine["y"] is y


def test_a_loop_variable_and_a_closure_survive() -> None:
    total = leaf() * 2

    def inner() -> torch.Tensor:
        return total

    for i in range(3):
        gradviz.walk(total)
        assert i in (0, 1, 2) and inner() is total


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="f_locals is a view there")
def test_the_snapshot_of_a_running_function_is_emptied() -> None:
    big = torch.zeros(1)
    dead = weakref.ref(big)
    found = namespaces(sys._getframe())
    assert found[0]["big"] is big
    del big, found
    assert dead() is None


def test_at_module_level_the_variables_stay() -> None:
    space: dict[str, Any] = {"gradviz": gradviz, "x": leaf()}
    exec("y = x * 2\ngraph = gradviz.walk(y)", space)
    assert space["graph"].nodes[0].names == ("y",) and "x" in space


def test_a_walk_makes_no_node() -> None:
    x = leaf(6)
    h = x * 2
    view = h[1:3]
    other = h.view(2, 3)
    h.mul_(2)  # from here on, reading the grad_fn of `view` or `other` would make a node
    y = h.sum()
    split = (leaf(4) * 1).split(2)
    gradviz.walk(y)
    before = torch._C._autograd._get_sequence_nr()
    graph = gradviz.walk(y)
    Names(variables=[locals()])
    assert torch._C._autograd._get_sequence_nr() == before
    assert graph.nodes[0].names == ("y",)
    assert view._is_view() and other._is_view() and split


@pytest.mark.slow
def test_importing_takes_no_sequence_number_and_does_not_mind_no_grad(tmp_path: Any) -> None:
    import subprocess

    script = """
import torch
x = torch.ones(1, requires_grad=True)
y = x * 2
before = torch._C._autograd._get_sequence_nr()
torch.set_default_device("meta")
with torch.no_grad():
    import gradviz
    graph = gradviz.walk(y)
assert torch._C._autograd._get_sequence_nr() == before
assert graph.leaves[0].tensor.shape == (1,), graph.leaves
assert graph.notes or graph.nodes[0].outputs[0].shape == (1,), graph.nodes
assert graph.notes or graph.nodes[0].saved[0].kind == "number", graph.nodes
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=100)


@pytest.mark.slow
def test_names_hold_nothing_after_the_walk() -> None:
    x = leaf()
    graph = gradviz.walk(x * 2)
    dead = weakref.ref(x)
    del x
    gc.collect()
    assert dead() is None and graph.leaves[0].names == ("x",)
