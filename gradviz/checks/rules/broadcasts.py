"""The check for a column and a row that broadcast to a square."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import (
    Sizes,
    kind,
    makers,
    shape,
    sizes_of,
    spread,
    users,
)
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, made_at
from gradviz.graph import Graph, SourceLine

_ERRORS = ("MseLoss", "SmoothL1Loss", "HuberLoss")


_MEETING = (
    "Add",
    "Sub",
    "Rsub",
    "Mul",
    "Div",
    "Maximum",
    "Minimum",
    *_ERRORS,
)
"""Operations whose two arguments broadcast."""


_KEPT = (
    "Sum",
    "Mean",
    "Std",
    "Var",
    "Norm",
    "LinalgVectorNorm",
    "Logsumexp",
    "Amax",
    "Amin",
)
"""What keeps a column of a matrix with `keepdim=True`, as for distances of all pairs.
"""


_LIFTED = ("Unsqueeze", "View", "Reshape", "Index", "Slice", "Select")
"""What makes a column of a row."""


class _Square(NamedTuple):
    """An operation that makes a square of a column and a row."""

    node: int
    shapes: tuple[Sizes, ...]  # of the arguments, None for one that is not known
    size: int


@check(
    "broadcast",
    "warning",
    "a column and a row broadcast to a square, and all of it is averaged",
)
def broadcast(context: BackwardCall) -> Diagnoses:
    """Tensors of the shapes (n, 1) and (n,) are computed with each other: broadcasting
    makes (n, n) of them.

    No error says so, and the mean of all is one number as before. The loss is least
    where every prediction is the mean of the targets. In advantages, masks and weights
    it does as much harm.

    How it is found: the graph has the shape of each result, and of what it is computed
    from; the result is followed to a mean or a sum of all of it. A column that a
    reduction keeps, or that the same line makes, as in `x[:, None] - y`, is meant.

    What to do: give both one shape, with `squeeze(1)` or `unsqueeze(1)`.

    When to ignore it: when every pair is meant.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    target = torch.randn(8)
    loss = (model(torch.ones(8, 3)) - target).square().mean()
    loss.backward()
    ```
    """
    graph = context.graph
    told = set[SourceLine | None]()
    for node in range(len(graph.nodes)):
        if kind(graph, node) not in _MEETING or not _meets_square(graph, node):
            continue
        square = _square(graph, node)
        if square is None:
            continue

        source = made_at(graph, node)
        if source not in told:
            told.add(source)
            yield _broadcast(graph, square, source)


def _square(graph: Graph, node: int) -> _Square | None:
    """A column that meets a row, where each element is averaged with all others."""
    edges = graph.inputs(node)
    source = made_at(graph, node)
    operands = [_operand(graph, edge.producer, source) for edge in edges]
    spread_out = any(operand != edge.producer for operand, edge in zip(operands, edges))
    if edges:
        sizes = _square_sizes(graph, edges[0].producer if spread_out else node)
    else:
        sizes = None
    if sizes is None:
        return None

    shapes = _given(graph, node, operands, spread_out)
    column, row = (sizes[0], 1), sizes[:1]
    likely = None in shapes and (column in shapes or (spread_out and row in shapes))
    if {*shapes} != {column, row} and not likely:
        return None

    columns = [operand for operand in operands if shape(graph, operand) == column]
    if _is_meant(graph, columns, source, likely) or not _is_averaged(
        graph, node, sizes
    ):
        return None
    return _Square(node, shapes, sizes[0])


def _meets_square(graph: Graph, node: int) -> bool:
    """Whether an operation makes a square or is given one, which is quickly seen and
    true of few.
    """
    return any(
        _square_sizes(graph, one) is not None for one in (node, *makers(graph, node))
    )


def _square_sizes(graph: Graph, node: int) -> Sizes:
    """The shape of what an operation makes, where it is a square of at least 2 x 2."""
    sizes = shape(graph, node)
    if sizes is None or len(sizes) != 2 or sizes[0] != sizes[1] or sizes[0] < 2:
        return None
    return sizes


def _given(
    graph: Graph, node: int, operands: Sequence[int], spread_out: bool
) -> tuple[Sizes, ...]:
    """The shapes of both arguments of an operation, None where one is not known."""
    edges = graph.inputs(node)
    shapes: list[Sizes] = [None, None]

    for edge, operand in zip(edges, operands):
        shapes[edge.position] = shape(
            graph, operand, edge.output if operand == edge.producer else 0
        )

    if graph.nodes[node].none_inputs and not spread_out:
        # an argument that needs no gradient may be saved for that of the other one
        saved = next(
            (slot.tensor for slot in graph.nodes[node].saved if slot.slot == "other"),
            None,
        )
        shapes[1 - edges[0].position] = sizes_of(saved)

    return tuple(shapes)


def _operand(
    graph: Graph,
    node: int,
    source: SourceLine | None,
) -> int:
    """What an operation is given, before its loss spread it to the shape of the other
    one.
    """
    if kind(graph, node) == "Expand" and "expand" not in (
        source.text if source is not None else ""
    ):
        return graph.inputs(node)[0].producer
    return node


def _is_meant(
    graph: Graph,
    columns: Sequence[int],
    source: SourceLine | None,
    likely: bool,
) -> bool:
    """Whether a column was made for all pairs: by a reduction, or in the same line.
    `likely`: the other side is not known.
    """
    for column in columns:
        op = kind(graph, column)
        if (
            op in _KEPT
            or (op in _LIFTED and made_at(graph, column) == source)
            or (likely and column in graph.leaf_of)
        ):
            return True
    return False


def _is_averaged(
    graph: Graph,
    node: int,
    sizes: tuple[int, ...],
) -> bool:
    """Whether all elements of what an operation makes become one number."""
    alike = spread(
        [node],
        lambda at: [user for user in users(graph, at) if shape(graph, user) == sizes],
    )
    ends = (user for at in alike for user in [at, *users(graph, at)])
    return any(
        shape(graph, end) == () and kind(graph, end) in ("Sum", "Mean", *_ERRORS)
        for end in ends
    )


def _broadcast(
    graph: Graph,
    square: _Square,
    source: SourceLine | None,
) -> Diagnosis:
    name = re.sub(
        r"(?<!^)(?=[A-Z])",
        "_",
        kind(graph, square.node),
    ).lower()
    shapes, size = [str(one) for one in square.shapes if one is not None], square.size
    if shapes[1:]:
        given = f"shapes {shapes[0]} and {shapes[1]} broadcast"
    else:
        given = f"shape {shapes[0]} broadcasts"

    fix = "Give both one shape: .squeeze(1) on the one with two dimensions, or .unsqueeze(1) on the other"
    return Diagnosis(
        f"{given} to a square: each element meets every other one",
        (),
        f"{code(source)} computes {name} of {' and '.join(shapes)}, which makes a square of {size} x {size} that is then averaged: "
        "each sample is compared with all others",
        f"{fix}.",
        (square.node,),
        source=source,
    )
