"""The numbers of small tensors, as plain data to be drawn: what ops computed, from saved slots and leaves, and from these."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from gradviz.gradients.live import LiveGraph
from gradviz.gradients.values import tensor_in, why_unreadable
from gradviz.graph.amounts import forward_order
from gradviz.walker.isolation import isolated, unrecorded
from gradviz.walker.tensors import grad_fn_of

MOST, KEPT = 64, 2000
"""Elements of a tensor whose numbers are kept, and how many functions: the first ones of backward, the last ones of forward."""

Numbers = tuple[float, ...]
PLAIN = (torch.Tensor, torch.nn.Parameter)


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
    """By node, what it computed; by AccumulateGrad, its leaf. Read where somebody saved it, else computed from what is known."""
    known: dict[int, torch.Tensor] = {}
    for node, tensor in _there(live):
        if node not in known and numbers(tensor):
            known[node] = tensor
    with unrecorded():
        for node in forward_order(live.graph):
            if node not in known and (made := _again(live, node, known)) is not None:
                known[node] = made
    return {node: read for node, tensor in known.items() if (read := numbers(tensor))}


_OPS: dict[str, tuple[Callable[..., torch.Tensor], tuple[str, ...]]] = {
    **dict.fromkeys(("Add", "Sub"), (torch.add, ("self", "other"))),
    "Mul": (torch.mul, ("self", "other")),
    "Div": (torch.div, ("self", "other")),
    "Pow": (torch.pow, ("self", "exponent")),
    **{
        name: (getattr(torch, name.lower()), ("self",))
        for name in ("Neg", "Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Relu", "Sqrt", "Abs")
    },
    **{name: (getattr(torch, name.lower()), ("self",)) for name in ("Sum", "Mean")},
}
"""Ops that are computed once more, on copies: the function, and what the formula calls its operands."""

_STEM = re.compile(r"(\w+?)Backward\d+")


def _again(live: LiveGraph, node: int, known: Mapping[int, torch.Tensor]) -> torch.Tensor | None:
    """What an op computes of operands that are all known; None where one is not, or the op does more than its name says."""
    record, match = live.graph.nodes[node], _STEM.fullmatch(live.graph.nodes[node].op)
    function, names = _OPS.get(match[1] if match is not None else "", (None, ()))
    output = record.outputs[0] if len(record.outputs) == 1 else None
    if function is None or output is None:
        return None
    inputs = {edge.position: edge for edge in live.graph.inputs(node)}
    given: list[Any] = []
    for position, name in enumerate(names):
        edge = inputs.get(position)
        saved = next((slot for slot in record.saved if slot.slot == name and slot.state == "live"), None)
        if edge is not None:
            given.append(known.get(edge.producer) if edge.output == 0 else None)
        elif saved is not None:
            given.append(tensor_in(live.nodes[node], name))
        else:
            given.append(getattr(live.nodes[node], f"_saved_{name}", None))
    if not all(isinstance(one, (int, float)) or (type(one) in PLAIN and numbers(one)) for one in given):
        return None
    factor = getattr(live.nodes[node], "_saved_alpha", 1)
    options = {"alpha": -factor if match is not None and match[1] == "Sub" else factor} if function is torch.add else {}
    made = function(*(one.clone() if isinstance(one, torch.Tensor) else one for one in given), **options)
    return made if tuple(made.shape) == output.shape else None


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
