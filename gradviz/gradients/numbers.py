"""The numbers of small tensors, as plain data for a page: what ops computed, as far as a saved slot or a leaf still has it."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradviz.gradients.live import LiveGraph
from gradviz.gradients.values import tensor_in, why_unreadable
from gradviz.walker.isolation import isolated
from gradviz.walker.tensors import grad_fn_of

MOST = 64
"""Elements of a tensor whose numbers are kept."""

Numbers = tuple[float, ...]


def numbers(tensor: torch.Tensor | None) -> Numbers:
    """The elements of a small dense tensor of real numbers, to 6 digits; nothing of any other.

    >>> numbers(torch.tensor([[1.0, 0.1], [2.0, 1 / 3]])), numbers(torch.zeros(65))
    ((1.0, 0.1, 2.0, 0.333333), ())
    """
    if tensor is None or tensor.layout != torch.strided or tensor.is_nested or not 0 < tensor.numel() <= MOST:
        return ()
    if tensor.dtype.is_complex or why_unreadable(tensor):
        return ()
    with isolated():
        return tuple(float(f"{entry:.6g}") for entry in tensor.detach().flatten().double().tolist())


def computed(live: LiveGraph) -> dict[int, Numbers]:
    """By node, what it computed; by AccumulateGrad, its leaf. Of what nobody saved there is nothing."""
    found: dict[int, Numbers] = {}
    for node, tensor in _there(live):
        if node not in found and (read := numbers(tensor)):
            found[node] = read
    return found


def _there(live: LiveGraph) -> Iterator[tuple[int, torch.Tensor]]:
    place = {function: i for i, function in enumerate(live.nodes) if i not in live.steps}
    for leaf in live.graph.leaves:
        variable = getattr(live.nodes[leaf.node], "variable", None)
        if isinstance(variable, torch.Tensor):
            yield leaf.node, variable
    for node in live.graph.nodes:
        for slot in node.saved if node.id not in live.steps else ():
            tensor = tensor_in(live.nodes[node.id], slot.slot) if slot.state == "live" else None
            if tensor is None:
                continue
            function = grad_fn_of(tensor)
            maker = slot.leaf if function is None else place.get(function)
            if slot.slot in ("result", "output"):
                maker = node.id
            if maker is not None and not slot.view:
                yield maker, tensor
