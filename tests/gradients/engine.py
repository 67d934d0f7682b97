"""What the engine itself says: the gradient of every output of every node, and the order in which functions ran."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from gradviz.gradients.live import LiveGraph

_PREFIX = "autograd::engine::evaluate_function: "


def gradients(
    live: LiveGraph, outputs: Sequence[Tensor], starts: Sequence[Tensor]
) -> dict[tuple[int, int], Tensor | None]:
    """By node id and output, from one run of `torch.autograd.grad`."""
    places = [(i, k) for i, node in enumerate(live.nodes) for k in range(len(node._input_metadata))]
    edges = [GradientEdge(live.nodes[i], k) for i, k in places]
    found = torch.autograd.grad(outputs, edges, starts, retain_graph=True, allow_unused=True)
    return dict(zip(places, found))


def executed(outputs: Sequence[Tensor], starts: Sequence[Tensor]) -> list[str]:
    """Names of the functions that backward runs, in order. Fills `.grad` of the leaves."""
    with torch.autograd.profiler.profile() as profile:
        torch.autograd.backward(outputs, starts, retain_graph=True)
    events: list[Any] = sorted(profile.function_events or [], key=lambda event: event.time_range.start)
    names = [event.name.removeprefix(_PREFIX) for event in events if event.name.startswith(_PREFIX)]
    return [name.rpartition("::")[2] for name in names if not name.endswith("GraphRoot")]


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Equal in every bit, where no gradient and zeros are the same thing."""
    if one is None or other is None:
        left = one if one is not None else other
        return left is None or not torch.count_nonzero(_plain(left))
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(torch.equal(torch.nan_to_num(_plain(one)), torch.nan_to_num(_plain(other))))


def _plain(tensor: Tensor) -> Tensor:
    dense = tensor.to_dense()
    return dense.to(torch.complex64) if dense.dtype == torch.complex32 else dense
