"""Amounts at each box of a graph, folded or not, and the scale by which boxes are
compared: bytes and gradients.

A step of the scale is a factor down from the largest amount, so that one huge node does
not make all others look alike: of two for bytes; for gradients, which differ by orders
of magnitude, the factor that spreads the steps over those seen. Features have amounts of their own. Knows nothing of colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gradviz.errors import FormatError
from gradviz.graph import BackwardStep, Graph
from gradviz.wording import bytes_text

STEPS = 5

NOT_FINITE = "gradient not finite"
ZERO = "gradient zero"
SMALLEST = "smallest gradient"


class Heat(NamedTuple):
    """Amounts by node id, such as bytes held, the `factor` that one step of their scale
    is, and words for both.

    >>> heat = Heat((8, 0, 3), 8, 2, "holds", lambda amount: f"{amount:g} B")
    >>> [heat.step(node) for node in range(3)], heat.above(5)
    ([5, 0, 4], 4.0)
    >>> heat.words(2), heat.legend(1), heat.legend(4), heat.legend(5)
    ('holds 3 B', 'holds up to 0.5 B', 'holds 2 B to 4 B', 'holds more than 4 B')
    """

    of: tuple[float, ...]
    largest: float
    factor: float
    what: str  # "holds"
    text: Callable[[float], str]
    over: str = "more than"
    note: str = ""  # a line for under the picture

    def step(self, node: int) -> int:
        """From 1 (least) to 5 (above the largest divided by the factor); 0 for a node
        that has nothing.
        """
        amount = self.of[node]
        if amount > 0:
            return next(
                (step for step in range(STEPS, 1, -1) if amount > self.above(step)), 1
            )
        return 0

    def above(self, step: int) -> float:
        """The amount that a step begins above."""
        return self.largest / self.factor ** (STEPS + 1 - step) if step > 1 else 0

    def words(self, node: int) -> str:
        """The amount of one box: `holds 1.5 MiB`."""
        return f"{self.what} {self.text(self.of[node])}"

    def legend(self, step: int) -> str:
        """What a step means: `holds 2.0 KiB to 4.0 KiB`, `gradient norm above 0.1`."""
        least = self.text(self.above(step))
        if step == STEPS:
            return f"{self.what} {self.over} {least}"
        if least == self.text(0):
            least = "up"
        return f"{self.what} {least} to {self.text(self.above(step + 1))}"


def held_by_box(graph: Graph) -> tuple[int, ...]:
    """Bytes held for backward by every node; a folded box holds what the nodes inside
    it do.

    Every storage counts once, for whoever saved it first.

    >>> from gradviz.graph import Node, SavedTensor, Storage
    >>> slot = SavedTensor("result", None, 0, "activation", "live")
    >>> nodes = (Node(0, "ExpBackward0", saved=(slot,)), Node(1, "AddBackward0"))
    >>> held_by_box(Graph(nodes, storages=(Storage(0, 8, "activation"),)))
    (8, 0)
    """
    nbytes = (graph.original or graph).held
    if graph.original is not None:
        of_node = nbytes.__getitem__
        nbytes = [sum(map(of_node, nodes)) for nodes in graph.inside]
    return tuple(nbytes)


def held_line(nbytes: Sequence[float]) -> str:
    """What all boxes hold together: their numbers add up to it."""
    return f"held for backward: {bytes_text(int(sum(nbytes)))}, each storage once, at the box that saved it first"


def memory_heat(graph: Graph) -> Heat:
    """What every box holds for backward."""
    nbytes = held_by_box(graph)
    return Heat(
        nbytes,
        max(nbytes, default=0),
        2,
        "holds",
        lambda amount: bytes_text(int(amount)),
        note=held_line(nbytes),
    )


class BoxNorms(NamedTuple):
    """The norms that arrive at what is inside one box.

    `least` and `most` are None when no gradient arrives; `most` is infinite when one is
    not finite. Not `measured`: nobody knows what arrives.
    """

    least: float | None
    most: float | None
    measured: bool = True


class GradientNorms(NamedTuple):
    """Norms by node id of the graph given; None for what backward does not call. `heat`
    takes no norm and one not finite for 0.
    """

    of: tuple[BoxNorms | None, ...]
    heat: Heat
    smallest: int | None = None  # the box with the smallest norm that is not 0

    def marks(self, node: int) -> tuple[str, ...]:
        """What there is to say of the gradient at a box: that it is not finite, zero,
        or the smallest.
        """
        norms = self.of[node]
        if norms is None or norms.most is None:
            return ()
        if math.isinf(norms.most):
            return (NOT_FINITE,)
        if norms.most == 0:
            return (ZERO,)
        return (SMALLEST,) if node == self.smallest else ()


def gradient_norms(graph: Graph) -> GradientNorms:
    """The norms of every node; a folded box has those of all nodes inside it. Raises
    FormatError when nobody measured.

    >>> from gradviz.graph import BackwardStep, Node
    >>> nodes = (Node(0, "MulBackward0"), Node(1, "ExpBackward0"))
    >>> norms = gradient_norms(Graph(nodes, backward=(BackwardStep(0, 1.0), BackwardStep(1, 0.02))))
    >>> norms.of[1], norms.heat.step(0), norms.heat.step(1)
    (BoxNorms(least=0.02, most=0.02, measured=True), 5, 1)
    """
    original = graph.original if graph.original is not None else graph
    if not original.backward:
        raise FormatError(
            "this graph does not know its gradients. On the command line, draw the script itself, "
            "not a graph saved without them; in Python, draw gradviz.flow(loss).graph."
        )

    steps = {step.node: step for step in original.backward}
    boxes = []
    for inside in graph.inside:
        boxes.append(_arrival([steps[i] for i in inside if i in steps]))

    most = tuple(
        0.0 if box is None or box.most is None or math.isinf(box.most) else box.most
        for box in boxes
    )
    seen = [norm for norm in most if norm]
    largest, least = max(seen, default=0.0), min(seen, default=0.0)
    # gradients that are nearly equal should not get five colours
    factor = max(2.0, (largest / least) ** (1 / STEPS)) if least else 2.0
    heat = Heat(
        most, largest, factor, "gradient norm", lambda norm: f"{norm:.2g}", "above"
    )

    # among equals, the smallest is no news
    is_spread = least < largest / 2
    return GradientNorms(tuple(boxes), heat, most.index(least) if is_spread else None)


def _arrival(steps: Sequence[BackwardStep]) -> BoxNorms | None:
    if not steps:
        return None

    norms = [step.norm for step in steps if step.norm is not None]
    measured = any(step.measured for step in steps)
    return BoxNorms(min(norms, default=None), max(norms, default=None), measured)
