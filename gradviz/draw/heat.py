"""Amounts at each box of a folding, and the scale by which boxes are compared: bytes
and gradients.

A step of the scale is a factor down from the largest amount, so that one huge node does
not make all others look alike: of two for bytes; for gradients, which differ by orders
of magnitude, the factor that spreads the steps over those seen. Features have amounts
of their own. Knows nothing of colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gradviz.errors import FormatError
from gradviz.fold.folding import Folding
from gradviz.graph import BackwardStep
from gradviz.wording import bytes_text, number

STEPS = 5

NOT_FINITE = "gradient not finite"
ZERO = "gradient zero"
SMALLEST = "smallest gradient"

HEATS = {
    "memory": "gradviz.draw.heat:memory_heat",
    "grad": "gradviz.draw.heat:gradient_heat",
}
"""What gives an amount for each box, by what colours mean."""


class Heat(NamedTuple):
    """Amounts by box, such as bytes held, the `factor` that one step of their scale
    is, and words for both; `said` and `alarms` are those of single boxes.

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
    said: Mapping[int, str] = {}
    alarms: Mapping[int, str] = {}

    def step(self, box: int) -> int:
        """From 1 (least) to 5 (above the largest divided by the factor); 0 for a box
        that has nothing.
        """
        amount = self.of[box]
        if amount > 0:
            return next(
                (step for step in range(STEPS, 1, -1) if amount > self.above(step)), 1
            )
        return 0

    def above(self, step: int) -> float:
        """The amount that a step begins above."""
        return self.largest / self.factor ** (STEPS + 1 - step) if step > 1 else 0

    def words(self, box: int) -> str:
        """The amount of one box: `holds 1.5 MiB`; "" where there is none."""
        amount = f"{self.what} {self.text(self.of[box])}" if self.of[box] else ""
        return self.said.get(box, amount)

    def legend(self, step: int) -> str:
        """What a step means: `holds 2.0 KiB to 4.0 KiB`, `gradient norm above 0.1`."""
        least = self.text(self.above(step))
        if step == STEPS:
            return f"{self.what} {self.over} {least}"
        if least == self.text(0):
            least = "up"
        return f"{self.what} {least} to {self.text(self.above(step + 1))}"


def held_by_box(folding: Folding) -> tuple[int, ...]:
    """Bytes that all in each box hold for backward. Every storage counts once, for
    whoever saved it first.

    >>> from gradviz.fold.folding import unfolded
    >>> from gradviz.graph import Graph, Node, SavedTensor, Storage
    >>> slot = SavedTensor("result", None, 0, "activation", "live")
    >>> nodes = (Node(0, "ExpBackward0", saved=(slot,)), Node(1, "AddBackward0"))
    >>> held_by_box(unfolded(Graph(nodes, storages=(Storage(0, 8, "activation"),))))
    (8, 0)
    """
    held = folding.graph.held.__getitem__
    return tuple([sum(map(held, nodes)) for nodes in folding.inside])


def memory_heat(folding: Folding) -> Heat:
    """What every box holds for backward."""
    nbytes = held_by_box(folding)
    whole = bytes_text(sum(nbytes))
    note = (
        f"held for backward: {whole}, each storage once, at the box that saved it first"
    )
    return Heat(
        nbytes,
        max(nbytes, default=0),
        2,
        "holds",
        lambda amount: bytes_text(int(amount)),
        note=note,
    )


GRADIENT_NORM = (
    "gradient norm: of the gradient that arrives at a function, "
    "the largest one when it has several outputs"
)


def gradient_heat(folding: Folding) -> Heat:
    """The norm that arrives at every box, the largest one inside a closed one; none and
    one that is not finite count as 0. Raises FormatError when nobody measured.

    >>> from gradviz.fold.folding import unfolded
    >>> from gradviz.graph import BackwardStep, Graph, Node
    >>> nodes = (Node(0, "MulBackward0"), Node(1, "ExpBackward0"))
    >>> steps = BackwardStep(0, 1.0), BackwardStep(1, 0.02)
    >>> heat = gradient_heat(unfolded(Graph(nodes, backward=steps)))
    >>> heat.words(1), heat.step(0), heat.step(1)
    ('gradient norm 0.02', 5, 1)
    """
    backward = folding.graph.backward
    if not backward:
        raise FormatError(
            "this graph does not know its gradients. On the command line, draw the script itself, "
            "not a graph saved without them; in Python, draw gradviz.flow(loss).graph."
        )

    steps = {step.node: step for step in backward}
    boxes = folding.inside
    arriving = [[steps[node] for node in nodes if node in steps] for nodes in boxes]
    norms = [[s.norm for s in some if s.norm is not None] for some in arriving]
    alarms = {box: _alarm(some) for box, some in enumerate(norms) if _alarm(some)}
    amounts = tuple(
        0.0 if box in alarms else max(some, default=0.0)
        for box, some in enumerate(norms)
    )
    others = [box for box in range(folding.size) if box not in alarms]
    said = {box: _arriving_text(arriving[box], norms[box]) for box in others}
    largest = max(amounts, default=0.0)
    smallest = {box: min(norms[box]) for box in others if norms[box]}
    # among equals, the smallest is no news
    if min(smallest.values(), default=largest) < largest / 2:
        alarms |= dict.fromkeys(_of_smallest(smallest), SMALLEST)
    return Heat(
        amounts,
        largest,
        _factor(amounts),
        "gradient norm",
        lambda norm: f"{norm:.2g}",
        "above",
        GRADIENT_NORM,
        said,
        alarms,
    )


def _alarm(norms: Sequence[float]) -> str:
    """What is wrong with the largest of the gradients that arrive, "" for nothing."""
    largest = max(norms, default=1.0)
    if not largest:
        return ZERO
    return "" if math.isfinite(largest) else NOT_FINITE


def _factor(amounts: Sequence[float]) -> float:
    """A step of the scale: gradients that are nearly equal do not get five colours."""
    seen = list(filter(None, amounts))
    return max(2.0, (max(seen) / min(seen)) ** (1 / STEPS)) if seen else 2.0


def _of_smallest(norms: Mapping[int, float]) -> list[int]:
    """The boxes of which the smallest norm is said, as it is said."""
    least = number(min(norms.values()))
    return [box for box, norm in norms.items() if number(norm) == least]


def _arriving_text(steps: Sequence[BackwardStep], norms: Sequence[float]) -> str:
    """The norm of the gradient that arrives at a box, or the range of those inside."""
    if steps and not any(step.measured for step in steps):
        return "gradient not measured"
    if not norms:
        return "no gradient arrives"
    least, most = number(min(norms)), number(max(norms))
    if least == most:
        return f"gradient norm {most}"
    return f"gradient norms {least} to {most}"
