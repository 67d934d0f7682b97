"""Finds values that are saved twice: a tensor, and a copy or cast of it that some other node saved.

Only nodes that copy or cast are looked at, and only what their neighbours saved; no number is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from gradviz.capture.description import Walked
from gradviz.evidence import Copy

_COPIES = ("CloneBackward0", "ToCopyBackward0", "CopyBackwards")


def copies(walked: Walked) -> Iterator[Copy]:
    """Every copying node whose input and output are both saved by nodes of the graph."""
    graph = walked.graph
    for node in graph.nodes:
        if node.op not in _COPIES:
            continue
        (edge,) = graph.inputs(node.id) or (None,)
        if edge is None:
            continue
        second = _saved_result(walked, node.id, edge=None)
        first = _saved_result(walked, edge.producer, edge=edge)
        if first is not None and second is not None and first[0] != second[0]:
            yield Copy(node.id, first[0], second[0], first[1], second[1])


def _saved_result(walked: Walked, maker: int, edge: Any) -> tuple[int, int] | None:
    """The storage in which what `maker` made is saved, and the node that saved it; for a leaf, the leaf's own storage."""
    graph = walked.graph
    leaf = graph.leaf_of.get(maker)
    if leaf is not None:
        return (leaf.storage, maker) if leaf.storage is not None else None
    output = edge.output if edge is not None else 0
    own = _matching(walked, maker, None, 0)
    if own is not None:
        return own, maker
    for use in graph.consumers(maker):
        found = _matching(walked, use.consumer, maker, output)
        if found is not None:
            return found, use.consumer
    return None


def _matching(walked: Walked, saver: int, maker: int | None, output: int) -> int | None:
    """The storage of a slot of `saver` that holds output `output` of `maker`, or its own result when `maker` is None."""
    record, live = walked.graph.nodes[saver], walked.nodes[saver]
    for slot in record.saved:
        if slot.state != "live" or slot.storage is None or slot.leaf is not None:
            continue
        if maker is None:
            if slot.slot in ("result", "output", "out"):
                return slot.storage
            continue
        tensor = _tensor(live, slot.slot)
        if tensor is not None and tensor.grad_fn is walked.nodes[maker] and tensor.output_nr == output:
            return slot.storage
    return None


def _tensor(node: Any, slot: str) -> torch.Tensor | None:
    """What an unhooked single slot holds, or None. A view whose base changed is left alone: asking it makes a node."""
    raw = getattr(node, f"_raw_saved_{slot}", None)
    if raw is None or isinstance(raw, tuple) or raw.unpack_hook is not None:
        return None
    tensor = raw.data
    if not isinstance(tensor, torch.Tensor) or (tensor._is_view() and tensor._version > 0):
        return None
    return tensor
