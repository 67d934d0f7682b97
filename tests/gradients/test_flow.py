"""Gradient flow: the numbers, and that looking leaves everything as it was."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gradviz
from gradviz.errors import GradientError, NoGraphError
from gradviz.gradients.flow import GradientSize, size
from gradviz.gradients.table import rows
from tests.gradients.cases import CASES


@pytest.mark.parametrize(
    ("gradient", "expected"),
    [
        (torch.tensor([3.0, 4.0, 0.0, 0.0]), GradientSize(5.0, 4.0, 0.5, 0)),
        (torch.zeros(0), GradientSize(0.0, 0.0, 0.0, 0)),
        (torch.tensor([3 + 4j, 0]), GradientSize(5.0, 5.0, 0.5, 0)),
        (torch.tensor([3.0, 4.0], dtype=torch.float8_e5m2), GradientSize(5.0, 4.0, 0.0, 0)),
        (torch.tensor([[0.0, 3.0], [0.0, 4.0]]).to_sparse(), GradientSize(5.0, 4.0, 0.5, 0)),
        (torch.tensor([[0.0, 3.0], [0.0, 4.0]]).to_sparse_csr(), GradientSize(5.0, 4.0, 0.5, 0)),
        (torch.full((4,), 60000.0, dtype=torch.float16), GradientSize(120000.0, 60000.0, 0.0, 0)),
        (torch.full((4,), 1e30), GradientSize(2 * float(torch.tensor(1e30)), float(torch.tensor(1e30)), 0.0, 0)),
    ],
)
def test_sizes(gradient: Tensor, expected: GradientSize) -> None:
    assert size(gradient) == pytest.approx(expected)


def test_entries_that_are_not_finite_are_counted() -> None:
    found = size(torch.tensor([1.0, float("nan"), float("inf"), 0.0]))
    assert found.nonfinite == 2 and found.zeros == 0.25 and math.isnan(found.norm)


@pytest.mark.parametrize("name", CASES)
def test_leaves_have_the_gradients_that_backward_gives(name: str) -> None:
    torch.manual_seed(0)
    output = CASES[name]()
    found = gradviz.flow(output, run_custom=True)
    assert all(node.variable.grad is None for node in _leaf_nodes(output))
    output.backward()
    given = sorted(size(node.variable.grad) for node in _leaf_nodes(output) if node.variable.grad is not None)
    assert sorted((leaf.norm, leaf.max, leaf.zeros, leaf.nonfinite) for leaf in found.leaves) == given


def _leaf_nodes(output: Tensor) -> list[Any]:
    """AccumulateGrad nodes, found without the walker."""
    stack: list[Any] = [output.grad_fn]
    seen: dict[Any, None] = {}
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen[node] = None
            stack.extend(child for child, _ in node.next_functions)
    return [node for node in seen if hasattr(node, "variable")]


def test_every_edge_is_measured() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    w = torch.tensor([3.0, 0.0], requires_grad=True)
    found = gradviz.flow((x * w).sum())
    named = {found.graph.nodes[edge.producer].names: flow for edge, flow in found.edges}
    assert named[("x",)] == GradientSize(3.0, 3.0, 0.5, 0)
    assert named[("w",)] == pytest.approx(GradientSize(math.sqrt(5), 2.0, 0.0, 0))
    assert tuple(edge for edge, _ in found.edges) == found.graph.edges


def test_an_output_of_many_elements_stands_for_their_sum() -> None:
    y = torch.ones(3, requires_grad=True) * 2
    assert gradviz.flow(y).notes == ("y: not a single number, so these are the gradients of the sum of all elements",)


def test_nothing_is_disturbed() -> None:
    ran: list[str] = []
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    net[0].register_full_backward_hook(lambda *_: ran.append("module"))
    net[0].weight.register_hook(lambda gradient: ran.append("leaf"))  # type: ignore[arg-type]
    net[0].weight.register_post_accumulate_grad_hook(lambda _: ran.append("post"))  # type: ignore[arg-type]
    hidden = net[0](torch.ones(1, 2, requires_grad=True))
    hidden.retain_grad()
    hidden.register_hook(lambda gradient: ran.append("hidden"))  # type: ignore[arg-type]
    loss = net[1](hidden).sum()
    loss.grad_fn.register_hook(lambda *_: ran.append("node"))  # type: ignore[union-attr,arg-type]
    random = torch.get_rng_state()
    found = gradviz.flow(loss, model=net)
    assert not ran
    assert hidden.grad is None and all(parameter.grad is None for parameter in net.parameters())
    assert torch.equal(random, torch.get_rng_state())
    assert any("hooks did not run" in note and "0.weight" in note for note in found.notes)
    assert any("hooks of modules" in note for note in found.notes)
    loss.backward()
    assert set(ran) == {"module", "leaf", "post", "hidden", "node"}
    assert hidden.grad is not None


@pytest.mark.slow
def test_looking_twice_gives_the_same_and_leaves_nothing_alive() -> None:
    x = torch.randn(3, requires_grad=True)
    hidden = x.exp()
    loss = (hidden * hidden).sum()
    assert gradviz.flow(loss) == gradviz.flow(loss)
    kept, found = weakref.ref(hidden), gradviz.flow(loss)
    del hidden, loss
    gc.collect()
    assert kept() is None and found.leaves


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_the_callers_grad_mode_does_not_matter(mode: Any) -> None:
    x = torch.randn(3, requires_grad=True)
    loss = (x.exp() * x).sum()
    expected = gradviz.flow(loss).leaves
    with mode():
        assert gradviz.flow(loss).leaves == expected


def test_inside_a_hook_of_a_backward_that_wants_one_gradient() -> None:
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    other = (x.exp() * y).sum()
    expected, seen = gradviz.flow(other).leaves, []
    z = x * 3
    z.register_hook(lambda _: seen.append(gradviz.flow(other, params={"x": x, "y": y}).leaves))  # type: ignore[arg-type,func-returns-value]
    torch.autograd.grad(z.sum(), x)
    assert seen == [expected]


@pytest.mark.slow
def test_a_checkpoint_is_recomputed_once_and_nothing_is_kept() -> None:
    runs: list[int] = []

    class Block(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            runs.append(1)
            held = x.exp()
            alive.append(weakref.ref(held))
            return (held * held.sin()).tanh() * held

    alive: list[weakref.ref[Tensor]] = []
    x = torch.randn(3, requires_grad=True)
    loss = checkpoint(Block(), x, use_reentrant=False).sum()
    found = gradviz.flow(loss)
    assert len(runs) == 2
    assert any("computed once more" in note for note in found.notes)
    gc.collect()
    assert alive[-1]() is None
    loss.backward()
    assert found.leaves[0].norm == size(x.grad).norm  # type: ignore[arg-type]


class Clearing(torch.autograd.Function):
    clear_saved_tensors_on_access = True

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * gradient


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        raise KeyError("lost")


def _reentrant(x: Tensor) -> Tensor:
    return checkpoint(nn.Linear(2, 2), x, use_reentrant=True).sum()


def _freed(x: Tensor) -> Tensor:
    loss = x.exp().sum()
    loss.backward()
    return loss


def _modified(x: Tensor) -> Tensor:
    hidden = x.exp()
    loss = hidden.sin().sum()
    hidden.add_(1)
    return loss


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (_reentrant, "use_reentrant"),
        (_freed, "already freed"),
        (_modified, "inplace"),
        (lambda x: Clearing.apply(x).sum(), "read only once"),
        (lambda x: Failing.apply(x).sum(), "KeyError"),
    ],
)
def test_what_cannot_be_looked_at_is_refused_with_the_reason(make: Any, told: str) -> None:
    x = torch.ones(2, 2, requires_grad=True)
    output = make(x)
    before = x.grad
    with pytest.raises(GradientError, match=told):
        gradviz.flow(output, run_custom=True)
    assert x.grad is before


def test_no_graph_says_why() -> None:
    with pytest.raises(NoGraphError, match="is a leaf"):
        gradviz.flow(torch.ones(1, requires_grad=True))
    with pytest.raises(NoGraphError, match="does not require grad"):
        gradviz.flow(torch.ones(1))


# -- rows and text -----------------------------------------------------------------------------------------------------


def test_rows_by_module_go_in_forward_order() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 1))
    with gradviz.record() as recording:
        loss = net(torch.ones(3, 2)).sum()
    found = gradviz.flow(loss, model=net, recording=recording)
    table = rows(found, "module")
    assert [(row.name, row.type) for row in table] == [("net.0", "Linear"), ("net.1", "Sigmoid"), ("net.2", "Linear")]
    loss.backward()
    for row in (table[0], table[2]):
        gradients = [parameter.grad.flatten() for parameter in net.get_submodule(row.name[4:]).parameters()]
        assert row.parameters == pytest.approx(float(torch.cat(gradients).norm()))
    assert table[2].norm == pytest.approx(math.sqrt(3))
    text = str(found)
    assert text.splitlines()[2].split()[:2] == ["step", "module"]
    assert "to its leaves" in text and "Sigmoid" in text


def test_a_hook_on_a_result_is_told() -> None:
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    y.register_hook(lambda grad: grad * 100)
    loss = y.sum()
    note = "hooks did not run, so what they change is not in these numbers: on y"
    assert note in gradviz.flow(loss).notes and note in gradviz.paths(loss, w).notes


def test_a_module_stands_before_the_modules_in_it() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x).tanh()) * 2

    net = Net()
    with gradviz.record() as recording:
        loss = net(torch.ones(3, 2)).sum()
    found = gradviz.flow(loss, model=net, recording=recording)
    assert [row.name for row in rows(found, "module")] == ["net", "net.first", "net.last"]
