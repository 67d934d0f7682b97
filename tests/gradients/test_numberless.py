"""Gradients of tensors without numbers, or of a class that cannot be measured: one sentence says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

import gradviz
from gradviz.errors import GradientError

Made = tuple[Tensor, Tensor]


def _meta() -> Made:
    w = torch.ones(3, device="meta", requires_grad=True)
    return (w * 2).sum(), w


def _fake() -> Made:
    with FakeTensorMode():
        w = torch.ones(3, requires_grad=True)
        return (w * 2).sum(), w


def _masked() -> Made:
    from torch.masked import masked_tensor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a prototype, it says
        w = masked_tensor(torch.ones(3), torch.tensor([True, False, True]), requires_grad=True)
        return (w * 2).sum(), w


class Stubborn(Tensor):
    """Cannot be measured."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.linalg.vector_norm:
            raise LookupError("no such\noperation")
        return super().__torch_function__(function, types, args, kwargs or {})


class ToStubborn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.ones(3).as_subclass(Stubborn)  # type: ignore[attr-defined,no-any-return]


def _stubborn() -> Made:
    w = torch.ones(3, requires_grad=True)
    return ToStubborn.apply(w * 2).sum(), w


CASES = {
    _meta: "loss is on the meta device, which has no numbers",
    _fake: "loss is a fake tensor, which has no numbers",
    _masked: "loss is a masked tensor, which supports none of the operations",
    _stubborn: "a gradient cannot be measured: it is a Stubborn, and LookupError: no such",
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_flow_and_paths_say_why(make: Callable[[], Made]) -> None:
    loss, w = make()
    for ask in (lambda: gradviz.flow(loss, run_custom=True), lambda: gradviz.paths(loss, w, run_custom=True)):
        with pytest.raises(GradientError) as caught:
            ask()
        assert CASES[make].replace("loss", "") in str(caught.value).replace("output", "").replace("loss", "")
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_check_tells_it_beside_what_it_found(make: Callable[[], Made]) -> None:
    loss, _ = make()
    found = gradviz.check((loss, torch.ones(1)), values=True)
    assert "no-graph" in [one.id for one in found]
    assert found.skipped[-1][0] == "gradients"
