"""Checks on what a loss is given: probabilities where it wants scores, and the like. Looks at the graph only."""

from __future__ import annotations

from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.flow import made as tensor_made
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import Names, title_and_code, where as place
from gradviz.graph import Graph

_SHAPES = (
    "View",
    "UnsafeView",
    "Squeeze",
    "Unsqueeze",
    "Permute",
    "Transpose",
    "T",
    "ToCopy",
    "Slice",
    "Clone",
    "Alias",
    "Reshape",
)
_LAYERS = ("Addmm", "Mm", "Convolution", "Relu", "LeakyRelu", "Tanh", "Gelu")


class _Pair(NamedTuple):
    """An operation that is directly behind another, and what is wrong with that. {op} and {by} are filled in."""

    user: Names
    made_by: Names
    summary: str
    why: str
    fix: str


_SCORES = (
    "Give the scores themselves to the loss: leave out this {by}. Where probabilities are wanted, as for printing, compute them "
    "there."
)
_PAIRS = (
    _Pair(
        ("LogSoftmax",),
        ("Softmax",),
        "softmax is taken twice",
        "cross entropy takes log_softmax of its input itself; of probabilities, which lie between 0 and 1, that is nearly flat: "
        "the loss cannot come near 0, and gradients are small",
        _SCORES,
    ),
    _Pair(
        ("LogSoftmax",),
        ("Sigmoid",),
        "softmax is taken of a sigmoid",
        "cross entropy takes log_softmax of its input itself; of numbers between 0 and 1 that is nearly flat: the loss cannot come "
        "near 0, and gradients are small",
        _SCORES,
    ),
    _Pair(
        ("BinaryCrossEntropyWithLogits",),
        ("Sigmoid", "Softmax"),
        "the sigmoid is taken twice",
        "binary_cross_entropy_with_logits takes the sigmoid of its input itself; of numbers between 0 and 1 that lies between 0.5 "
        "and 0.73, whatever the model says",
        _SCORES,
    ),
    _Pair(
        ("NllLoss",),
        ("Softmax", "Sigmoid"),
        "nll_loss is given probabilities, not their logarithms",
        "it takes the logarithm of nothing: it averages minus the number that stands at each target, and that is bounded by -1",
        "Use log_softmax in place of this {by}; or give the scores themselves to torch.nn.CrossEntropyLoss.",
    ),
    _Pair(
        ("NllLoss",),
        _LAYERS,
        "nll_loss is given scores, not logarithms of probabilities",
        "it averages minus the number that stands at each target: scores can make that as negative as they like, so the loss falls "
        "without end",
        "Use torch.nn.CrossEntropyLoss in place of NLLLoss, or put log_softmax(scores, dim=1) before it.",
    ),
    _Pair(
        ("BinaryCrossEntropy",),
        ("Clamp", "Hardtanh", "Relu", "Hardsigmoid"),
        "scores are cut to probabilities for binary_cross_entropy",
        "where a score lies outside of 0 to 1, the gradient of this {by} is zero: what is most wrong is never mended",
        "Give the scores as they are to torch.nn.BCEWithLogitsLoss, without this {by}; or use torch.sigmoid(scores) in its place.",
    ),
)


