"""Gives a replay a run of the engine to run inside, where it needs one: over a graph of one function, which is our own.

Checkpoints need it. They recompute their forward once per run of the engine and hand each tensor out once; outside the
engine they would recompute at every read and keep what was not read. And a replay that is started from a hook, while
backward runs, needs it: functions look up which gradients the current run wants, and must find that it is all.

Source: https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradviz.errors import GradientError
from gradviz.graph import Graph, Node

_QUEUES = "_DDPSinkBackward"


def recomputes(node: Node) -> bool:
    """Whether a saved tensor of this node is one that a checkpoint will recompute."""
    return "packed" in node.flags and any(slot.packing == "recompute" for slot in node.saved)


def once(graph: Graph, action: Callable[[], None]) -> None:
    """Run `action`, which calls each backward function at most once, so that every checkpoint recomputes once."""
    recomputed = any(recomputes(node) for node in graph.nodes)
    if not recomputed and torch._C._current_graph_task_id() == -1:
        action()
        return
    if recomputed and any(node.op == _QUEUES for node in graph.nodes):
        raise GradientError(
            "a checkpoint in a model with DistributedDataParallel cannot be recomputed apart from its own backward. "
            "Look at the model before DistributedDataParallel."
        )
    with torch.inference_mode(False), torch.enable_grad():
        start = torch.zeros((), requires_grad=True)
        _Inside.apply(action, start).backward()  # type: ignore[no-untyped-call]  # and not `grad`, which wants one gradient


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
