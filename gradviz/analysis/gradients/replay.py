"""Runs backward over a graph by calling its functions one at a time, in the engine's order, without the engine.

Nothing is disturbed: no `.grad` is written, not even of tensors with `retain_grad()`; nothing is freed; hooks of the user's on
tensors and nodes do not run. What the engine does around a call is done here: gradients that meet are added, summed to the
size and cast to the dtype that the node's forward had. Unpack hooks do run, and checkpoints recompute: a gradient needs
the saved tensors.

Source: https://docs.pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from gradviz.capture.private import LAST, BackwardCFunction, Node
from gradviz.errors import GradientError
from gradviz.graph import Graph

Gradient = torch.Tensor | None
REFUSED = {
    "CheckpointFunctionBackward": (
        "torch.utils.checkpoint with use_reentrant=True runs backward inside its own node and writes the .grad of the parameters "
        "in it: use use_reentrant=False to look at gradients"
    ),
}


class Live(NamedTuple):
    """A graph together with its live nodes, by id. Keep it only as long as gradients are computed."""

    graph: Graph
    nodes: Sequence[Node]


class Step(NamedTuple):
    """One call: the gradients that came in, per output of the node's forward, and those that went out, per input."""

    node: int
    incoming: tuple[Gradient, ...]
    outgoing: tuple[Gradient, ...]


def call(live: Live, node: int, incoming: Sequence[Gradient]) -> tuple[Gradient, ...]:
    """The gradients that one backward function gives for its inputs.

    Raises GradientError for a function that would disturb the graph, and for one that torch refuses to run: a freed graph, or
    a saved tensor that was modified in place.
    """
    record, function = live.graph.nodes[node], live.nodes[node]
    if record.op in REFUSED:
        raise GradientError(f"{record.op} cannot be looked into: {REFUSED[record.op]}")
    try:
        with torch.no_grad():
            if isinstance(function, BackwardCFunction):
                made = function.apply(*_with_zeros(function, incoming))  # type: ignore[no-untyped-call]
            else:
                made = function(*incoming)
    except RuntimeError as error:
        raise GradientError(f"{record.op} cannot compute its gradient: {_reason(error)}") from error
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def _reason(error: RuntimeError) -> str:
    text = str(error).splitlines()[0]
    if "second time" in text:
        return "backward() has already freed what it saved; look before backward(), or call it with retain_graph=True"
    return text


def _with_zeros(function: Node, incoming: Sequence[Gradient]) -> list[torch.Tensor]:
    """A custom Function sees zeros where no gradient came, as the engine gives it by default."""
    return [
        torch.zeros(tuple(one.shape), dtype=one.dtype, device=one.device) if gradient is None else gradient
        for one, gradient in zip(function._input_metadata, incoming)
    ]


def fitted(function: Node, output: int, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient with the shape and dtype of the output that it belongs to, as the engine makes it before a call."""
    metadata = function._input_metadata[output]
    if metadata.is_nested_tensor or gradient.layout != torch.strided:
        return gradient
    shape = tuple(metadata.shape)
    if tuple(gradient.shape) != shape:
        gradient = gradient.sum_to_size(shape)
    return gradient if gradient.dtype == metadata.dtype else gradient.to(metadata.dtype)


def replay(
    live: Live, starts: Sequence[tuple[int, int, torch.Tensor]], only: Collection[int] | None = None
) -> Iterator[Step]:
    """Call every function that a gradient reaches, in the engine's order: latest op first among those that are ready.

    `starts` gives node, output and gradient of each root. With `only`, gradients go no further than these nodes. A step at an
    AccumulateGrad node has nothing outgoing. Gradients are let go as soon as they have been used.
    """
    graph = live.graph
    wanted = set(only) if only is not None else None
    inside = _reached(graph, [node for node, _, _ in starts], wanted)
    waiting = _waiting(graph, inside)
    arrived: dict[int, list[Gradient]] = {}
    for node, output, gradient in starts:
        _add(live, arrived, node, output, gradient)
    ready = [_priority(graph, node) for node in inside if not waiting[node]]
    heapq.heapify(ready)
    while ready:
        *_, node = heapq.heappop(ready)
        incoming = tuple(arrived.pop(node, ()))
        ends = node in graph.leaf_of or all(one is None for one in incoming)
        outgoing = () if ends else call(live, node, incoming)
        yield Step(node, incoming, outgoing)
        for edge in graph.inputs(node):
            if edge.producer in inside:
                if outgoing and (gradient_out := outgoing[edge.position]) is not None:
                    _add(live, arrived, edge.producer, edge.output, gradient_out)
                waiting[edge.producer] -= 1
                if not waiting[edge.producer]:
                    heapq.heappush(ready, _priority(graph, edge.producer))


def _priority(graph: Graph, node: int) -> tuple[int, int]:
    """The engine runs the function with the highest sequence number first; AccumulateGrad has the highest of all."""
    sequence = graph.nodes[node].sequence
    return -(LAST if sequence is None else sequence), node


def _reached(graph: Graph, starts: Sequence[int], wanted: set[int] | None) -> set[int]:
    found = {node for node in starts if wanted is None or node in wanted}
    stack = list(found)
    while stack:
        for edge in graph.inputs(stack.pop()):
            if edge.producer not in found and (wanted is None or edge.producer in wanted):
                found.add(edge.producer)
                stack.append(edge.producer)
    return found


def _waiting(graph: Graph, inside: set[int]) -> dict[int, int]:
    """How many edges a gradient may still come in by, for each node."""
    count = dict.fromkeys(inside, 0)
    for node in inside:
        for edge in graph.inputs(node):
            if edge.producer in count:
                count[edge.producer] += 1
    return count


def _add(live: Live, arrived: dict[int, list[Gradient]], node: int, output: int, gradient: torch.Tensor) -> None:
    function = live.nodes[node]
    slots = arrived.setdefault(node, [None] * max(len(function._input_metadata), output + 1))
    known, gradient = slots[output], fitted(function, output, gradient)
    slots[output] = gradient if known is None else known + gradient


def seed(tensor: torch.Tensor, gradient: Any = None) -> torch.Tensor:
    """The gradient that starts at an output: the one given, else ones, which for a tensor means the gradient of its sum."""
    return torch.ones_like(tensor) if gradient is None else torch.as_tensor(gradient).expand_as(tensor)
