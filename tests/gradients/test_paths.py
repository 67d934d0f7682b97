"""The chain rule path by path: counts, contributions that add up to the gradient, and graphs with too many paths."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import gradviz
from gradviz.errors import GradientError
from gradviz.gradients.paths import GradientPath, Paths, ways_to
from gradviz.graph import Graph
from tests.builders import diamond, random_dag, squared
from tests.gradients.cases import CASES, TwoOutputs


def example() -> tuple[Tensor, Tensor, Tensor]:
    x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    return (x + w) * (w + 1), x, w


def test_the_example_of_every_textbook() -> None:
    x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    a, b = x + w, w + 1
    y = a * b
    found = gradviz.paths(y, w)
    assert found.count == 2 and found.complete and float(found.total) == 5
    names = {tuple(found.graph.nodes[node].names for node in path.nodes): path for path in found.paths}
    by_a, by_b = names[(("y",), ("a",), ("w",))], names[(("y",), ("b",), ("w",))]
    assert (float(by_a.contribution), float(by_b.contribution)) == (2, 3)
    assert [step.factor for step in by_a.steps] == [2, 1]
    assert [step.factor for step in by_b.steps] == [3, 1]
    assert found.paths == (by_b, by_a)
    assert w.grad is None and x.grad is None
    assert str(found).splitlines()[3:6] == [
        "           3  y --×3--> b --×1--> w",
        "           2  y --×2--> a --×1--> w",
        "           5  the gradient of y with respect to w",
    ]


def test_paths_to_an_intermediate_result_and_to_itself() -> None:
    x = torch.tensor(2.0, requires_grad=True)
    h = x * 3
    y = h * h + h
    assert gradviz.paths(y, h).count == 3
    assert float(gradviz.paths(y, h).total) == 13
    itself = gradviz.paths(y, y)
    assert itself.count == 1 and float(itself.total) == 1 and itself.paths[0].steps == ()


def test_an_output_of_many_outputs_is_told_apart() -> None:
    x = torch.arange(4.0, requires_grad=True)
    first, second = (x * 2).split(2)
    y = (first * 3).sum()
    assert gradviz.paths(y, first).count == 1
    with pytest.raises(GradientError, match="no path"):
        gradviz.paths(y, second)


CONTRIBUTIONS = [
    name
    for name in CASES
    if name not in ("checkpointed", "not_used", "custom_two_outputs", "custom_in_double_backward")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTRIBUTIONS)
def test_contributions_add_up_to_the_gradient(name: str) -> None:
    torch.manual_seed(0)
    output = CASES[name]()
    leaf = _deepest_leaf(output)
    found = gradviz.paths(output, leaf, run_custom=True)
    (expected,) = torch.autograd.grad(output, leaf, retain_graph=True)
    assert torch.equal(found.total.to_dense(), expected.to_dense())
    if not found.complete:
        assert found.count > 1000 or name == "lstm_unrolled"
        return
    assert len(found.paths) == found.count
    total = sum((path.contribution.to_dense() for path in found.paths), torch.zeros_like(expected.to_dense()))
    assert torch.allclose(total, expected.to_dense(), rtol=1e-4, atol=1e-5)
    assert all(_is_a_path(found, path) for path in found.paths)


def _is_a_path(found: Paths, path: GradientPath) -> bool:
    ends = path.nodes[0] == found.graph.roots[0].node and path.nodes[-1] == found.target[0]
    edges = [(step.edge.consumer, step.edge.producer) for step in path.steps]
    return ends and edges == list(pairwise(path.nodes)) and all(step.edge in found.graph.edges for step in path.steps)


def _deepest_leaf(output: Tensor) -> Tensor:
    """The leaf that a breadth first search finds last."""
    queue, seen = [output.grad_fn], {output.grad_fn}
    last = None
    for node in queue:
        assert node is not None
        last = getattr(node, "variable", last)
        for child, _ in node.next_functions:
            if child is not None and child not in seen:
                seen.add(child)
                queue.append(child)
    assert isinstance(last, Tensor)
    return last


def test_a_path_without_a_gradient_counts_and_is_left_out() -> None:
    x = torch.ones(2, requires_grad=True)
    first, second = TwoOutputs.apply(x)
    found = gradviz.paths((first + second).sum(), x, run_custom=True)
    assert found.count == 2 and len(found.paths) == 2
    total = sum((path.contribution for path in found.paths), torch.zeros(2))
    assert torch.allclose(total, found.total)


@pytest.mark.slow
def test_two_to_the_hundredth_paths_are_counted_and_the_largest_followed() -> None:
    x = torch.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(100):
        y = y * 0.5 + y * 0.25
    found = gradviz.paths(y, x)
    assert found.count == 2**100
    assert not found.complete and 0 < len(found.paths) <= 100
    assert float(found.paths[0].contribution) == 0.5**100
    assert float(found.total) == pytest.approx(0.75**100)
    text = str(found)
    assert f"{2**100:,} paths" in text and "others exist" in text and "more steps" in text


@pytest.mark.slow
def test_a_deep_graph_with_one_path_is_followed_to_its_end() -> None:
    x = torch.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(5_000):
        y = y * 1.0
    found = gradviz.paths(y, x)
    assert found.count == 1 and found.complete and len(found.paths[0].steps) == 5_000


def test_the_limit_is_where_following_all_ends() -> None:
    x = torch.tensor(1.0, requires_grad=True)
    y = x
    for _ in range(4):
        y = y * 2 + y * 3
    assert gradviz.paths(y, x, limit=16).complete
    assert not gradviz.paths(y, x, limit=15).complete
    assert gradviz.paths(y, x, limit=1).paths[0].contribution == 81


def test_retained_gradients_are_not_touched() -> None:
    y, x, w = example()
    y.retain_grad()
    y.backward(retain_graph=True)
    before = [None if t.grad is None else t.grad.clone() for t in (y, x, w)]
    gradviz.paths(y, w)
    assert [t.grad for t in (y, x, w)] == before
    y.backward()


def _checkpointed(x: Tensor) -> Tensor:
    return checkpoint(nn.Sequential(nn.Linear(2, 2), nn.Tanh()), x, use_reentrant=False).sum()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda x: (x * 2).detach() * torch.ones(2, requires_grad=True), "does not depend on it"),
        (_checkpointed, "checkpoint"),
        (lambda x: [x * 2, x * 3], "several"),
    ],
)
def test_refused_with_the_reason(make: Callable[[Tensor], Tensor], told: str) -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(GradientError, match=told):
        gradviz.paths(make(x), x)


def test_a_target_without_a_gradient() -> None:
    x, data = torch.ones(2, requires_grad=True), torch.ones(2)
    with pytest.raises(GradientError, match="does not require grad"):
        gradviz.paths(x * data, data)


# -- counting, against following every path ----------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [diamond(), squared(), *(random_dag(seed, 14) for seed in range(20))])
def test_counts_are_those_of_following_every_path(graph: Graph) -> None:
    for target in {(edge.producer, edge.output) for edge in graph.edges}:
        ways = ways_to(graph, target)
        for root in range(len(graph.nodes)):
            count = 0
            stack = [root]
            while stack:
                node = stack.pop()
                for edge in graph.inputs(node):
                    count += (edge.producer, edge.output) == target
                    stack.append(edge.producer)
            assert ways.get(root, 0) == count
