"""Every kind of node and tensor that a walk can meet: custom, functorch, nested, sparse, fake, compiled, hooked."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import gradviz
from gradviz.armour.isolation import isolated
from gradviz.errors import NoGraphError
from gradviz.graph import Graph, TensorInfo
from gradviz.walker.tensors import tensor_info
from tests.walker.graphs import leaf, needs_metadata, only, ops


class Scale(torch.autograd.Function):
    """A custom Function with two results, one of which has no gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(x)
        ctx.factor = factor
        index = x.argmax()
        ctx.mark_non_differentiable(index)
        return x * factor, index

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> tuple[torch.Tensor, None]:
        return gradient * ctx.factor, None


class Old(torch.autograd.Function):
    """Defines `vjp`, the other name of `backward`."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def vjp(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


@pytest.mark.parametrize("function", [Scale, Old])
def test_a_custom_function_tells_its_class_and_where_backward_is(function: Any) -> None:
    made = function.apply(leaf(), 2.0)[0] if function is Scale else function.apply(leaf())
    node = only(gradviz.walk(made), f"{function.__name__}Backward")
    assert node.flags == ("custom",) and node.function is not None
    assert node.function.name == f"{__name__}.{function.__name__}"
    where = node.function.definition
    assert where is not None and where.file == __file__ and where.function in ("backward", "vjp")
    with open(where.file) as source:
        shown = source.read().splitlines()[where.line - 1 : where.line + 2]
    assert any(f"def {where.function}" in line for line in shown)


@needs_metadata
def test_a_result_without_gradient_counts_among_the_outputs_and_has_no_facts() -> None:
    made, index = Scale.apply(leaf(), 2.0)
    node = only(gradviz.walk(made), "ScaleBackward")
    assert node.outputs == (TensorInfo((3,), "float32", "cpu"), None)
    with pytest.raises(NoGraphError):
        gradviz.walk(index)


@needs_metadata
def test_a_used_number_among_the_results_of_a_custom_function_keeps_its_facts() -> None:
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, x.sum()

        @staticmethod
        def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
            return first * 2 + second

    both = Two.apply(leaf())
    assert only(gradviz.walk(both), "TwoBackward").outputs[1] == TensorInfo((), "float32", "cpu")
    assert only(gradviz.walk(both[1] + 1), "TwoBackward").outputs[1] == TensorInfo((), "float32", "cpu")


def test_double_backward() -> None:
    x = leaf()
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    graph = gradviz.walk(first.sum())
    assert {"PowBackward0", "MulBackward0", "AccumulateGrad"} <= set(ops(graph))
    assert graph.leaves[0].names == ("x",)


def test_functorch_inside_and_outside() -> None:
    inside: list[Graph] = []

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        inside.append(gradviz.walk(y))
        return y.sum()

    outside = torch.func.grad(f)(leaf())
    assert ops(inside[0])[0] == "SinBackward0"
    assert "CosBackward0" in ops(gradviz.walk(outside))


def test_forward_mode_shows_the_name_of_a_node_that_python_cannot_read() -> None:
    x = leaf()
    _, tangent = torch.func.jvp(torch.sin, (x,), (torch.ones(3),))
    assert all("CppFunction" not in op for op in ops(gradviz.walk(tangent)))


def test_cpp_functions_go_by_their_own_name() -> None:
    made = torch._foreach_mul([leaf(), leaf()], 2.0)
    node = gradviz.walk(list(made)).nodes[0]
    assert node.op == made[0].grad_fn.name() and "Mul" in node.op


@needs_metadata
def test_reading_the_shape_of_a_jagged_tensor_leaves_nothing_in_it() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    before = {*vars(nested)}
    with isolated():
        assert tensor_info(nested).layout == "jagged"
    assert {*vars(nested)} == before


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout: torch.layout) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout, requires_grad=True)
        graph = gradviz.walk(torch.tanh(x))
    name = "nested" if layout is torch.strided else "jagged"
    (found,) = graph.leaves
    assert found.tensor.layout == name and graph.nodes[0].outputs[0] is not None
    if layout is torch.jagged:
        assert found.tensor.shape is not None and found.tensor.shape[0] == 2 and isinstance(found.tensor.shape[1], str)
    else:
        assert found.tensor.shape is None


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr"])
def test_sparse_tensors(layout: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = torch.eye(3)
        x = (dense.to_sparse() if layout == "sparse_coo" else dense.to_sparse_csr()).requires_grad_()
        graph = gradviz.walk(torch.sparse.mm(x, leaf(3, 2)) if layout == "sparse_coo" else x @ leaf(3, 2))
    assert layout in [found.tensor.layout for found in graph.leaves]


def test_fake_tensors_inside_and_outside_their_mode() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        y = torch.tanh(torch.ones(3, requires_grad=True, device="cpu")) * 2.5
        inside = gradviz.walk(y)
    assert gradviz.walk(y) == inside
    assert inside.leaves[0].tensor == TensorInfo((3,), "float32", "cpu")


def test_symbolic_sizes_become_text() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    x = mode.from_tensor(torch.ones(5, 4, requires_grad=True))
    if all(type(size) is int for size in x.shape):
        pytest.skip("this torch makes static sizes here")
    guards = len(environment.guards)
    shape = gradviz.walk(x * 2).leaves[0].tensor.shape
    assert shape is not None and any(isinstance(size, str) for size in shape)
    assert len(environment.guards) == guards


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(reentrant: bool) -> None:
    x = leaf()
    graph = gradviz.walk(checkpoint(lambda t: (t * 2).tanh(), x, use_reentrant=reentrant))
    if reentrant:
        assert "checkpoint" in only(graph, "CheckpointFunctionBackward").flags
    else:
        assert ops(graph)[:2] == ["TanhBackward0", "MulBackward0"]


def test_hooks_are_flagged_where_python_can_see_them() -> None:
    x = leaf()
    h = x * 2
    y = h + 1
    assert all("hooks" not in node.flags for node in gradviz.walk(y).nodes)
    h.register_hook(lambda gradient: gradient)
    x.register_hook(lambda gradient: gradient)
    x.register_post_accumulate_grad_hook(lambda _: None)
    graph = gradviz.walk(y)
    assert [node.names for node in graph.nodes if "hooks" in node.flags] == [("h",), ("x",)]
    assert graph.leaves[0].hooks == 2
