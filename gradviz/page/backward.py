"""What backward does, step by step: which function runs, which bytes of saved tensors it frees, which gradients are on their way.

The order is the measured one when the graph has it, else the engine's rule is followed: of what is ready, the highest sequence
number first, AccumulateGrad before all. Memory is counted as autograd keeps it without `retain_graph`: what a function saved is
freed when it has run, a gradient waits from the first function that sends it until its own function runs.

Source: https://docs.pytorch.org/docs/stable/notes/autograd.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradviz.gradients.backward_order import ReadyQueue
from gradviz.graph import Graph, TensorInfo, column
from gradviz.graph.amounts import ONLY_GRAPH, tensor_bytes
from gradviz.graph.columns import UNNUMBERED


class BackwardSteps(NamedTuple):
    """One entry for each function that backward calls, in order. Bytes; `waiting` is after the step."""

    nodes: list[int]
    freed: list[int]  # of saved tensors, by this step
    waiting: list[int]  # gradients that were sent and not yet used
    filled: list[int]  # of a `.grad` that this step makes
    norms: list[float | None]  # empty when nobody measured
    measured: bool
    held: int  # of saved tensors that only the graph holds, before the first step


def backward_steps(graph: Graph) -> BackwardSteps:
    """The steps of one backward call from all roots."""
    measured = bool(graph.backward)
    order = [step.node for step in graph.backward] if measured else engine_order(graph)
    norms = [step.norm for step in graph.backward]
    freed, held = _freed(graph, order)
    waiting, filled = _gradients(graph, order)
    return BackwardSteps(order, freed, waiting, filled, norms, measured, held)


def engine_order(graph: Graph) -> list[int]:
    """The order in which the engine runs everything behind the roots.

    >>> from gradviz.graph import Edge, Graph, Node, Root, TensorInfo
    >>> nodes = (Node(0, "MulBackward0", sequence=5), Node(1, "ExpBackward0", sequence=3), Node(2, "SinBackward0", sequence=4))
    >>> edges = (Edge(0, 1, 0, 0), Edge(0, 2, 0, 1))
    >>> engine_order(Graph(nodes, edges, roots=(Root(0, 0, "y", TensorInfo((), "float32", "cpu")),)))
    [0, 2, 1]
    """
    sequences = column(graph.nodes, "sequence")
    producers = column(graph.edges, "producer")
    starts = list(dict.fromkeys(root.node for root in graph.roots if root.node is not None))
    waiting = _dependencies(graph, starts, producers)
    queue = ReadyQueue()

    def offer(node: int) -> None:
        sequence = sequences[node]
        queue.push(node, UNNUMBERED if sequence is None else sequence)

    for node in starts:
        if not waiting[node]:
            offer(node)
    order: list[int] = []
    while queue:
        node = queue.pop()
        order.append(node)
        for place in graph.input_places(node):
            producer = producers[place]
            waiting[producer] -= 1
            if not waiting[producer]:
                offer(producer)
    return order


def _dependencies(graph: Graph, starts: list[int], producers: Sequence[int]) -> list[int]:
    """How many edges lead to each node from what the starts reach."""
    waiting = [0] * len(graph.nodes)
    reached = bytearray(len(graph.nodes))
    for node in starts:
        reached[node] = 1
    behind = list(starts)
    for node in behind:  # grows while it is read
        for place in graph.input_places(node):
            producer = producers[place]
            waiting[producer] += 1
            if not reached[producer]:
                reached[producer] = 1
                behind.append(producer)
    return waiting


def _freed(graph: Graph, order: list[int]) -> tuple[list[int], int]:
    """Bytes that each step frees: storages that only the graph holds, at the last step that still needs them."""
    last: dict[int, int] = {}
    saved = column(graph.nodes, "saved")
    for step, node in enumerate(order):
        for slot in saved[node]:
            if slot.state != "freed":
                last.update(dict.fromkeys(slot.storages, step))
    freed = [0] * len(order)
    for storage, step in last.items():
        record = graph.storages[storage]
        if record.kind in ONLY_GRAPH:
            freed[step] += record.nbytes or 0
    return freed, sum(freed)


def _gradients(graph: Graph, order: list[int]) -> tuple[list[int], list[int]]:
    """Bytes of gradients that wait after each step, and bytes of `.grad` that each step makes."""
    outputs, producers = column(graph.nodes, "outputs"), column(graph.edges, "producer")
    started = bytearray(len(graph.nodes))
    waiting: list[int] = []
    filled: list[int] = []
    now = 0
    for node in {root.node for root in graph.roots if root.node is not None}:
        started[node] = 1
        now += _size(outputs[node])
    for node in order:
        leaf = graph.leaf_of.get(node)
        if started[node]:
            now -= tensor_size(leaf.tensor) if leaf is not None else _size(outputs[node])
        for place in graph.input_places(node):
            producer = producers[place]
            if not started[producer]:
                started[producer] = 1
                used = graph.leaf_of.get(producer)
                now += tensor_size(used.tensor) if used is not None else _size(outputs[producer])
        waiting.append(max(now, 0))
        filled.append(tensor_size(leaf.tensor) if leaf is not None and not leaf.has_grad else 0)
    return waiting, filled


def _size(outputs: tuple[TensorInfo | None, ...]) -> int:
    return sum(map(tensor_size, outputs))


def tensor_size(tensor: TensorInfo | None) -> int:
    """Bytes of a tensor's elements; 0 when unknown."""
    return (tensor_bytes(tensor) or 0) if tensor is not None else 0
