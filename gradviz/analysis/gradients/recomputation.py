"""Checkpoints under a replay: what they recompute is recomputed once, as in a real backward, and not once per saved tensor.

A checkpoint recomputes its forward once per run of the engine and hands each tensor out once. Outside the engine it would
recompute at every read and keep what was not read. So the replay of a graph with checkpoints runs inside a run of
the engine over a graph of a single function, which touches nothing of the user's.

Source: https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradviz.errors import GradientError
from gradviz.graph import Graph, Node

_HOLDER = "torch.utils.checkpoint."
_QUEUES = "_DDPSinkBackward"


def recomputes(node: Node) -> bool:
    """Whether a saved tensor of this node is one that a checkpoint will recompute."""
    return "packed" in node.flags and any(one.state == "packed" and _HOLDER in one.note for one in node.saved)


def once(graph: Graph, action: Callable[[], None]) -> None:
    """Run `action`, which calls each backward function at most once, so that every checkpoint recomputes once."""
    if not any(recomputes(node) for node in graph.nodes):
        action()
        return
    if any(node.op == _QUEUES for node in graph.nodes):
        raise GradientError(
            "a checkpoint in a model with DistributedDataParallel cannot be recomputed apart from its own backward. "
            "Look at the model before DistributedDataParallel."
        )
    with torch.inference_mode(False), torch.enable_grad():
        start = torch.zeros((), requires_grad=True)
        torch.autograd.grad(_Inside.apply(action, start), start)  # type: ignore[no-untyped-call]


class _Inside(torch.autograd.Function):
    """Does nothing forward; backward runs an action inside the engine."""

    @staticmethod
    def forward(ctx: Any, action: Callable[[], None], start: torch.Tensor) -> torch.Tensor:
        ctx.action = action
        return start.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        action, ctx.action = ctx.action, None  # the action must not stay alive with this node
        action()
        return None, *gradients
