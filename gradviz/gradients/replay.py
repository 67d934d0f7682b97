"""Runs backward over a graph by calling its functions one at a time, in the engine's
order, without the engine.

Nothing is disturbed: no `.grad` is written, not even of tensors with `retain_grad()`;
nothing is freed; hooks of the user's on tensors and nodes do not run. What the engine
does around a call is done here: gradients that meet are added, summed to the size and
cast to the dtype that the node's forward had. Unpack hooks do run, and checkpoints
recompute: a gradient needs the saved tensors.

Source: https://docs.pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from gradviz.errors import GradientError, reason_of
from gradviz.gradients.live import Gradient, LiveGraph, refuse
from gradviz.graph import Graph
from gradviz.graph.ready_queue import ReadyQueue
from gradviz.walker.private import LAST, BackwardCFunction, Node


class Step(NamedTuple):
    """One call: the gradients that came in, per output of the node's forward, and those
    that went out, per entry of `next_functions`.
    """

    node: int
    incoming: tuple[Gradient, ...]
    outgoing: tuple[Gradient, ...]


# -- one call --------------------------------------------------------------------------


def call(
    live: LiveGraph, node: int, incoming: Sequence[Gradient]
) -> tuple[Gradient, ...]:
    """The gradients that one backward function gives for its inputs, by position in
    `next_functions`, in the shape and dtype of those inputs.

    Raises GradientError for a function that torch refuses to run (a freed graph, a
    saved tensor that was modified in place) and for a custom one that raises.
    """
    op = live.graph.nodes[node].op
    try:
        with torch.no_grad():
            outgoing = _call(live.nodes[node], incoming)
    except GradientError:
        raise
    except Exception as error:
        raise GradientError(
            f"{op} cannot compute its gradient: {_reason(error)}"
        ) from error

    for edge in live.graph.inputs(node):
        gradient = outgoing[edge.position]
        if gradient is not None:
            function = live.nodes[edge.producer]
            with _engine_work(op), torch.no_grad():
                outgoing[edge.position] = _fitted(function, edge.output, gradient)

    return tuple(outgoing)


def _call(function: Any, incoming: Sequence[Gradient]) -> list[Gradient]:
    custom = isinstance(function, BackwardCFunction)
    if custom:
        # torch's own way to run the backward of a Python Function
        gradients = function.apply(*_with_zeros(function, incoming))
    else:
        gradients = function(*incoming)

    gradients = gradients if isinstance(gradients, (tuple, list)) else (gradients,)
    return _by_entry(function, gradients) if custom else list(gradients)


def _reason(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0]
    # torch speaks of a second backward, and this is only a look
    if "second time" in text:
        return "backward() has already freed what it saved. Look before backward(), or call it with retain_graph=True."
    if isinstance(error, RuntimeError):
        return text
    return f"its backward raised {type(error).__name__}: {text}"


def _by_entry(function: Any, gradients: Sequence[Gradient]) -> list[Gradient]:
    """What the backward of a custom Function made. It returns a gradient per argument;
    only tensors have an entry in `next_functions`, and those that require grad are the
    ones with an edge in it.
    """
    needed_gradients = [
        gradient
        for gradient, needed in zip(gradients, function.needs_input_grad)
        if needed
    ]
    entries = [child is not None for child, _ in function.next_functions]
    if len(needed_gradients) != sum(entries):
        raise GradientError(
            f"{function.name()} cannot compute its gradient: its backward returned too few gradients for its inputs."
        )
    rest = iter(needed_gradients)
    return [next(rest) if entry else None for entry in entries]


def _with_zeros(function: Node, incoming: Sequence[Gradient]) -> list[torch.Tensor]:
    """A custom Function sees zeros where no gradient came, as the engine gives it
    unless it says otherwise.
    """
    gradients = []
    for output, gradient in zip(function._input_metadata, incoming):
        if gradient is None:
            gradient = torch.zeros(
                tuple(output.shape), dtype=output.dtype, device=output.device
            )
        gradients.append(gradient)

    return gradients


def _fitted(function: Node, output: int, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient with the shape and dtype of the output that it belongs to, as the
    engine makes it before a call.
    """
    metadata = function._input_metadata[output]
    # these have no shape to sum over
    if metadata.is_nested_tensor or gradient.layout != torch.strided:
        return gradient
    shape = tuple(metadata.shape)
    if tuple(gradient.shape) != shape:
        # an operand was broadcast: its gradient has the shape of the result
        gradient = gradient.sum_to_size(shape)
    if gradient.is_complex() and not metadata.dtype.is_complex:
        gradient = gradient.real
    return gradient if gradient.dtype == metadata.dtype else gradient.to(metadata.dtype)


