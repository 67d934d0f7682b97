"""What may be called to look at gradients: functions that must not be, and the run of the engine that a replay may need.

Calling some backward functions would change something of the user's: write a `.grad`, destroy what was saved, or talk to other
processes; or it would end the process, because the memory that it reads has been given back.

Checkpoints recompute their forward once per run of the engine and hand each tensor out once; outside the engine they would
recompute at every read and keep what was not read. And a replay that is started from a hook, while backward runs, needs a run of
its own: functions look up which gradients the current run wants, and must find that it is all. It is a run over a graph of one
function, which is ours.

Source: https://docs.pytorch.org/docs/stable/checkpoint.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from gradviz.errors import GradientError
from gradviz.graph import Graph, Node as Record
from gradviz.walker import private
from gradviz.walker.private import Node
from gradviz.walker.values import outgrown, tensor_in

_QUEUES = "_DDPSinkBackward"
_BY_NAME = {
    "CheckpointFunctionBackward": (
        "torch.utils.checkpoint with use_reentrant=True runs backward inside its own node and writes the .grad of the parameters "
        "in it. Use use_reentrant=False to look at gradients"
    ),
    "RegisterPostBackwardFunctionBackward": (
        "fully_shard reduces and frees gradients of all processes in it. Look at the model before fully_shard"
    ),
}
_PASSES_ON = frozenset(
    {"torch.nn.modules._functions.BackwardHookFunction"}
)  # custom Functions that only hand gradients on
_CLEARS = "clear_saved_tensors_on_access"


def custom_functions(graph: Graph) -> tuple[int, ...]:
    """Ids of the nodes whose backward is Python code that may keep state: calling it once more may change the user's run.

    Those of compiled functions are none of them: they are never called, since that would compile their backward.
    """
    return tuple(
        node.id
        for node in graph.nodes
        if {"custom", "in_compiled", "compiled"}.intersection(node.flags) == {"custom"}
        and (node.function is None or node.function.name not in _PASSES_ON)
    )


def refuse_blind_calls() -> None:
    """Raise GradientError where torch does not tell which saved tensors are packed: a call could run hooks and recompute."""
    if not private.HAS_RAW_DATA:
        raise GradientError(
            f"torch {torch.__version__} does not tell which saved tensors a hook would have to unpack, so no backward "
            "function is called: gradients can be looked at from torch 2.10 on"
        )


def refuse(graph: Graph, live: Iterable[tuple[int, Node]]) -> None:
    """Raise GradientError when one of these live nodes, given with their ids, must not be called."""
    for node, function in live:
        record = graph.nodes[node]
        reason = _BY_NAME.get(record.op, "")
        if "custom" in record.flags and getattr(getattr(function, "_forward_cls", None), _CLEARS, False):
            reason = f"it sets {_CLEARS}, so its saved tensors can be read only once, by your own backward()"
        reason = reason or _outgrown(record, function)
        if reason:
            raise GradientError(f"{record.op} cannot be called just to look at gradients: {reason}.")


def _outgrown(record: Record, function: Node) -> str:
    for slot in record.saved:
        if slot.state in ("live", "modified"):
            tensor = tensor_in(function, slot.slot)
            problem = outgrown(tensor) if tensor is not None else ""
            if problem:
                return (
                    f"what it saved as {slot.slot} {problem}, as fully_shard does. Look at the model before fully_shard"
                )
    return ""


# -- a run of the engine -------------------------------------------------------------------------------------------------


def recomputes(node: Record) -> bool:
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
