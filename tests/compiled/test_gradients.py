"""Gradients inside compiled functions: measured operation by operation, and nothing is called that would compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn

import gradviz
from gradviz.errors import GradientError
from gradviz.gradients.values import tensor_in
from gradviz.walker import private
from tests.compiled.models import Block, region_node
from tests.walker.graphs import needs_raw


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def product() -> tuple[torch.Tensor, torch.Tensor]:
    x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    return torch.compile(lambda: (x + w) * (w + 1), backend="aot_eager")(), w


def random_again(x: torch.Tensor) -> torch.Tensor:
    """What backward computes again, it draws again."""
    return torch.utils.checkpoint.checkpoint(
        lambda h: nn.functional.dropout(h.sin(), 0.5).exp(), x, use_reentrant=False
    )  # type: ignore[no-any-return]


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "block": (Block, (3, 8)),
    "images": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)
        ),
        (3, 1, 6, 6),
    ),
    "attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 5, 8)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dynamic"), [("block", True), ("images", False), ("attention", False)])
def test_flow_is_that_of_the_model_uncompiled(name: str, dynamic: bool) -> None:
    make, shape = MODELS[name]
    net, x = make(), torch.randn(shape)
    loss = torch.compile(net, backend="aot_eager", dynamic=dynamic)(x).transpose(0, -1).square().sum()
    flow = gradviz.flow(loss, model=net)
    names, leaves = zip(*net.named_parameters())
    wanted = torch.autograd.grad(net(x).square().sum(), leaves, allow_unused=True)
    found = {leaf.names[0]: leaf.norm for leaf in flow.leaves}
    assert not flow.stopped and any("operation by operation" in note for note in flow.notes), flow.notes
    assert found == {
        n: pytest.approx(one.norm().item(), rel=1e-4, abs=1e-5) for n, one in zip(names, wanted) if one is not None
    }


def test_flow_measures_what_runs_inside_and_disturbs_nothing() -> None:
    net, x = Block(), torch.randn(3, 8)
    loss = torch.compile(net, backend="aot_eager")(x).sum()
    before = torch.random.get_rng_state()
    flow = gradviz.flow(loss, model=net)
    inside = {node.id for node in flow.graph.nodes if node.op.startswith("aten.")}
    assert len(inside & flow.incoming.keys()) > 10
    assert region_node(loss)._forward_cls.compiled_bw is None
    assert torch.equal(before, torch.random.get_rng_state()) and all(one.grad is None for one in net.parameters())
    loss.backward()


def test_an_output_that_is_not_used_counts_as_zeros() -> None:
    @torch.compile(backend="aot_eager")
    def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.sin()
        return y, y.exp()

    x = torch.tensor([0.5, 1.0], requires_grad=True)
    (leaf,) = gradviz.flow(both(x)[0].sum()).leaves
    assert leaf.norm == pytest.approx(x.detach().cos().norm().item())


def test_paths_through_a_compiled_function_contribute_as_in_eager_code() -> None:
    y, w = product()
    found = gradviz.paths(y, w)
    assert (found.count, found.total.item(), found.complete) == (2, 5.0, True)
    assert sorted(path.contribution.item() for path in found.paths) == [2.0, 3.0]


@pytest.mark.parametrize("run_custom", [False, True])
def test_a_program_that_draws_random_numbers_is_not_run_and_it_is_said(run_custom: bool) -> None:
    x = torch.ones(4, requires_grad=True)
    loss = torch.compile(random_again, backend="aot_eager")(x).sum()
    flow = gradviz.flow(loss, run_custom=run_custom)
    assert flow.stopped and not flow.leaves
    (note,) = [note for note in flow.notes if note.startswith("stopped at 1 compiled function")]
    assert "rng" in note or "random" in note
    with pytest.raises(GradientError, match=r"^1 path .* cannot be run operation by operation"):
        gradviz.paths(loss, x, run_custom=run_custom)


@pytest.mark.parametrize("run_custom", [False, True])
def test_without_a_program_the_function_is_not_called(monkeypatch: pytest.MonkeyPatch, run_custom: bool) -> None:
    monkeypatch.setattr(private, "compiled_backward", lambda kind: (0, None, None))
    y, _ = product()
    flow = gradviz.flow(y.exp(), run_custom=run_custom)
    assert flow.stopped and any("torch does not tell what its backward does" in note for note in flow.notes)
    assert region_node(y)._forward_cls.compiled_bw is None


def test_after_backward_there_is_nothing_to_compute_from() -> None:
    y, _ = product()
    y.backward()
    with pytest.raises(GradientError, match="already freed"):
        gradviz.flow(y)


def root(x: Any) -> Any:
    y = x * 1
    return (y - y.detach()).pow(2).sum(1).sqrt().sum()


def logarithm(x: Any) -> Any:
    h = x.relu()
    return (torch.log(h) * x).sin().sum()


@pytest.mark.parametrize(
    ("function", "what"),
    [(root, "the gradient of x becomes NaN or Inf in sqrt"), (logarithm, "log makes NaN or Inf in the forward pass")],
)
@needs_raw
def test_check_finds_where_nan_begins_inside(function: Callable[..., Any], what: str) -> None:
    x = torch.tensor([[-1.0, 1.0, 2.0]], requires_grad=True)
    loss = torch.compile(function, backend="aot_eager")(x)
    (found,) = [one for one in gradviz.check(loss, values=True) if one.id == "nonfinite"]
    assert found.summary.startswith(what) and found.code is not None
    assert what.split()[-1 if function is root else 0] in found.code.text
    assert "derivative of sqrt" in found.why or "og of 0 is -inf" in found.why


@needs_raw
def test_a_slot_inside_is_read_by_its_name() -> None:
    net, x = Block(), torch.randn(3, 8)
    loss = torch.compile(net, backend="aot_eager")(x).sum()
    node = region_node(loss)
    names = [one.name for one in node._forward_cls._lazy_backward_info.bw_module.graph.nodes if one.op == "placeholder"]
    held = [one.data for one in node._raw_saved_tensors] + list(node._tensors_no_vc_check or ())
    for name, tensor in zip(names, held):
        found = tensor_in(node, name)
        assert found is not None and found.data_ptr() == tensor.data_ptr()
    assert tensor_in(node, "tangents_1") is None and tensor_in(node, "nothing") is None
