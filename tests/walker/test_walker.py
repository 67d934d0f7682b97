"""The walk: every node and edge that autograd recorded, and nothing else."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import gradviz
from gradviz.errors import NoGraphError, NotATensorError
from gradviz.graph import TensorInfo
from tests.walker.graphs import chain, executed, leaf, needs_metadata, only, ops, triples


def test_the_smallest_graph() -> None:
    graph = gradviz.walk(leaf() * 2)
    assert ops(graph) == ["MulBackward0", "AccumulateGrad"]
    assert triples(graph) == [("MulBackward0", "AccumulateGrad", 0, 0)]
    assert graph.nodes[0].none_inputs == 1  # the number 2 needs no gradient
    assert graph.nodes[0].sequence is not None and graph.nodes[1].sequence is None
    assert graph.torch == torch.__version__


def test_parallel_edges_stay_apart() -> None:
    x = leaf()
    assert triples(gradviz.walk(x * x)) == [
        ("MulBackward0", "AccumulateGrad", 0, 0),
        ("MulBackward0", "AccumulateGrad", 0, 1),
    ]


def test_edges_say_which_output_they_come_from() -> None:
    a, b, c = (leaf(3) * 1).unbind()
    assert triples(gradviz.walk(c + a))[:2] == [
        ("AddBackward0", "UnbindBackward0", 2, 0),
        ("AddBackward0", "UnbindBackward0", 0, 1),
    ]
    assert gradviz.walk(b).roots[0].output == 1


@needs_metadata
def test_outputs_of_every_forward_result_are_told() -> None:
    node = only(gradviz.walk(leaf(6).split(2)), "SplitBackward0")
    assert node.outputs == (TensorInfo((2,), "float32", "cpu"),) * 3


def test_ids_follow_discovery_and_are_the_same_each_time() -> None:
    x, w = leaf(), leaf()
    y = (x + w) * (w + 1)
    first, second = gradviz.walk(y), gradviz.walk(y)
    assert first == second
    assert [node.id for node in first.nodes] == list(range(len(first.nodes)))
    assert list(first.edges) == sorted(first.edges)
    assert ops(first) == ["MulBackward0", "AddBackward0", "AddBackward0", "AccumulateGrad", "AccumulateGrad"]


def test_outputs_share_their_graph() -> None:
    h = leaf() * 2
    graph = gradviz.walk({"a": h.sum(), "b": h.mean(), "again": [h]})
    assert sorted(ops(graph)) == ["AccumulateGrad", "MeanBackward0", "MulBackward0", "SumBackward0"]
    assert [root.name for root in graph.roots] == ["output['a']", "output['b']", "output['again'][0]"]
    assert [ops(graph)[root.node or 0] for root in graph.roots] == ["SumBackward0", "MeanBackward0", "MulBackward0"]


def test_an_output_reached_twice_is_one_node_with_two_roots() -> None:
    y = leaf() * 2
    graph = gradviz.walk([y, y])
    assert len(graph.nodes) == 2
    assert [(root.name, root.node) for root in graph.roots] == [("output[0]", 0), ("output[1]", 0)]


def test_outputs_that_are_leaves_stand_beside_others() -> None:
    x, unused = leaf(), leaf()
    y = x * 2
    outputs = (y, x, unused, unused)
    graph = gradviz.walk(outputs)
    assert ops(graph) == ["MulBackward0", "AccumulateGrad", "AccumulateGrad"]
    assert [root.node for root in graph.roots] == [0, 1, 2, 2]
    assert graph.leaf_of[1].names == ("x",) and graph.leaf_of[2].names == ("unused",)
    assert len(graph.leaves) == 2 and graph.nodes[2].names == ("unused",)


def test_outputs_without_a_graph_stand_beside_others() -> None:
    loss = (leaf() * 2).sum()
    graph = gradviz.walk({"loss": loss, "accuracy": torch.tensor(3)})
    assert [root.node for root in graph.roots] == [0, None]
    assert graph.roots[1].why.startswith("is int64")


# -- views ---------------------------------------------------------------------------------------------------------------


def test_a_view_points_at_its_base() -> None:
    h = leaf(6) * 2
    view = h.view(2, 3)
    (root,) = gradviz.walk(view).roots
    assert root.base is not None
    assert (root.base.tensor.shape, root.base.names, root.base.node) == ((6,), ("h",), 1)


def test_a_leaf_that_is_a_view_points_at_its_base() -> None:
    x = torch.ones(6)
    part = x[2:4].requires_grad_()
    (found,) = gradviz.walk(part * 2).leaves
    assert found.names == ("part",) and found.base is not None
    assert found.base.names == ("x",) and found.base.node is None


def test_writing_into_a_view_shows_copy_slices() -> None:
    h = leaf(6) * 2
    h[1:3] = leaf(2)
    graph = gradviz.walk(h)
    node = only(graph, "CopySlices")
    assert node.flags == ("hidden",) and node.names == ("h",)
    assert [edge.position for edge in graph.inputs(node.id)] == [0, 1]
    view = h[0:2]
    h.mul_(3)
    # torch makes this view's new grad_fn when it is asked for: asked for by the user, so it is there
    assert ops(gradviz.walk(view))[0] in ("AsStridedBackward0", "SliceBackward0")


def test_a_view_that_torch_refuses_says_so() -> None:
    h = leaf(4) * 2
    first, _ = h.split(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        h.mul_(3)
    graph = gradviz.walk([h, first])
    assert graph.roots[1].node is None and "torch refuses" in graph.roots[1].why


# -- subclasses and modes ----------------------------------------------------------------------------------------------------


class Rewrapping(torch.Tensor):
    """Every attribute runs this code, and `_base` never ends (a known trap for walkers)."""

    calls = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Rewrapping.calls += 1
        made = super().__torch_function__(func, types, args, kwargs or {})
        return made.as_subclass(Rewrapping) if isinstance(made, torch.Tensor) else made


def test_a_subclass_is_walked_without_running_its_code() -> None:
    x = leaf(6).as_subclass(Rewrapping)
    view = (x * 2).view(2, 3)
    before = Rewrapping.calls
    graph = gradviz.walk(view, params={"x": x})
    assert Rewrapping.calls == before
    assert "ViewBackward0" in ops(graph) and graph.roots[0].base is not None


def test_the_users_modes_see_nothing() -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    class Dispatches(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    y = torch.tanh(leaf() * 2.5).view(3, 1)
    y.grad_fn  # noqa: B018
    with Functions(), Dispatches():
        seen.clear()
        graph = gradviz.walk(y)
        assert seen == []
    assert graph == gradviz.walk(y)


# -- no graph ----------------------------------------------------------------------------------------------------------------


def _in_inference_mode() -> torch.Tensor:
    with torch.inference_mode():
        return leaf() * 2


def _without_grad() -> torch.Tensor:
    x = leaf()
    with torch.no_grad():
        return x.view(3, 1)


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (leaf(), "is a leaf: it was created, not computed"),
        (torch.ones(3), "does not require grad"),
        ((leaf() * 2).detach(), "does not require grad"),
        (torch.ones(3, dtype=torch.int64), "is int64"),
        ((leaf() * 2).argmax(), "is int64"),
        (leaf() > 0, "is bool"),
        (_in_inference_mode(), "torch.inference_mode()"),
        (_without_grad(), "a view that was made under torch.no_grad()"),
    ],
    ids=["leaf", "plain", "detached", "integer", "argmax", "bool", "inference", "view under no_grad"],
)
def test_no_graph_says_why(tensor: torch.Tensor, says: str) -> None:
    with pytest.raises(NoGraphError) as raised:
        gradviz.walk(tensor)
    assert str(raised.value).startswith("tensor has no graph to show: it ") and says in str(raised.value)
    assert isinstance(raised.value, ValueError)


def test_several_outputs_without_a_graph_are_listed() -> None:
    with pytest.raises(NoGraphError, match=r"none of the 12 outputs") as raised:
        gradviz.walk([torch.ones(1)] * 12)
    (line,) = str(raised.value).splitlines()[1:]
    assert line.startswith("  output[0] does not require grad") and line.endswith("output[5] and 6 more)")


def test_no_tensor_at_all() -> None:
    with pytest.raises(NotATensorError):
        gradviz.walk({"loss": 0.5})


# -- against the engine --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4)),
        torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        torch.nn.LSTM(4, 4).double(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_nodes_are_those_the_engine_executes(model: torch.nn.Module) -> None:
    dtype = next(model.parameters()).dtype
    made = model(torch.randn(2, 3, 4, dtype=dtype))
    y = (made[0] if isinstance(made, tuple) else made).sum()
    graph = gradviz.walk(y, model=model)
    expected = executed([y])
    assert sorted(name.rpartition("::")[2] for name in expected.elements()) == sorted(ops(graph))
    assert {name for found in graph.leaves for name in found.names} == {
        f"model.{name}" for name, _ in model.named_parameters()
    }


# -- nothing is disturbed --------------------------------------------------------------------------------------------------------


def test_gradients_are_the_same_after_a_walk() -> None:
    def gradients(look: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        y = model(torch.randn(5, 4)).sum()
        if look:
            gradviz.walk(y, model=model)
        y.backward()
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    assert all(torch.equal(one, other) for one, other in zip(gradients(True), gradients(False)))
    assert len(gradients(True)) == 4


def test_the_collector_is_on_again_also_after_an_error() -> None:
    import gc

    assert gc.isenabled()
    with pytest.raises(NoGraphError):
        gradviz.walk(torch.ones(3))
    assert gc.isenabled()
    gc.disable()
    try:
        gradviz.walk(chain(3))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_without_saved_tensors_the_shape_of_the_graph_is_the_same() -> None:
    y = torch.tanh(chain(5))
    full, bare = gradviz.walk(y), gradviz.walk(y, saved=False)
    assert (ops(full), full.edges) == (ops(bare), bare.edges)
    assert full.storages and not bare.storages
    assert all(not node.saved and not node.attributes for node in bare.nodes)
