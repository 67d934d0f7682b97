"""Gradients end at a compiled function: calling its backward would compile it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

import gradviz
from gradviz.errors import GradientError
from tests.compiled.models import Block, region_node
from tests.walker.graphs import needs_raw


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("run_custom", [False, True])
def test_flow_ends_there_and_says_what_is_not_measured(run_custom: bool) -> None:
    net, x = Block(), torch.randn(3, 8)
    out = torch.compile(net, backend="aot_eager")(x)
    loss = out.square().sum()
    flow = gradviz.flow(loss, model=net, run_custom=run_custom)

    (compiled,) = [node.id for node in flow.graph.nodes if "compiled" in node.flags]
    assert flow.stopped == (compiled,) and not flow.leaves
    assert flow.incoming[compiled].norm == pytest.approx((2 * out).norm().item())
    assert [note for note in flow.notes if note.startswith("stopped")] == [
        "stopped at 1 compiled function, whose backward runs as one. Not measured behind it: 6 leaves. "
        "TORCH_COMPILE_DISABLE=1 in the environment runs the script uncompiled"
    ]
    assert region_node(loss)._forward_cls.compiled_bw is None
    loss.backward()


def test_paths_through_it_are_counted_and_what_they_contribute_is_not_known() -> None:
    x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    y = torch.compile(lambda: (x + w) * (w + 1), backend="aot_eager")()
    with pytest.raises(GradientError, match=r"1 path .* through a compiled function, whose backward runs as one"):
        gradviz.paths(y, w, run_custom=True)


def logarithm(x: torch.Tensor) -> torch.Tensor:
    return (torch.log(x.relu()) * x).sin().sum()


@needs_raw
def test_check_finds_the_compiled_function_that_makes_nan() -> None:
    x = torch.tensor([[-1.0, 1.0, 2.0]], requires_grad=True)
    loss = torch.compile(logarithm, backend="aot_eager")(x)
    (found,) = [one for one in gradviz.check(loss, values=True) if one.id == "nonfinite"]
    assert "CompiledFunctionBackward" in found.summary
