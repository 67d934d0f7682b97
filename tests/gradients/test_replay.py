"""A replay against the engine: every gradient of every node, and the order of the calls."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gradviz.gradients.live import LiveGraph, once, open_graph
from gradviz.gradients.replay import Step, replay
from tests.gradients.cases import CASES
from tests.gradients.engine import executed, gradients, same


def replayed(live: LiveGraph) -> list[Step]:
    steps: list[Step] = []
    once(live.graph, lambda: steps.extend(replay(live)))
    return steps


def starts_of(live: LiveGraph) -> list[Tensor]:
    return [start.gradient for start in live.starts]


@pytest.mark.parametrize("name", CASES)
def test_every_gradient_is_the_engines(name: str) -> None:
    torch.manual_seed(0)
    output = CASES[name]()
    live = open_graph(output)
    expected = gradients(live, [output], starts_of(live))
    found = {(step.node, k): one for step in replayed(live) for k, one in enumerate(step.incoming)}
    different = [place for place, one in expected.items() if not same(found.get(place), one)]
    assert not different, [(live.graph.nodes[node].op, k) for node, k in different]
    assert any(one is not None for one in expected.values())


@pytest.mark.parametrize("name", CASES)
def test_the_order_is_the_engines(name: str) -> None:
    torch.manual_seed(0)
    output = CASES[name]()
    live = open_graph(output)
    order = [live.nodes[step.node].name().rpartition("::")[2] for step in replayed(live)]
    assert order == executed([output], starts_of(live))


@pytest.mark.parametrize("count", range(1, 40, 3))
def test_leaves_that_are_ready_together_come_in_the_engines_order(count: int) -> None:
    leaves = [torch.ones(1, requires_grad=True) for _ in range(count)]
    joined = torch.cat(leaves) * torch.cat([leaf * i for i, leaf in enumerate(reversed(leaves))])
    seen: list[int] = []
    for i, leaf in enumerate(leaves):
        leaf.register_post_accumulate_grad_hook(lambda _, i=i: seen.append(i))  # type: ignore[misc]
    live = open_graph(joined.sum())
    number = {id(leaf): i for i, leaf in enumerate(leaves)}
    order = [step.node for step in replayed(live) if step.node in live.graph.leaf_of]
    joined.sum().backward()
    assert [number[id(live.nodes[node].variable)] for node in order] == seen


def test_several_outputs() -> None:
    x = torch.randn(3, requires_grad=True)
    middle = x.exp()
    outputs = [middle.sum(), (middle * 2).sum(), middle]
    live = open_graph(outputs)
    expected = gradients(live, outputs, starts_of(live))
    found = {(step.node, k): one for step in replayed(live) for k, one in enumerate(step.incoming)}
    assert all(same(found.get(place), one) for place, one in expected.items())
    names = [live.nodes[step.node].name().rpartition("::")[2] for step in replayed(live)]
    assert names == executed(outputs, starts_of(live))
