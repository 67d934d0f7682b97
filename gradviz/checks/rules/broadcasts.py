"""The check for a column and a row that broadcast to a square."""

from __future__ import annotations

from math import prod

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import Sizes, kind, makers, shape, spread, users
from gradviz.checks.registry import Diagnoses, Row, check, told
from gradviz.checks.run import Kind
from gradviz.checks.words import code, made_at
from gradviz.graph import Graph, SourceLine

_MEETING = ("Add", "Sub", "Rsub", "Mul", "Div")
"""Operations whose two arguments broadcast."""
_LOSSES = "Loss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"
"""How kinds end that are losses."""
_KEPT = {"Sum", "Mean", "Std", "Var", "Norm", "LinalgVectorNorm", "Logsumexp"}
_KEPT |= {"Amax", "Amin"}
"""What keeps a column of a matrix with `keepdim=True`, as for distances of all pairs."""
_LIFTED = ("Unsqueeze", "View", "Reshape", "Index", "Slice", "Select")
"""What makes a column of a row."""
_ROW = Row(
    "{both} broadcast: PyTorch computes all {size} x {size} pairs",
    "{code} computes {operation} of {both}, each sample with all others, and the pairs are averaged",
    "Give both one shape: .squeeze(1) on the one with two dimensions, or .unsqueeze(1) on the other.",
)
_DATA = Row(
    "{0} broadcast: PyTorch computes all {2} x {2} pairs",
    "{code} computes {1} of {0}, each sample with all others, and what comes of it weighs single samples",
    "Give both one shape: .squeeze(1) on the one with two dimensions.",
)
_SEVERAL = Row(
    "one number for each sample is compared with {size}",
    "{code} computes {operation} of {column} and something with {size} columns: broadcasting compares each number with all of its "
    "row, and the mean of all is taken",
    "Give both one shape: take a sum or a mean of the other one, .sum(1, keepdim=True), or let the model give {size} numbers.",
)

_WEIGHED = Row(
    "{size} weights multiply one number: the loss is averaged before they come",
    "{code} gives one number for the whole batch, and {after} multiplies it by weights of shape {weights}: no sample counts more "
    "than another",
    "Give that loss reduction='none', and take the mean after the weights are multiplied in.",
)


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
    reduction keeps, or that the same line makes, as in `x[:, None] - y`, is meant. Of
    data, rows of a column, as `targets[i:j]`, are a column; and a square beside a row
    is followed to the line of the function that calls `backward()`, whose variables
    tell the shapes. A column less data with more columns is one, where the mean of its
    squares is the loss. So is a loss that is a mean already and is multiplied by many
    weights.

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
    graph, lines = context.graph, set[SourceLine | None]()
    for node in range(len(graph.nodes)):
        source = made_at(graph, node)
        if source not in lines and _is_compared_with_several(graph, node):
            lines.add(source)
            count, size = shape(graph, node) or (0, 0)
            operation, column = kind(graph, node), (count, 1)
            words = {"size": size, "operation": operation, "column": column}
            yield _SEVERAL.filled((), source, nodes=(node,), **words)
        weights = shape(graph, node) or ()
        for loss in _averaged_before(graph, node, weights):
            source, after = made_at(graph, loss), code(source)
            words = {"size": prod(weights), "weights": weights, "after": after}
            if source not in lines:
                yield _WEIGHED.filled((), source, nodes=(loss, node), **words)
            lines.add(source)
        shapes = _shapes(graph, node) if kind(graph, node) in _MEETING else []
        # a line in a loop makes many nodes, and is told once
        if not shapes or source in lines:
            continue

        lines.add(source)
        yield _ROW.filled(
            (),
            source,
            both=" and ".join(map(str, shapes)),
            operation=kind(graph, node),
            size=(shapes[0] or (0,))[0],
            nodes=(node,),
        )
    yield from told(context, {Kind.SQUARED: _DATA})