@contextmanager
def _engine_work(op: str) -> Iterator[None]:
    """Raises GradientError where a class of tensors lacks what the engine does around a
    call.
    """
    try:
        yield
    except Exception as error:
        raise GradientError(
            f"the gradients at {op} cannot be computed: {reason_of(error)}"
        ) from error


# -- all calls -------------------------------------------------------------------------


def replay(
    live: LiveGraph, only: Collection[int] | None = None, stops: Collection[int] = ()
) -> Iterator[Step]:
    """Call every function that the engine would run, in its order.

    With `only`, gradients go no further than these nodes. The functions of `stops` are
    not called, and neither are those `behind` them, because what arrives there is not
    known; they have their steps all the same.

    A step at an AccumulateGrad node, or at one that no gradient
    reaches, has nothing outgoing. Gradients are let go as soon as they have been used.
    Raises GradientError before the first call when there is a function among them that
    must not be called, else what `call` raises.
    """
    graph, starts = live.graph, live.starts
    begin = [start.node for start in starts]
    inside = _reached(graph, begin, only)
    unknown = behind(graph, stops)
    silent = unknown.union(stops)
    calls_nothing = silent.union(graph.leaf_of)
    refuse(graph, ((node, live.nodes[node]) for node in sorted(inside - silent)))
    waiting = _waiting(graph, inside)
    expected = inside - unknown
    arrived: dict[int, list[Gradient]] = {}
    ready = ReadyQueue()
    first = inside - waiting.keys()
    for node in dict.fromkeys(begin):
        # a start that another start leads to waits for its gradient
        if node in first:
            ready.push(node, _sequence(graph, node))

    for start in starts:
        if start.node not in unknown:
            _add(live, arrived, *start)

    while ready:
        node = ready.pop()
        incoming = tuple(arrived.pop(node, ()))
        # where no gradient comes in, none goes out
        ends = node in calls_nothing or _nothing_in(incoming)
        outgoing = () if ends else call(live, node, incoming)
        yield Step(node, incoming, outgoing)
        for edge in graph.inputs(node):
            if outgoing and edge.producer in expected:
                _add(live, arrived, edge.producer, edge.output, outgoing[edge.position])
            # also where nothing was sent: the producer waits for its other users only
            waiting[edge.producer] -= 1
            if edge.producer in inside and not waiting[edge.producer]:
                ready.push(edge.producer, _sequence(graph, edge.producer))


def _sequence(graph: Graph, node: int) -> int:
    sequence = graph.nodes[node].sequence
    return LAST if sequence is None else sequence


def _reached(
    graph: Graph, starts: Sequence[int], only: Collection[int] | None
) -> set[int]:
    reached = {node for node in starts if only is None or node in only}
    stack = list(reached)
    while stack:
        for edge in graph.inputs(stack.pop()):
            if edge.producer not in reached and (only is None or edge.producer in only):
                reached.add(edge.producer)
                stack.append(edge.producer)
    return reached


def _waiting(graph: Graph, inside: Collection[int]) -> Counter[int]:
    """By node the edges that a gradient may come in by."""
    return Counter(edge.producer for node in inside for edge in graph.inputs(node))


def _nothing_in(gradients: Iterable[Gradient]) -> bool:
    return all(gradient is None for gradient in gradients)


def behind(graph: Graph, stops: Collection[int]) -> set[int]:
    """The nodes that gradients reach through these, at least in part."""
    ahead = {edge.producer for node in stops for edge in graph.inputs(node)}
    return _reached(graph, sorted(ahead), None)


def _add(
    live: LiveGraph,
    arrived: dict[int, list[Gradient]],
    node: int,
    output: int,
    gradient: Gradient,
) -> None:
    if gradient is None:
        return

    slots = arrived.setdefault(node, [None] * max(live.outputs(node), output + 1))
    earlier = slots[output]
    if earlier is None:
        slots[output] = gradient
        return

    with _engine_work(live.graph.nodes[node].op), torch.no_grad():
        # torch adds a sparse tensor to a dense one, and not the other way round
        if earlier.layout != torch.strided:
            earlier, gradient = gradient, earlier
        slots[output] = earlier + gradient
