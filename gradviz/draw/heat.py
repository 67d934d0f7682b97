"""Amounts at each box of a graph, folded or not, and the scale by which boxes are compared: bytes, seconds, gradients.

A step of the scale is a factor down from the largest amount, so that one huge node does not make all others look alike: of two for
bytes and seconds, of ten for gradients, which differ by orders of magnitude. Knows nothing of colours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.errors import FormatError
from gradviz.graph import BackwardStep, Graph
from gradviz.graph.amounts import held_bytes

STEPS = 5


class Heat(NamedTuple):
    """Amounts by node id, such as bytes held, and the `factor` that one step of their scale is.

    >>> heat = Heat((8, 0, 3), 8, factor=2)
    >>> [heat.step(node) for node in range(3)], heat.above(5)
    ([5, 0, 4], 4.0)
    """

    of: tuple[float, ...]
    largest: float
    factor: int

    def step(self, node: int) -> int:
        """From 1 (least) to 5 (above the largest divided by the factor); 0 for a node that has nothing."""
        amount = self.of[node]
        return next((step for step in range(STEPS, 1, -1) if amount > self.above(step)), 1) if amount > 0 else 0

    def above(self, step: int) -> float:
        """The amount that a step begins above."""
        return self.largest / self.factor ** (STEPS + 1 - step) if step > 1 else 0


def held_by_box(graph: Graph) -> tuple[int, ...]:
    """Bytes held for backward by every node; a folded box holds what the nodes inside it do.

    Every storage counts once, for whoever saved it first.

    >>> from gradviz.graph import Node, SavedTensor, Storage
    >>> slot = SavedTensor("result", None, 0, "activation", "live")
    >>> nodes = (Node(0, "ExpBackward0", saved=(slot,)), Node(1, "AddBackward0"))
    >>> held_by_box(Graph(nodes, storages=(Storage(0, 8, "activation"),)))
    (8, 0)
    """
    nbytes = held_bytes(graph.original or graph)
    if graph.original is not None:
        nbytes = [sum([nbytes[node] for node in nodes]) for nodes in graph.inside]
    return tuple(nbytes)


def own_seconds(graph: Graph) -> list[float]:
    """Seconds of forward and backward of each module call, without the calls inside it. Empty where nobody measured."""
    if all(scope.forward is None for scope in graph.scopes):
        return []
    whole = [(scope.forward or 0.0) + (scope.backward or 0.0) for scope in graph.scopes]
    own = list(whole)
    for scope, seconds in zip(graph.scopes, whole):
        if scope.parent is not None:
            own[scope.parent] -= seconds
    return [max(seconds, 0.0) for seconds in own]


def seconds_by_box(graph: Graph) -> tuple[float, ...]:
    """Seconds of every box: own ones of the calls whose ops are all in it. Raises FormatError when nobody measured.

    >>> from gradviz.graph import Node, Scope
    >>> scopes = Scope("net", "Net", 0, None, forward=3.0), Scope("net.a", "Linear", 0, 0, forward=1.0, backward=1.0)
    >>> nodes = (Node(i, "ExpBackward0", sequence=i, scope=scope) for i, scope in enumerate((1, 0, 0)))
    >>> seconds_by_box(Graph(tuple(nodes), scopes=scopes))  # the last two share one second, and no one knows how
    (2.0, 0.0, 0.0)
    """
    whole = graph.original or graph
    own = own_seconds(whole)
    if not own:
        raise FormatError(
            "this graph does not know how long its modules took. On the command line, draw the script itself, not a graph "
            "saved without times."
        )
    boxes: list[set[int]] = [set() for _ in own]
    for box, inside in enumerate(graph.inside):
        for node in map(whole.nodes.__getitem__, inside):
            if node.scope is not None and node.sequence is not None:  # an AccumulateGrad has none
                boxes[node.scope].add(box)
    seconds = [0.0] * len(graph.nodes)
    for own_one, at in zip(own, boxes):
        if len(at) == 1:
            seconds[at.pop()] += own_one
    return tuple(seconds)


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