def _shapes(graph: Graph, node: int) -> list[Sizes]:
    """The shapes of a column and a row that an operation makes a square of, where each
    element is averaged with all others; one of them, where the other is not known.
    """
    square, operands = shape(graph, node), makers(graph, node)
    if square is None or not _is_square(square):
        return []

    column, row = (square[0], 1), square[:1]
    shapes = [shape(graph, operand) for operand in operands]
    if shapes == [row] and _takes_column(graph, node):
        shapes.append(column)
    alone = shapes == [column]
    if not alone and {*shapes} != {column, row}:
        return []
    columns = [operand for operand in operands if shape(graph, operand) == column]
    meant = any(_is_meant(graph, operand, node, alone) for operand in columns)
    return shapes if not meant and _is_averaged(graph, node, square) else []


def _is_compared_with_several(graph: Graph, node: int) -> bool:
    """Whether a difference of a column, and of data with more columns, becomes a mean
    error.
    """
    sizes = shape(graph, node)
    if kind(graph, node) not in ("Sub", "Rsub") or not sizes or len(sizes) != 2:
        return False
    # a square of a row is told of as such
    column, operands = (sizes[0], 1), makers(graph, node)
    given = [shape(graph, operand) for operand in operands]
    if _is_square(sizes) or 1 in sizes or given != [column]:
        return False
    if kind(graph, operands[0]) in _LIFTED or kind(graph, operands[0]) in _KEPT:
        return False
    return operands[0] not in graph.leaf_of and _is_mean_error(graph, node)


def _averaged_before(graph: Graph, node: int, sizes: tuple[int, ...]) -> list[int]:
    """The losses of a whole batch that an operation multiplies by weights of these
    sizes, all of which are added up then.
    """
    if kind(graph, node) != "Mul" or prod(sizes) < 2:
        return []
    numbers = [each for each in makers(graph, node) if shape(graph, each) == ()]
    losses = [each for each in numbers if kind(graph, each).endswith(_LOSSES)]
    return losses if _is_averaged(graph, node, sizes) else []


def _is_mean_error(graph: Graph, node: int) -> bool:
    """Whether nothing but the mean of its squares, or absolutes, is computed of it."""
    errors = users(graph, node)
    ends = [end for error in errors for end in users(graph, error)]
    kinds = {kind(graph, error) for error in errors}
    means = {(kind(graph, end), shape(graph, end)) for end in ends}
    return kinds <= {"Pow", "Abs"} and means == {("Mean", ())}


def _takes_column(graph: Graph, node: int) -> bool:
    """Whether data that an operation takes is a column, as rows of a column are."""
    for data in graph.data:
        sizes, cut = data.tensor.shape, data.text.partition("[")[2]
        if len(data.of) == 1 and cut and "," not in cut:
            sizes = graph.data[data.of[0]].tensor.shape
        if node in data.nodes and sizes is not None and sizes[1:] == (1,):
            return True
    return False


def _is_square(sizes: tuple[int, ...]) -> bool:
    return len(sizes) == 2 and sizes[0] == sizes[1] > 1


def _is_meant(graph: Graph, column: int, node: int, alone: bool) -> bool:
    """Whether a column was made for all pairs: by a reduction, or in the same line."""
    op = kind(graph, column)
    lifted = op in _LIFTED and made_at(graph, column) == made_at(graph, node)
    return op in _KEPT or lifted or (alone and column in graph.leaf_of)


def _is_averaged(graph: Graph, node: int, sizes: tuple[int, ...]) -> bool:
    """Whether all elements of what an operation makes become one number."""
    alike = spread(
        [node],
        lambda node: [
            user for user in users(graph, node) if shape(graph, user) == sizes
        ],
    )
    ends = (user for node in alike for user in [node, *users(graph, node)])
    return any(
        kind(graph, end) in ("Sum", "Mean") and shape(graph, end) == () for end in ends
    )
