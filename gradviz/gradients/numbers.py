"""The numbers of small tensors, as plain data to be drawn: what ops computed, from
saved slots and leaves, and from these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from gradviz.armour.isolation import isolated, unrecorded
from gradviz.fold.order import is_view
from gradviz.gradients.live import LiveGraph
from gradviz.gradients.values import held_tensors, tensor_in, why_unreadable
from gradviz.graph import Graph
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import saved_number
from gradviz.walker.tensors import PLAIN

MOST = 64
"""Elements of a tensor whose numbers are kept."""

FEW = 4
"""Elements of a tensor that a picture lists."""
CLOSED = {"packed", "hidden", "checkpoint", "compiled"}
"""Flags of nodes that may hold what nobody can read."""

Numbers = tuple[float, ...]


def numbers(tensor: torch.Tensor | None) -> Numbers:
    """The elements of a small dense tensor of real numbers, to 6 digits; nothing of any
    other.

    >>> numbers(torch.tensor([[1.0, 0.1], [2.0, 1 / 3]])), numbers(torch.zeros(65))
    ((1.0, 0.1, 2.0, 0.333333), ())
    """
    if (
        tensor is None
        or tensor.layout != torch.strided
        or tensor.is_nested
        or not 0 < tensor.numel() <= MOST
    ):
        return ()

    if tensor.dtype.is_complex or why_unreadable(tensor):
        return ()

    with isolated():
        return tuple(
            float(f"{entry:.6g}")
            for entry in tensor.detach().flatten().double().tolist()
        )


def spread(tensor: torch.Tensor) -> Numbers:
    """Least, mean and largest of the elements of a dense tensor of real numbers, to 6
    digits; nothing of any other, and of a few elements.

    >>> spread(torch.arange(6.0)), spread(torch.ones(4))
    ((0.0, 2.5, 5.0), ())
    """
    if tensor.layout != torch.strided or tensor.is_nested or tensor.numel() <= FEW:
        return ()
    if not tensor.dtype.is_floating_point or why_unreadable(tensor):
        return ()

    with isolated():
        plain = tensor.detach()
        try:
            least, largest = torch.aminmax(plain)
            mean = plain.mean(dtype=torch.float64)
        except RuntimeError:
            return ()  # a dtype without arithmetic
        found = (least, mean, largest)
        return tuple(float(f"{float(number):.6g}") for number in found)


class Result(NamedTuple):
    """What a node computed: its elements, its spread, and whether nobody holds it."""

    value: Numbers = ()
    spread: Numbers = ()
    freed: bool = False


def computed(live: LiveGraph) -> dict[int, Result]:
    """By node, what it computed; by AccumulateGrad, its leaf. Read where somebody holds
    it, else computed from what is known.
    """
    held: dict[int, torch.Tensor] = dict(live.results)
    seen: set[int] = set(held)
    for one in held_tensors(live.graph, live.nodes):
        if one.made_by is not None:
            seen.add(one.made_by)
            if not one.is_changed:
                held[one.made_by] = one.tensor

    tensors = {node: tensor for node, tensor in held.items() if numbers(tensor)}
    with unrecorded():
        for node in forward_order(live.graph):
            if node in tensors:
                continue
            result = _again(live, node, tensors)
            if result is not None:
                tensors[node] = result

    found = {node: Result(freed=True) for node in _freed(live.graph, seen)}
    for node, tensor in (held | tensors).items():
        found[node] = Result(numbers(tensor), spread(tensor))
    return found


def _freed(graph: Graph, seen: Container[int]) -> Iterator[int]:
    """Nodes whose result nobody holds: neither a variable nor a saved slot that can be
    read, and no slot that cannot be read may have it.
    """
    for node in graph.nodes:
        if node.id in seen or node.id in graph.leaf_of or is_view(node.op):
            continue
        users = [node, *(graph.nodes[e.consumer] for e in graph.consumers(node.id))]
        if not any(CLOSED.intersection(user.flags) for user in users):
            yield node.id


_ONE = "Neg Exp Log Sin Cos Tanh Sigmoid Relu Sqrt Abs Sum Mean"
_OPS: dict[str, tuple[Callable[..., torch.Tensor], tuple[str, ...]]] = {
    "Add": (torch.add, ("self", "other")),
    "Sub": (torch.add, ("self", "other")),
    "Mul": (torch.mul, ("self", "other")),
    "Div": (torch.div, ("self", "other")),
    "Pow": (torch.pow, ("self", "exponent")),
    **{name: (getattr(torch, name.lower()), ("self",)) for name in _ONE.split()},
}
"""Ops that are computed once more, on copies: the function, and what the formula calls
its operands.
"""

_STEM = re.compile(r"(\w+?)Backward\d+")


def _again(
    live: LiveGraph, node: int, tensors: Mapping[int, torch.Tensor]
) -> torch.Tensor | None:
    """What an op computes of operands that are all known; None where one is not, or the
    op does more than its name says.
    """
    record, function = live.graph.nodes[node], live.nodes[node]
    match = _STEM.fullmatch(record.op)
    name = match[1] if match is not None else ""
    if name not in _OPS or record.outputs[:1] == (None,) or len(record.outputs) != 1:
        return None

    compute, operands = _OPS[name]
    arguments = [
        _operand(live, node, position, slot, tensors)
        for position, slot in enumerate(operands)
    ]
    if any(argument is None for argument in arguments):
        return None

    # both are torch.add here: alpha and the sign go into the second operand
    if name in ("Add", "Sub"):
        arguments[1] = arguments[1] * (
            getattr(function, "_saved_alpha", 1) * (-1 if name == "Sub" else 1)
        )

    result, output = compute(*arguments), record.outputs[0]
    # a sum or mean over some dimensions has another shape than that over all
    if output is None or tuple(result.shape) != output.shape:
        return None
    return result


def _operand(
    live: LiveGraph,
    node: int,
    position: int,
    slot: str,
    tensors: Mapping[int, torch.Tensor],
) -> Any:
    """A copy of what an op was given: what another one computed, or what it saved; None
    where that is not known.
    """
    edge = next(
        (edge for edge in live.graph.inputs(node) if edge.position == position), None
    )
    if edge is not None:
        value: Any = tensors.get(edge.producer) if edge.output == 0 else None
    elif any(
        saved.slot == slot and saved.state == "live"
        for saved in live.graph.nodes[node].saved
    ):
        value = tensor_in(live.nodes[node], slot)
    else:  # a plain number; asking for a tensor could run a hook
        record = live.graph.nodes[node]
        if record.op == "PowBackward0":
            value = live.nodes[node]._saved_exponent
        else:
            value = saved_number(record)

    if type(value) in PLAIN:
        return value.clone() if numbers(value) else None

    return value if type(value) in (int, float) else None
