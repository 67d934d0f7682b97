"""Checks on what a loss is given: probabilities where it wants scores, and the like.
Looks at the graph only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import islice
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.ops import (
    PRODUCTS,
    RESHAPES,
    Sizes,
    kind,
    maker,
    makers,
    shape,
    sizes_of,
    spread,
    users,
    weight,
)
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, made_at, title_and_code, where as place
from gradviz.graph import Graph, SourceLine

_LAYERS = PRODUCTS.union(
    [
        "Relu",
        "LeakyRelu",
        "Tanh",
        "Gelu",
        "Silu",
        "Elu",
        "NativeLayerNorm",
        "NativeBatchNorm",
        "CudnnBatchNorm",
        "MkldnnRnnLayer",
        "CudnnRnn",
    ]
)
_COMMON = (
    "Add Sub Mul Div Neg Mean Sum NativeDropout Cat Stack Select Index IndexSelect Clamp ClampMin ClampMax "
    "AdaptiveAvgPool2D UpsampleBilinear2D UpsampleNearest2D"
)
_PASSED = RESHAPES.union(_COMMON.split())
"""What makes no logarithm of anything, on the way from a layer to a loss that wants
logarithms.
"""


class _Pair(NamedTuple):
    """An operation that is directly behind another, and what is wrong with that. {op}
    and {by} are filled in.
    """

    user: str
    made_by: Collection[str]
    summary: str
    why: str
    fix: str
    at_user: bool = False  # the line of the loss is the one to change


_SCORES = (
    "Give the scores themselves to the loss: leave out this {by}. Where probabilities are wanted, as for printing, compute them "
    "there."
)
_PAIRS = (
    _Pair(
        "LogSoftmax",
        ("Softmax",),
        "softmax is taken twice",
        "cross entropy takes log_softmax of its input itself; of probabilities, which lie between 0 and 1, that is nearly flat: "
        "the loss cannot come near 0, and gradients are small",
        _SCORES,
    ),
    _Pair(
        "LogSoftmax",
        ("Sigmoid",),
        "softmax is taken of a sigmoid",
        "cross entropy takes log_softmax of its input itself; of numbers between 0 and 1 that is nearly flat: the loss cannot come "
        "near 0, and gradients are small",
        _SCORES,
    ),
    _Pair(
        "Logsumexp",
        ("Softmax",),
        "softmax is taken twice",
        "a distribution of logits takes log_softmax of them itself; of probabilities, between 0 and 1, that is nearly flat",
        "Pass them as Categorical(probs=...), in place of logits; or give it the scores, without this {by}.",
    ),
    _Pair(
        "BinaryCrossEntropyWithLogits",
        ("Sigmoid", "Softmax"),
        "the sigmoid is taken twice",
        "binary_cross_entropy_with_logits takes the sigmoid of its input itself; of numbers between 0 and 1 that lies between 0.5 "
        "and 0.73, whatever the model says",
        _SCORES,
    ),
    _Pair(
        "NllLoss",
        ("Softmax", "Sigmoid"),
        "nll_loss is given probabilities, not their logarithms",
        "it takes the logarithm of nothing: it averages minus the number that stands at each target, and that is bounded by -1",
        "Use log_softmax in place of this {by}; or give the scores themselves to torch.nn.CrossEntropyLoss.",
    ),
    _Pair(
        "NllLoss",
        _LAYERS,
        "nll_loss is given scores, not logarithms of probabilities",
        "it averages minus the number that stands at each target: scores can make that as negative as they like, so the loss falls "
        "without end",
        "Use torch.nn.CrossEntropyLoss in place of NLLLoss, or put log_softmax(scores, dim=1) before it.",
        True,
    ),
    _Pair(
        "BinaryCrossEntropy",
        ("Clamp", "Hardtanh", "Relu", "Hardsigmoid"),
        "scores are cut to probabilities for binary_cross_entropy",
        "where a score lies outside of 0 to 1, the gradient of this {by} is zero: what is most wrong is never mended",
        "Give the scores as they are to torch.nn.BCEWithLogitsLoss, without this {by}; or use torch.sigmoid(scores) in its place.",
    ),
)


@check("loss-input", "warning", "a loss is given something else than it expects")
def loss_input(context: CheckContext) -> Diagnoses:
    """A loss gets probabilities where it takes scores, or scores where it takes
    logarithms.

    `CrossEntropyLoss` and `BCEWithLogitsLoss` take scores and apply softmax or sigmoid
    themselves; `NLLLoss` takes logarithms of probabilities; `BCELoss` takes
    probabilities. Training still runs with the wrong one, and goes nowhere.

    How it is found: The graph shows which operation made the input of the loss, behind
    changes of shape and dtype; for `NLLLoss`, which wants logarithms, also behind sums
    and products, of which none is one.

    What to do: Leave the extra softmax or sigmoid out, or use the loss that fits.

    When to ignore it: When the second softmax is meant, as a temperature of its own.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(dim=1))
    scores = model(torch.ones(2, 4))
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor([0, 2]))
    loss.backward()
    ```
    """
    graph = context.graph
    for node in range(len(graph.nodes)):
        op = kind(graph, node)
        for pair in _PAIRS:
            made = _made(graph, node, pair) if op == pair.user else None
            if made is not None:
                yield _wrong(graph, node, made, pair)
                return


def _wrong(
    graph: Graph,
    loss: int,
    made: int,
    pair: _Pair,
) -> Diagnosis:
    by, at = kind(graph, made).lower(), loss if pair.at_user else made
    return Diagnosis(
        pair.summary,
        (),
        f"{title_and_code(graph, loss)} gets what {title_and_code(graph, made)} made; {pair.why.format(by=by)}",
        pair.fix.format(by=by),
        (at, loss + made - at),
        where=place(graph, at),
    )


def _made(
    graph: Graph,
    node: int,
    pair: _Pair,
) -> int | None:
    """What made the first input of a loss, when it is one of those of a pair."""
    if pair.user == "NllLoss":
        given = makers(graph, node)
        return _origin(graph, given[0], pair.made_by) if given else None
    made = maker(graph, node)
    return made if made is not None and kind(graph, made) in pair.made_by else None


_MOST = 100  # operations between a loss and what made its input


def _origin(
    graph: Graph,
    node: int,
    kinds: Collection[str],
) -> int | None:
    """The first of the operations that all ways behind a node end at, when all are of
    these kinds. Leaves are left out.

    A product counts as a layer only with a weight that is a leaf: of logarithms, one
    with given numbers makes other logarithms.
    """

    def is_end(at: int) -> bool:
        op = kind(graph, at)
        return op in kinds and (op not in PRODUCTS or weight(graph, at) is not None)

    def onward(at: int) -> list[int]:
        if is_end(at):
            return []
        return [maker for maker in makers(graph, at) if maker not in graph.leaf_of]

    ways = list(islice(spread([node], onward), _MOST))
    ends = [at for at in ways if is_end(at)]
    if ends and all(kind(graph, at) in _PASSED for at in ways if at not in ends):
        return ends[0]
    return None


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
def broadcast(context: CheckContext) -> Diagnoses:
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
