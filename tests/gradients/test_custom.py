"""Custom Functions, whose backward may keep state: they are not called unless asked for, and what lies behind is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import gradviz
from gradviz.errors import GradientError
from tests.walker.graphs import needs_raw


class Fading(torch.autograd.Function):
    """Its gradient is smaller each time that it is asked for."""

    calls = 0

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        Fading.calls += 1
        return gradient / Fading.calls


def _training(look: Callable[[Tensor, torch.nn.Module], object]) -> list[Tensor]:
    """The weights after training with an optimizer in backward, where someone looks at each step's loss before it."""
    Fading.calls = 0
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))

    def step(parameter: Tensor) -> None:
        assert parameter.grad is not None
        with torch.no_grad():
            parameter -= 0.1 * parameter.grad
        parameter.grad = None

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)
        parameter.register_hook(lambda gradient: gradient * 0.5)
    for _ in range(3):
        hidden = Fading.apply(net[0](torch.ones(4, 2)))
        loss = net[1](hidden).square().mean()
        look(loss, net)
        loss.backward()
    return [parameter.detach().clone() for parameter in net.parameters()]


@pytest.mark.parametrize(
    "look",
    [
        lambda loss, net: gradviz.flow(loss),
        lambda loss, net: gradviz.check(loss, model=net, values=True),
        lambda loss, net: gradviz.paths(loss, net[1].bias),
    ],
    ids=["flow", "check", "paths"],
)
def test_a_looked_at_training_run_ends_with_the_same_bits(look: Callable[[Tensor, Any], object]) -> None:
    alone, watched = _training(lambda *_: None), _training(look)
    assert all(torch.equal(one, other) for one, other in zip(alone, watched))


def test_what_is_behind_is_not_measured_and_counted() -> None:
    w, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    shared = torch.ones(2, requires_grad=True)
    loss = (Fading.apply(w * shared) * v * shared).sum()
    found = gradviz.flow(loss)
    assert [leaf.names for leaf in found.leaves] == [("v",)]  # only a part of what reaches `shared` would be known
    assert {found.graph.nodes[node].op for node in found.stopped} == {"FadingBackward"}
    (note,) = found.notes
    assert note.startswith("stopped at Fading:") and "behind it: 1 function and 2 leaves" in note
    assert "none was measured" in str(found)
    unknown = [found.graph.nodes[step.node].op for step in found.graph.backward if not step.measured]
    assert sorted(unknown) == ["AccumulateGrad", "AccumulateGrad", "MulBackward0"]


def test_run_custom_goes_through_and_names_them() -> None:
    Fading.calls = 0
    w = torch.ones(2, requires_grad=True)
    loss = Fading.apply(w).sum()
    found = gradviz.flow(loss, run_custom=True)
    assert Fading.calls == 1 and found.leaves[0].names == ("w",) and not found.unmeasured
    assert found.notes == ("the backward of Fading ran once more, with all that it does",)
    assert gradviz.paths(loss, w, run_custom=True).notes == found.notes


def test_no_path_is_followed_through_one() -> None:
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(GradientError, match=r"path leads through Fading: .* --run-custom"):
        gradviz.paths(Fading.apply(w).sum(), w)


@needs_raw
def test_check_says_where_it_stopped_and_keeps_what_it_found() -> None:
    w, v = torch.ones(2, requires_grad=True), torch.zeros(2, requires_grad=True)
    found = gradviz.check((Fading.apply(w) + v.sqrt()).sum(), values=True)
    assert "nonfinite" in [one.id for one in found]  # the derivative of sqrt at 0
    ((what, why),) = found.skipped
    assert what == "gradients" and "stopped at Fading" in why


def test_full_backward_hooks_of_modules_do_not_stop_it() -> None:
    net = torch.nn.Linear(2, 2)
    net.register_full_backward_hook(lambda *_: pytest.fail("the hook ran"))
    found = gradviz.flow(net(torch.ones(1, 2, requires_grad=True)).sum(), model=net)
    assert not found.stopped and len(found.leaves) == 3


def test_the_picture_says_what_was_not_measured(tmp_path: Path) -> None:
    w = torch.ones(2, requires_grad=True)
    graph = gradviz.flow(Fading.apply(w * 2).sum()).graph
    picture = Path(graph.save(str(tmp_path / "graph.dot"), color="grad")).read_text()
    assert "gradient not measured" in picture
    assert gradviz.load(graph.save(str(tmp_path / "graph.json"))) == graph
