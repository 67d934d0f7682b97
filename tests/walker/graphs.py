"""Small autograd graphs that several tests walk, and independent ways to look at them."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest
import torch

from gradviz.graph import Graph, Node
from gradviz.walker import private

needs_columns = pytest.mark.skipif(sys.version_info < (3, 11), reason="this Python tells lines, and no columns")
needs_raw = pytest.mark.skipif(not private.HAS_RAW_DATA, reason="this torch cannot show saved tensors without hooks")
needs_metadata = pytest.mark.skipif(not private.HAS_METADATA, reason="this torch does not tell what a node made")


def leaf(*shape: int, **options: Any) -> torch.Tensor:
    return torch.ones(shape or (3,), requires_grad=True, **options)


def chain(depth: int) -> torch.Tensor:
    """Multiplications on top of one leaf."""
    y = leaf()
    for _ in range(depth):
        y = y * 1.0001
    return y


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def only(graph: Graph, op: str) -> Node:
    """The one node of this type."""
    (found,) = [node for node in graph.nodes if node.op == op]
    return found


def triples(graph: Graph) -> list[tuple[str, str, int, int]]:
    """Every edge as (consumer, producer, output, position), with types instead of ids."""
    names = ops(graph)
    return [(names[edge.consumer], names[edge.producer], edge.output, edge.position) for edge in graph.edges]


def executed(roots: list[torch.Tensor]) -> Counter[str]:
    """Names of the nodes that the engine runs in a backward pass from `roots`, as the profiler saw them."""
    gradients = [torch.ones_like(root) for root in roots]
    with torch.autograd.profiler.profile() as profile:
        torch.autograd.backward(roots, gradients, retain_graph=True)
    before = "autograd::engine::evaluate_function: "
    names = (event.name.removeprefix(before) for event in profile.function_events if event.name.startswith(before))
    return Counter(name for name in names if not name.endswith("GraphRoot"))
