"""A checkpointed block keeps its name, and so do parameters of a model that no variable leads to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import gradviz


class Block(torch.nn.Linear):
    def bound(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self(x)
        return made


class Layer(torch.nn.Linear):
    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return self(x).exp()


one, pair = Layer(2, 2), torch.nn.Sequential(OrderedDict(first=torch.nn.Linear(2, 2), last=torch.nn.Tanh()))


class Net(torch.nn.Module):
    def __init__(self, wrapped: Callable[[Net, Block], Any], reentrant: bool) -> None:
        super().__init__()
        self.first, self.blocks = torch.nn.Linear(2, 2), torch.nn.ModuleList([Block(2, 2), Block(2, 2)])
        self.wrapped, self.reentrant = wrapped, reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(self.wrapped(self, block), x, use_reentrant=self.reentrant)  # type: ignore[arg-type]
        return x.sum()


def closing(net: Net, block: Block) -> Any:
    return lambda x: block(x) if net.training else x


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(
    "wrapped",
    [
        lambda net, block: block,
        lambda net, block: block.bound,
        lambda net, block: partial(block.__call__),
        lambda net, block: lambda x: block(x),
        lambda net, block: lambda x, block=block: block(x),
        closing,
    ],
)
def test_a_checkpointed_block_keeps_its_name(wrapped: Callable[[Net, Block], Any], reentrant: bool) -> None:
    net = Net(wrapped, reentrant)
    with gradviz.record() as recording:
        loss = net(torch.ones(2))
    graph = recording.graph(loss)
    op = "CheckpointFunctionBackward" if reentrant else "ViewBackward0"
    inside = [graph.scopes[node.scope] for node in graph.nodes if node.op == op and node.scope is not None]
    assert {scope.path for scope in inside} >= {"net.blocks.0", "net.blocks.1"}
    parents = {graph.scopes[scope.parent].path for scope in inside if scope.parent is not None}
    assert "net" in parents


def test_a_checkpoint_that_closes_over_several_modules_is_named_after_none() -> None:
    net = Net(lambda net, block: lambda x: net.blocks[1](block(x)) + net.first(x), True)
    other, both = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    x = torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        loss = checkpoint(lambda x: other(x) + both(x), x, use_reentrant=True).sum() + net(x)  # type: ignore[union-attr]
    graph = recording.graph(loss)
    paths = [
        None if node.scope is None else graph.scopes[node.scope].path for node in graph.nodes if "Check" in node.op
    ]
    assert None in paths and "other" not in paths and "both" not in paths


@pytest.mark.parametrize(
    "function", [lambda x: one(x).relu(), lambda x: pair[0](x), lambda x: pair.first(x), one.extra]
)
def test_a_checkpoint_of_more_than_one_modules_call_has_no_module(function: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    with gradviz.record() as recording:
        loss = (pair(x) + one(x) + checkpoint(function, x, use_reentrant=True)).sum()  # type: ignore[operator]
    (hidden,) = [node for node in recording.graph(loss).nodes if "Check" in node.op]
    assert hidden.scope is None


def test_parameters_of_a_model_that_is_gone_have_the_names_it_gave_them() -> None:
    def train() -> torch.Tensor:
        made: torch.Tensor = torch.nn.Sequential(torch.nn.Linear(2, 1))(torch.ones(2)).sum()
        return made

    with gradviz.record() as recording:
        loss = train()
    assert {leaf.names for leaf in recording.graph(loss).leaves} == {("0.weight",), ("0.bias",)}
    assert {leaf.names for leaf in gradviz.walk(loss).leaves} == {()}
