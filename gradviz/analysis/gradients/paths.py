"""The chain rule path by path: every way from an output back to a tensor, and what each contributes to the gradient.

The contribution of a path is a chain of vector-Jacobian products along it; the contributions of all paths add up to the
gradient. There may be astronomically many paths: they are counted exactly, and only the largest are followed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch

from gradviz.analysis.gradients.live import Opened, open_graph
from gradviz.analysis.gradients.replay import Live, call, fitted, replay
from gradviz.capture.naming import Namespace
from gradviz.errors import GradientError
from gradviz.graph import Edge, Graph

LIMIT = 1000
"""Up to this many paths are all followed, one by one."""

BEAM = 20
"""Of more paths, how many are followed on from each node: those with the largest gradient there."""


class PathStep(NamedTuple):
    """One step along a path: the edge taken, and how the gradient's size changed. `factor` is exact for scalars."""

    edge: Edge
    norm: float
    factor: float | None


class GradientPath(NamedTuple):
    """One way from the root to the target: node ids, steps, and its share of the gradient (a detached tensor)."""

    nodes: tuple[int, ...]
    steps: tuple[PathStep, ...]
    contribution: torch.Tensor


class Paths(NamedTuple):
    """All paths from `root` to `target`.

    `count` is exact. `total` is the gradient, from one pass over the graph. `paths` are sorted by size, largest first;
    when `complete` is False they are those found by following the largest gradients, and others exist. A path on which some
    function gives no gradient counts, but is not in `paths`.
    """

    graph: Graph
    count: int  # type: ignore[assignment]  # hides tuple.count
    total: torch.Tensor
    paths: tuple[GradientPath, ...]
    complete: bool
    target: tuple[str, ...]


def find_paths(
    output: torch.Tensor,
    target: torch.Tensor,
    *,
    limit: int = LIMIT,
    model: torch.nn.Module | None = None,
    variables: tuple[Namespace, ...] = (),
) -> Paths:
    """Every path from `output` to `target`. Raises GradientError when there is none, and what `open_graph` raises.

    An output that is not a scalar stands for its sum.
    """
    opened = open_graph(output, model=model, variables=variables)
    graph = opened.live.graph
    at = _target(opened.live, target)
    ways = _count(graph, *at)
    (root, root_output, _), *_ = opened.starts
    total_count = ways.get(root, 0) + ((root, root_output) == at)
    if not total_count:
        raise GradientError("no path leads from the output to this tensor: its gradient is None")
    gradient = _gradient(opened, at, ways)
    every = total_count <= limit
    found = sorted(_follow(opened, at, ways, None if every else BEAM), key=lambda path: -_size(path.contribution))
    return Paths(graph, total_count, gradient, tuple(found), every, graph.nodes[at[0]].names)


def _target(live: Live, tensor: torch.Tensor) -> tuple[int, int]:
    """Node and output of the tensor in the graph."""
    if tensor.grad_fn is not None:
        for i, node in enumerate(live.nodes):
            if node is tensor.grad_fn:
                return i, tensor.output_nr
    for leaf in live.graph.leaves:
        if getattr(live.nodes[leaf.node], "variable", None) is tensor:
            return leaf.node, 0
    why = "it does not require grad" if not tensor.requires_grad else "the output does not depend on it"
    raise GradientError(f"no path leads from the output to this tensor: {why}")


def _count(graph: Graph, target: int, output: int) -> dict[int, int]:
    """How many paths lead from each node to the target; only nodes with at least one."""
    ways: dict[int, int] = {}
    for node in reversed(graph.order):
        number = 0
        for edge in graph.inputs(node):
            if edge.producer == target and edge.output == output:
                number += 1
            number += ways.get(edge.producer, 0)
        if number:
            ways[node] = number
    return ways


def _gradient(opened: Opened, at: tuple[int, int], ways: dict[int, int]) -> torch.Tensor:
    for step in replay(opened.live, opened.starts, {*ways, at[0]}):
        if step.node == at[0] and len(step.incoming) > at[1] and (arrived := step.incoming[at[1]]) is not None:
            return arrived
    raise GradientError("no gradient reaches this tensor: on every path some function gives none")


class _Open(NamedTuple):
    """A path followed as far as one node: the gradient that arrived at its output `output`, and the path before it."""

    node: int
    output: int
    gradient: torch.Tensor
    step: PathStep | None
    before: _Open | None

    def closed(self) -> GradientPath:
        """The whole path, root first."""
        nodes, steps, at = [], [], self
        while at is not None:
            nodes.append(at.node)
            if at.step is not None:
                steps.append(at.step)
            at = at.before  # type: ignore[assignment]  # None ends the loop
        return GradientPath(tuple(reversed(nodes)), tuple(reversed(steps)), self.gradient)


def _follow(opened: Opened, at: tuple[int, int], ways: dict[int, int], most: int | None) -> list[GradientPath]:
    """Paths to the target, node by node from the root; with `most`, only that many of the largest go on from each node."""
    graph = opened.live.graph
    (root, output, gradient), *_ = opened.starts
    arrived: dict[int, list[_Open]] = {root: [_Open(root, output, gradient, None, None)]}
    found: list[GradientPath] = []
    for node in graph.order:
        here = sorted(arrived.pop(node, []), key=lambda path: -_size(path.gradient))[:most]
        found.extend(path.closed() for path in here if (node, path.output) == at)
        if node in ways:
            for path in here:
                for further in _onward(opened.live, path, at, ways):
                    arrived.setdefault(further.node, []).append(further)
    return found


def _onward(live: Live, path: _Open, at: tuple[int, int], ways: dict[int, int]) -> Iterator[_Open]:
    """The path, one edge longer, along every edge that leads to the target and that a gradient takes."""
    function = live.nodes[path.node]
    incoming: list[torch.Tensor | None] = [None] * len(function._input_metadata)
    incoming[path.output] = path.gradient
    outgoing = call(live, path.node, incoming)
    for edge in live.graph.inputs(path.node):
        leaving = outgoing[edge.position]
        if leaving is not None and (edge.producer in ways or (edge.producer, edge.output) == at):
            leaving = fitted(live.nodes[edge.producer], edge.output, leaving)
            yield _Open(edge.producer, edge.output, leaving, _step(edge, path.gradient, leaving), path)


def _step(edge: Edge, before: torch.Tensor, after: torch.Tensor) -> PathStep:
    factor = None
    if before.numel() == after.numel() == 1 and float(before) != 0:
        factor = float(after) / float(before)
    return PathStep(edge, _size(after), factor)


def _size(gradient: torch.Tensor) -> float:
    dense = gradient.coalesce()._values() if gradient.is_sparse else gradient
    return float(torch.linalg.vector_norm(dense.to(torch.float64) if not dense.is_complex() else dense))
