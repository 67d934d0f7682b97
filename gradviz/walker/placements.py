"""How tensors of `torch.distributed.tensor` lie on a mesh of processes, and which collective a change of that implies.

Reads what DTensor keeps on its tensors and on the nodes of its functions; where a torch keeps it otherwise, nothing is said.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import torch

from gradviz.walker.private import Node

PLACEMENTS, COLLECTIVE, BYTES = "placements", "collective", "collective bytes"
"""Attributes of a node: how its tensor lies on the mesh, and what moving it takes, in bytes of one process's tensor."""
_MOVES = "RedistributeBackward"
_TELLS = ("_ToTorchTensorBackward", _MOVES)


def placements(
    nodes: Sequence[Node],
    ops: Sequence[str],
    ends: Iterator[tuple[int, int]],
    variables: Mapping[int, torch.Tensor],
    shards: Mapping[int, torch.Tensor],
) -> dict[int, dict[str, Any]]:
    """Attributes to add, by node. `ends` are consumer and producer of every edge; `variables` the leaves by node.

    `shards` are what this process holds of leaves that were gathered, by their identity.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return {}
    found: dict[int, dict[str, Any]] = {}
    for i, variable in variables.items():
        shard = shards.get(id(variable))
        spec = getattr(variable if shard is None else shard, "_spec", None)
        if spec is not None:
            with suppress(AttributeError, TypeError):
                found[i] = {PLACEMENTS: _words(spec)}
                if shard is not None:
                    found[i] |= {COLLECTIVE: "all_gather", BYTES: variable.numel() * variable.itemsize}
    moves = {i for i, op in enumerate(ops) if op == _MOVES}
    if not moves:
        return found
    target = {producer: consumer for consumer, producer in ends if producer in moves and ops[consumer] in _TELLS}
    for i in moves:
        with suppress(AttributeError, TypeError):
            before = nodes[i].current_spec
            after = _spec(nodes[target[i]]) if i in target else None
            moved = after is not None and _placed(after) != _placed(before)
            found[i] = {PLACEMENTS: f"from {_words(before)} to {_placed(after)}" if moved else _words(before)}
            if moved:
                found[i] |= _move(before, after)
    return found


def _spec(node: Node) -> Any:
    return getattr(node, "dtensor_spec", None) or getattr(node, "current_spec", None)


def _placed(spec: Any) -> str:
    return ", ".join(str(one) for one in spec.placements)


def _words(spec: Any) -> str:
    """`S(0) on tp=2`: placements, then the dimensions of the mesh."""
    mesh = spec.mesh
    names = mesh.mesh_dim_names or tuple(f"dim{i}" for i in range(len(mesh.shape)))
    return f"{_placed(spec)} on {', '.join(f'{name}={size}' for name, size in zip(names, mesh.shape))}"


def _move(before: Any, after: Any) -> dict[str, Any]:
    """The collectives that lead from one placement to the other, and the bytes of the larger of both local tensors."""
    steps = [_collective(one, other) for one, other in zip(before.placements, after.placements)]
    said = [step for step in steps if step]
    if not said:
        return {}
    meta = before.tensor_meta
    whole = prod(meta.shape) * meta.dtype.itemsize
    return {COLLECTIVE: ", ".join(said), BYTES: max(whole // _shards(before), whole // _shards(after))}


def _shards(spec: Any) -> int:
    """Parts that the tensor is cut into."""
    return prod(size for size, one in zip(spec.mesh.shape, spec.placements) if one.is_shard())


def _collective(before: Any, after: Any) -> str:
    if before == after:
        return ""
    if before.is_partial():
        return "all_reduce" if after.is_replicate() else "reduce_scatter"
    if before.is_shard():
        return "all_gather" if after.is_replicate() else "all_to_all" if after.is_shard() else ""
    return ""  # a part of what every process has
