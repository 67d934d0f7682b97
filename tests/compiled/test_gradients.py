"""Gradients and compiled functions: structure and counts go inside, and nothing is called that would compile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

import gradviz
from gradviz.errors import GradientError
from tests.compiled.models import region_node


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def product() -> tuple[torch.Tensor, torch.Tensor]:
    x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    return torch.compile(lambda: (x + w) * (w + 1), backend="aot_eager")(), w


@pytest.mark.parametrize("run_custom", [False, True])
def test_paths_through_a_compiled_function_are_counted_as_in_eager_code(run_custom: bool) -> None:
    y, w = product()
    with pytest.raises(GradientError, match=r"^2 paths .* through a compiled function"):
        gradviz.paths(y, w, run_custom=run_custom)


@pytest.mark.parametrize("run_custom", [False, True])
def test_flow_has_the_edges_inside_and_compiles_nothing(run_custom: bool) -> None:
    y, _ = product()
    flow = gradviz.flow(y.exp(), run_custom=run_custom)
    inside = {node.id for node in flow.graph.nodes if node.op.startswith("aten.")}
    assert {edge.consumer for edge in flow.graph.edges} & inside <= flow.unmeasured and inside <= flow.unmeasured
    assert region_node(y)._forward_cls.compiled_bw is None
    y.backward()
