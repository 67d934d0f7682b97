"""Parameters that a compiled function takes: which get a gradient is exact."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch._dynamo

import gradviz
from tests.compiled.models import Block


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.mark.slow
def test_a_parameter_that_the_backward_gives_none_is_unused_and_the_others_are_not() -> None:
    model = torch.compile(Block(), backend="aot_eager")
    loss = model(torch.randn(3, 8)).sum()
    loss.backward(retain_graph=True)
    (unused,) = [one for one in gradviz.check(loss, model=model) if one.severity != "note"]
    assert unused.id == "none-grad" and unused.names == ("model.aside.weight", "model.aside.bias")


class Shared(torch.nn.Module):
    """Two parts, compiled apart or not at all; the first result is cut off in `aside` and not in `main`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def aside(self, x: torch.Tensor) -> torch.Tensor:
        return self.first(x).detach() * self.second(x)

    def main(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))  # type: ignore[no-any-return]


@pytest.mark.slow
def test_what_gets_a_gradient_from_another_region_or_from_eager_code_is_not_unused() -> None:
    for main in (torch.compile, lambda function, backend: function):
        torch._dynamo.reset()
        net, x = Shared(), torch.randn(3, 4)
        loss = torch.compile(net.aside, backend="aot_eager")(x).sum() + main(net.main, backend="aot_eager")(x).sum()
        assert [one.id for one in gradviz.check(loss, model=net)] == []


def test_frozen_parameters_are_told_as_in_eager_code() -> None:
    net, x = Shared(), torch.randn(3, 4)
    net.first.requires_grad_(False)
    eager, compiled = (
        gradviz.check(function(x).sum(), model=net)
        for function in (net.main, torch.compile(net.main, backend="aot_eager"))
    )
    assert [one.as_data() for one in eager] == [one.as_data() for one in compiled]
    assert [(one.id, one.severity) for one in compiled] == [("unused-parameter", "note")]
