"""Of which kind an operation is; and which kinds have a derivative of 0 everywhere, so
that no gradient passes them whatever the numbers are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from gradviz.graph.model import Graph
from gradviz.graph.origins import own_line
from gradviz.graph.records import SourceLine
from gradviz.graph.walks import behind, makers, spread

SAMPLES = frozenset(("Bernoulli", "Normal", "Poisson"))
"""Kinds that draw a sample, whose derivative is 0 with respect to their parameters."""
FLAT = SAMPLES | {"Round", "Sign", "Sgn", "Floor", "Ceil", "Trunc"}
"""Kinds whose derivative is 0 everywhere."""
INDEXED = re.compile(r"Index|Embedding|Gather|Scatter|Masked|NllLoss|Where|Take|Put")
"""Operations that take an index, a mask or a class beside what they work on; autograd has
no entry for it.
"""
BENT = {
    "ThresholdBackwardBackward0": "ReLU",
    "LeakyReluBackwardBackward0": "LeakyReLU",
    "HardtanhBackwardBackward0": "Hardtanh",
}
"""Gradients of piecewise linear operations: they do not change with what these were
given, the input at position 1.
"""


@lru_cache
def kind_of(op: str) -> str:
    """`NllLoss` for `NllLoss2DBackward0`."""
    name = op.partition("Backward")[0].lstrip("_")
    return name.removesuffix("2D") if name.startswith("NllLoss") else name


def kind(graph: Graph, node: int) -> str:
    """The kind of operation that a node is; of a Function of the user's, which may be
    called as one of torch's, its whole name.
    """
    op = graph.ops[node]
    return op if "custom" in graph.flags[node] else kind_of(op)


# -- gradients of 0 --------------------------------------------------------------------


def why_zero(graph: Graph, node: int) -> tuple[str, SourceLine | None]:
    """Why backward() comes to a node with a gradient of exactly 0, and the line; ""
    where it need not.
    """
    reached = set(reachable(graph))
    for flat in sorted(reached) if node not in reached else ():
        if node in behind(graph, onward(graph, flat)[1]):
            why = f"its gradient is exactly 0: {flat_part(graph, flat)} is 0 everywhere"
            return why, own_line(graph.nodes[flat])
    return "", None


def flat_part(graph: Graph, node: int) -> str:
    """What is 0 of an operation, in words."""
    bent = BENT.get(graph.ops[node])
    if bent is None:
        return f"the derivative of torch.{kind(graph, node).lower()}"
    return f"the second derivative of {bent}"


def onward(graph: Graph, node: int) -> tuple[list[int], list[int]]:
    """The makers of the inputs of an operation that a gradient comes to, and those that
    get one of 0.
    """
    every = makers(graph, node)
    if graph.ops[node] in BENT:
        return every[:1], every[1:]
    return ([], every) if kind(graph, node) in FLAT else (every, [])


def reachable(graph: Graph) -> Iterator[int]:
    """The nodes that a gradient other than 0 may come to."""
    return spread(graph.roots_of, lambda node: onward(graph, node)[0])
