"""Exporting while a recording is open gives what it gives without."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import gradviz


@pytest.mark.parametrize("strict", [True, False])
def test_an_export_is_as_without_a_recording_and_modules_are_seen_after_it(strict: bool) -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()), torch.ones(3, 4)
    plain = torch.export.export(model, (x,), strict=strict)
    with gradviz.record() as recording:
        recorded = torch.export.export(model, (x,), strict=strict)
        loss = model(x).sum()
    assert str(recorded.graph) == str(plain.graph)
    graph = recording.graph(loss)
    assert {scope.type for scope in graph.scopes} == {"Sequential", "Linear", "ReLU"}


def test_the_hooks_are_back_after_an_export_that_fails() -> None:
    model = torch.nn.Linear(4, 4)
    with gradviz.record() as recording:
        with pytest.raises(Exception, match=r"size|shape|mat"):
            torch.export.export(model, (torch.ones(3, 5),), strict=True)
        loss = model(torch.ones(3, 4)).sum()
    assert [scope.type for scope in recording.graph(loss).scopes] == ["Linear"]


def test_what_make_fx_traces_is_the_same() -> None:
    model, x = torch.nn.Linear(3, 1), torch.ones(2, 3)

    def gradients(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(model(x).sum(), list(model.parameters()))

    plain = make_fx(gradients)(x)
    with gradviz.record():
        assert make_fx(gradients)(x).code == plain.code
