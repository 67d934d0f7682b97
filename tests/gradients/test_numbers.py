"""Tensors without numbers to read: reading some of them would end the process."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.testing._internal.two_tensor import TwoTensor

import gradviz
from gradviz.errors import GradientError
from gradviz.gradients.values import outgrown, why_unreadable
from tests.walker.graphs import needs_raw


def _shrunk(tensor: torch.Tensor, nbytes: int) -> torch.Tensor:
    tensor.untyped_storage().resize_(nbytes)
    return tensor


def _fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(3)


@pytest.mark.parametrize(
    "make, reason",
    [
        (lambda: torch.ones(3, device="meta"), "meta device"),
        (_fake, "fake tensor"),
        (lambda: _shrunk(torch.ones(4), 0), "needs 16 bytes of a storage that was resized to 0"),
        (lambda: _shrunk(torch.ones(4)[2:], 8), "needs 16 bytes of a storage that was resized to 8"),
        (lambda: _shrunk(torch.ones(4).to_sparse()._values(), 0), "needs 16 bytes"),
        (
            lambda: TwoTensor(torch.ones(4), _shrunk(torch.ones(4), 4)),
            "needs 16 bytes of a storage that was resized to 4",
        ),
    ],
)
def test_says_why_there_are_no_numbers(make: Callable[[], torch.Tensor], reason: str) -> None:
    assert reason in why_unreadable(make())


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(4),
        torch.ones(4)[2:],
        torch.ones(1).expand(100),
        _shrunk(torch.ones(4)[:2], 8),
        torch.ones(3).to_sparse(),
        TwoTensor(torch.ones(2), torch.ones(2)),
    ],
    ids=lambda tensor: f"{type(tensor).__name__}{list(tensor.shape)}",
)
def test_tensors_inside_their_storage_are_read(tensor: torch.Tensor) -> None:
    assert not outgrown(tensor)
    assert not why_unreadable(tensor)


def _resharded() -> tuple[torch.nn.Linear, torch.Tensor]:
    """A loss whose layer has given its weight's memory back, as fully_shard does between forward and backward."""
    layer = torch.nn.Linear(100, 100)
    x = torch.ones(2, 100, requires_grad=True)
    loss = layer(x).sum()
    _shrunk(layer.weight.data, 0)
    return layer, loss


@pytest.mark.parametrize("ask", [lambda loss, _: gradviz.flow(loss), gradviz.paths], ids=["flow", "paths"])
@needs_raw
def test_gradients_refuse_to_read_memory_that_was_given_back(ask: Callable[..., object]) -> None:
    layer, loss = _resharded()
    with pytest.raises(GradientError, match=r"mat\w+ needs 40,000 bytes of a storage that was resized to 0"):
        ask(loss, layer.bias)


@needs_raw
def test_check_counts_them_as_unread_and_says_why_gradients_are_missing() -> None:
    layer, loss = _resharded()
    found = gradviz.check(loss, model=layer, values=True)
    assert not found
    ((what, why),) = found.skipped
    assert what == "gradients" and "resized to 0" in why