@check("loss-input", "warning", "a loss is given something else than it expects")
def loss_input(context: CheckContext) -> Diagnoses:
    """A loss gets probabilities where it takes scores, scores where it takes logarithms, or a softmax over a single element; or
    predictions and targets of two shapes.

    `CrossEntropyLoss` and `BCEWithLogitsLoss` take scores and apply softmax or sigmoid themselves; `NLLLoss` takes
    logarithms of probabilities; `BCELoss` takes probabilities. Training still runs with the wrong one, and goes nowhere. So it does
    where predictions of the shape (n, 1) and targets of the shape (n,) are broadcast to (n, n).

    How it is found: The graph shows which operation made the input of the loss, behind changes of shape and dtype.

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
    for node in graph.nodes:
        op = _kind(node.op)
        for pair in _PAIRS:
            if op in pair.user:
                made = _maker(graph, node.id)
                if made is not None and _kind(graph.nodes[made].op) in pair.made_by:
                    yield _found(graph, node.id, made, pair)
                    return
        if op in ("Softmax", "LogSoftmax") and _single(graph, node.id):
            yield _of_one(graph, node.id, op)
            return
        if op in _DIFFERENCES and _is_spread(graph, node.id):
            yield _spread(graph, node.id)
            return


_DIFFERENCES = ("Sub", "Rsub", "MseLoss", "SmoothL1Loss", "HuberLoss")


def _is_spread(graph: Graph, node: int) -> bool:
    """Whether a column of predictions is compared with a row of targets, so that each meets each, and all of it is averaged."""
    edges = graph.inputs(node)
    if len(edges) != 1 or graph.nodes[node].none_inputs != 1:
        return False
    given = edges[0]
    column = graph.inputs(given.producer)[0] if _kind(graph.nodes[given.producer].op) == "Expand" else given
    if _kind(graph.nodes[node].op) in ("Sub", "Rsub"):
        made = _shape(graph, node, 0)
        user = _user(graph, node)
        averaged = user is not None and _kind(graph.nodes[user].op) in ("Pow", "Abs") and _ends(graph, user)
    else:
        made, averaged = _shape(graph, given.producer, given.output), True
    before = _shape(graph, column.producer, column.output)
    return averaged and made is not None and len(made) == 2 and made[0] == made[1] > 1 and before == (made[0], 1)


def _ends(graph: Graph, node: int) -> bool:
    """Whether what follows is a mean or a sum over all of it."""
    user = _user(graph, node)
    return user is not None and _kind(graph.nodes[user].op) in ("Mean", "Sum") and _shape(graph, user, 0) == ()


def _shape(graph: Graph, node: int, output: int) -> tuple[int, ...] | None:
    known = tensor_made(graph, node, output)
    return tuple(map(int, known.shape)) if known is not None and known.shape is not None else None


def _spread(graph: Graph, node: int) -> Diagnosis:
    edge = graph.inputs(node)[0]
    made = _shape(graph, node, 0) or _shape(graph, edge.producer, edge.output) or ()
    count = next((size for size in made if size), 0) or (_shape(graph, edge.producer, edge.output) or (0,))[0]
    return Diagnosis(
        "every prediction is compared with every target",
        (),
        f"{title_and_code(graph, node)} takes predictions of the shape ({count}, 1) and targets of the shape ({count},): "
        f"broadcasting makes ({count}, {count}) of them, so the loss is least where all predictions are the mean of the targets",
        "Give both one shape: prediction.squeeze(1) in place of the prediction, or target.unsqueeze(1) in place of the target.",
        (node,),
        where=place(graph, node),
    )


def _of_one(graph: Graph, node: int, op: str) -> Diagnosis:
    return Diagnosis(
        f"{'softmax' if op == 'Softmax' else 'log_softmax'} is taken over a single element",
        (),
        f"{title_and_code(graph, node)} runs over a dimension of size 1, where it is always {1 if op == 'Softmax' else 0}: no "
        "gradient comes through it",
        "Take it over the dimension of the classes; for one score for each sample, use torch.sigmoid, or BCEWithLogitsLoss.",
        (node,),
        where=place(graph, node),
    )


def _found(graph: Graph, user: int, made: int, pair: _Pair) -> Diagnosis:
    by = _kind(graph.nodes[made].op).lower()
    return Diagnosis(
        pair.summary,
        (),
        f"{title_and_code(graph, user)} gets what {title_and_code(graph, made)} made; {pair.why.format(by=by)}",
        pair.fix.format(by=by),
        (made, user),
        where=place(graph, made),
    )


def _kind(op: str) -> str:
    """`NllLoss` for `NllLoss2DBackward0`."""
    name = op.partition("Backward")[0].lstrip("_")
    return name.removesuffix("2D") if name.startswith("NllLoss") else name


def _maker(graph: Graph, node: int) -> int | None:
    """The operation that made the first input of a node, behind changes of shape."""
    while True:
        edges = graph.inputs(node)
        if not edges or edges[0].producer in graph.leaf_of:
            return None
        node = edges[0].producer
        if _kind(graph.nodes[node].op) not in _SHAPES:
            return node


_LOSSES = (
    "NllLoss",
    "MseLoss",
    "BinaryCrossEntropy",
    "BinaryCrossEntropyWithLogits",
    "L1Loss",
    "SmoothL1Loss",
    "HuberLoss",
    "Log",
)


def _user(graph: Graph, node: int) -> int | None:
    """The operation that takes what a node made, behind changes of shape, when there is one only."""
    while True:
        edges = graph.consumers(node)
        if len(edges) != 1:
            return None
        node = edges[0].consumer
        if _kind(graph.nodes[node].op) not in _SHAPES:
            return node


def _single(graph: Graph, node: int) -> bool:
    """Whether a softmax runs over a dimension of size 1, on its way into a loss: in an attention there may be one key only."""
    made = next((output for output in graph.nodes[node].outputs if output is not None), None)
    dim = graph.nodes[node].attributes.get("dim")
    if made is None or made.shape is None or not isinstance(dim, int) or len(made.shape) < 2:
        return False
    user = _user(graph, node)
    if user is None or _kind(graph.nodes[user].op) not in _LOSSES:
        return False
    dim = dim - 2**64 if dim >= 2**63 else dim
    return -len(made.shape) <= dim < len(made.shape) and made.shape[dim] == 1
