"""The numbers of small tensors, as plain data to be drawn: what ops computed, from saved slots, leaves, or noted as they ran."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

import torch

from gradviz.cuts.torch_calls import PLAIN, Given, TorchCalls
from gradviz.gradients.live import LiveGraph
from gradviz.gradients.values import tensor_in, why_unreadable
from gradviz.graph import Node
from gradviz.recording.session import running
from gradviz.walker.isolation import isolated
from gradviz.walker.tensors import grad_fn_of

MOST, KEPT = 64, 2000
"""Elements of a tensor whose numbers are kept, and how many functions: the first ones of backward, the last ones of forward."""

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


class ComputedNumbers:
    """What the calls of torch in this thread compute, while the script runs: of the latest small tensors that have a graph."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[str, tuple[int, ...], Numbers]] = {}  # by sequence number, with op and shape
        self._calls = TorchCalls(self._seen, stepped=lambda: None)

    def watching(self) -> AbstractContextManager[None]:
        """Inside, they are noted."""
        return self._calls.watching()

    def of(self, node: Node) -> Numbers:
        """What a node computed; nothing where several threads ran, each of which counts for itself."""
        session = running()
        known = self._of.get(node.sequence) if node.sequence is not None else None
        if known is None or session is None or session.others.names or len(node.outputs) != 1:
            return ()
        op, shape, found = known
        output = node.outputs[0]
        return found if op == node.op and output is not None and output.shape == shape else ()

    def _seen(self, function: Any, arguments: Given, options: Any, result: Any, frame: FrameType) -> None:
        if type(result) not in PLAIN or not result.requires_grad:
            return
        with self._calls.paused():
            found = numbers(result)
            made_by = grad_fn_of(result) if found else None
        if made_by is not None:
            number = made_by._sequence_nr()
            self._of.pop(number, None)  # the newest stand last
            self._of[number] = made_by.name(), tuple(result.shape), found
            if len(self._of) > KEPT:
                del self._of[next(iter(self._of))]


def computed(live: LiveGraph, noted: ComputedNumbers | None) -> dict[int, Numbers]:
    """By node, what it computed; by AccumulateGrad, its leaf. Nothing of what nobody saved or `noted`."""
    found: dict[int, Numbers] = {}
    for node, tensor in _there(live):
        if node not in found and (read := numbers(tensor)):
            found[node] = read
    if noted is not None:
        every = ((node.id, noted.of(node)) for node in live.graph.nodes if node.id not in found)
        found.update((node, read) for node, read in every if read)
    return found


def _there(live: LiveGraph) -> Iterator[tuple[int, torch.Tensor]]:
    place = {function: i for i, function in enumerate(live.nodes)}
    for leaf in live.graph.leaves:
        variable = getattr(live.nodes[leaf.node], "variable", None)
        if isinstance(variable, torch.Tensor):
            yield leaf.node, variable
    for node in live.graph.nodes:
        for slot in node.saved:
            tensor = tensor_in(live.nodes[node.id], slot.slot) if slot.state == "live" else None
            if tensor is None:
                continue
            function = grad_fn_of(tensor)
            maker = slot.leaf if function is None else place.get(function)
            if slot.slot in ("result", "output"):
                maker = node.id
            if maker is not None and not slot.view:
                yield maker, tensor
