"""What a recording gives after a forward failed."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

import gradviz


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 5), nn.ReLU())
        self.second = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).tanh())  # type: ignore[no-any-return]


class Mismatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(2, 3), nn.Linear(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left = self.left(x)
        right = self.right(x)
        return left + right  # type: ignore[no-any-return]


def test_module_that_fails() -> None:
    net = Net()
    try:
        with gradviz.record() as recording:
            net(torch.ones(2, 4))
    except RuntimeError as error:
        last = recording.last_outputs(error)
    assert last.module == "net.second"
    assert last.source is not None and last.source.text.startswith("return self.second(self.first(x).tanh())")
    assert last.error.startswith("RuntimeError: ") and "mat1 and mat2 shapes cannot be multiplied" in last.error
    assert next(iter(last.outputs)) == "input of net.second"
    graph = recording.graph(last.outputs, model=net)
    assert [node.op for node in graph.nodes if node.sequence is not None][:2] == ["TanhBackward0", "ReluBackward0"]
    assert {scope.path for scope in graph.scopes} == {"net", "net.first", "net.first.0", "net.first.1"}


def test_operation_that_fails() -> None:
    net = Mismatch()
    try:
        with gradviz.record() as recording:
            net(torch.ones(2, 2))
    except RuntimeError as error:
        last = recording.last_outputs(error)
    assert last.module == "net"
    assert set(last.outputs) == {"left", "right"}
    assert last.source is not None and last.source.text.startswith("return left + right")


def test_exception_caught_inside() -> None:
    net = Net()
    with gradviz.record() as recording:
        try:
            net(torch.ones(2, 4))
        except RuntimeError as error:
            last = recording.last_outputs(error)
    assert (last.module, next(iter(last.outputs))) == ("net.second", "input of net.second")


def test_only_the_last_failure_counts() -> None:
    net = Net()
    with pytest.raises(ZeroDivisionError) as failed, gradviz.record() as recording:
        with pytest.raises(RuntimeError):
            net(torch.ones(2, 4))
        1 / 0  # noqa: B018
    last = recording.last_outputs(failed.value)
    assert last.module is None
    assert last.source is not None and last.source.text.startswith("1 / 0")


@pytest.mark.slow
def test_no_memory_is_kept() -> None:
    net, kept = Net(), []
    net.first.register_forward_hook(lambda module, arguments, output: kept.append(weakref.ref(output)))
    try:
        with gradviz.record() as recording:
            net(torch.ones(2, 4))
    except RuntimeError as error:
        assert recording.last_outputs(error).outputs
    gc.collect()
    assert kept[0]() is None
