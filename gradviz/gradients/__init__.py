"""Analyses that need real gradients: flow, and the chain rule path by path.

This module has what needs no torch: the order in which the engine runs backward functions, and what `gradviz.flow` measured at
each box of a graph, folded or not. A step of the scale is a factor of ten down from the largest norm, since gradients differ by
orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.errors import FormatError
from gradviz.graph import BackwardStep, Graph
from gradviz.memory import Heat

# The queue in which the engine keeps backward functions that are ready to run, with its exact order. The engine takes
# the highest sequence number first. Equal ones (every AccumulateGrad has the same) come out as its binary heap leaves
# them, so the heap is built here as the C++ library of Linux builds it: `std::push_heap` and `std::pop_heap`.
# Source: https://gcc.gnu.org/onlinedocs/libstdc++/latest-
# doxygen/a00527_source.html (bits/stl_heap.h)


class ReadyQueue:
    """Node ids by sequence number, highest first.

    >>> queue = ReadyQueue()
    >>> for node, sequence in enumerate([3, 9, 4]):
    ...     queue.push(node, sequence)
    >>> [queue.pop() for _ in range(3)]
    [1, 2, 0]
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []  # sequence number, node id

    def __bool__(self) -> bool:
        return bool(self._heap)

    def push(self, node: int, sequence: int) -> None:
        """Add a function that is ready."""
        self._heap.append((sequence, node))
        self._rise(len(self._heap) - 1, (sequence, node))

    def pop(self) -> int:
        """Take out the next one to run."""
        heap = self._heap
        first, value = heap[0], heap.pop()
        if heap:
            self._rise(self._sink(), value)
        return first[1]

    def _sink(self) -> int:
        """Move the hole at the top down to a leaf, the larger child up each time, the right one when they are equal."""
        heap, hole, size = self._heap, 0, len(self._heap)
        child = 2
        while child < size:
            if heap[child][0] < heap[child - 1][0]:
                child -= 1
            heap[hole] = heap[child]
            hole, child = child, 2 * child + 2
        if child == size:  # the last parent has a left child only
            heap[hole] = heap[child - 1]
            hole = child - 1
        return hole

    def _rise(self, hole: int, value: tuple[int, int]) -> None:
        """Put `value` into the hole or above it, below every parent that is not smaller."""
        heap = self._heap
        while hole and heap[(hole - 1) // 2][0] < value[0]:
            heap[hole] = heap[(hole - 1) // 2]
            hole = (hole - 1) // 2
        heap[hole] = value


class BoxNorms(NamedTuple):
    """One box: the first and last place of what is inside it, how many places, and the norms that arrive.

    Places begin at 1. `least` and `most` are None when no gradient arrives; `most` is infinite when one is not finite. Not
    `measured`: nobody knows what arrives at any of the places.
    """

    first: int
    last: int
    places: int
    least: float | None
    most: float | None
    measured: bool = True


class GradientNorms(NamedTuple):
    """Norms by node id of the graph given; None for what backward does not call. `heat` takes no norm and one not finite for 0."""

    of: tuple[BoxNorms | None, ...]
    heat: Heat


def gradient_norms(graph: Graph) -> GradientNorms:
    """The norms of every node; a folded box has those of all nodes inside it. Raises FormatError when nobody measured.

    >>> from gradviz.graph import BackwardStep, Node
    >>> nodes = (Node(0, "MulBackward0"), Node(1, "ExpBackward0"))
    >>> norms = gradient_norms(Graph(nodes, backward=(BackwardStep(0, 1.0), BackwardStep(1, 0.02))))
    >>> norms.of[1], norms.heat.step(0), norms.heat.step(1)
    (BoxNorms(first=2, last=2, places=1, least=0.02, most=0.02, measured=True), 5, 4)
    """
    whole = graph.original if graph.original is not None else graph
    if not whole.backward:
        raise FormatError(
            "this graph does not know its gradients and the order of backward. On the command line, draw the script itself, "
            "not a graph saved without them; in Python, draw gradviz.flow(loss).graph."
        )
    places = {step.node: place for place, step in enumerate(whole.backward, 1)}
    boxes = tuple(_arrival([places[i] for i in inside if i in places], whole.backward) for inside in graph.inside)
    norms = [step.norm for step in whole.backward if step.norm is not None and math.isfinite(step.norm)]
    most = tuple(0.0 if box is None or box.most is None or math.isinf(box.most) else box.most for box in boxes)
    return GradientNorms(boxes, Heat(most, max(norms, default=0.0), 10))


def _arrival(places: Sequence[int], steps: Sequence[BackwardStep]) -> BoxNorms | None:
    if not places:
        return None
    norms = [norm for place in places if (norm := steps[place - 1].norm) is not None]
    measured = any(steps[place - 1].measured for place in places)
    return BoxNorms(min(places), max(places), len(places), min(norms, default=None), max(norms, default=None), measured)
