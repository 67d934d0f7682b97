"""Which backward functions must not be called to look at gradients, and why.

Calling one of these would change something of the user's: write a `.grad`, destroy what was saved, or talk to other processes;
or it would end the process, because the memory that it reads has been given back.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from gradviz.errors import GradientError
from gradviz.graph import Graph
from gradviz.graph import Node as Record
from gradviz.walker import private
from gradviz.walker.private import Node
from gradviz.walker.values import outgrown, tensor_in

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
