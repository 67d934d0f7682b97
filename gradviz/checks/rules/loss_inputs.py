"""Checks on what a loss is given: probabilities where it wants scores, and the like. Looks at the graph only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from math import prod
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.flow import made as tensor_made
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.misuse import told
from gradviz.checks.words import Names, code, line, nodes_of, title_and_code, where as place
from gradviz.graph import Graph
from gradviz.graph.origins import own_line

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
_PRODUCTS = ("Addmm", "Mm", "Convolution")
_LAYERS = (
    *_PRODUCTS,
    *("Relu", "LeakyRelu", "Tanh", "Gelu", "Silu", "Elu", "NativeLayerNorm", "NativeBatchNorm", "CudnnBatchNorm"),
    *("MkldnnRnnLayer", "CudnnRnn"),
)
_CHANCES = ("Softmax", "Sigmoid")
_PASSED = (
    *_SHAPES,
    *(
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Neg",
        "Mean",
        "Sum",
        "NativeDropout",
        "Cat",
        "Stack",
        "Select",
        "Index",
        "IndexSelect",
    ),
    *("Clamp", "ClampMin", "ClampMax", "AdaptiveAvgPool2D", "UpsampleBilinear2D", "UpsampleNearest2D"),
)
"""What makes no logarithm of anything, on the way from a layer to a loss that wants logarithms."""
_WANT_LOGARITHMS = ("NllLoss", "KlDiv")


class _Pair(NamedTuple):
    """An operation that is directly behind another, and what is wrong with that. {op} and {by} are filled in."""

    user: Names
    made_by: Names
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
        _CHANCES,
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
        True,
    ),
    _Pair(
        ("KlDiv",),
        _CHANCES,
        "kl_div is given probabilities, not their logarithms",
        "it takes probabilities as its target only: of an input that is no logarithm it makes a number that is no divergence, and "
        "whose gradient pulls towards the largest target alone",
        "Use {log} in place of this {by}.",
    ),
    _Pair(
        ("KlDiv",),
        _LAYERS,
        "kl_div is given scores, not logarithms of probabilities",
        "it averages minus the product of each number and its target: scores can make that as negative as they like, so the loss "
        "falls without end",
        "Put log_softmax(scores, dim=1) before it.",
        True,
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
    """A loss gets probabilities where it takes scores, scores where it takes logarithms, or a softmax over a single element.

    `CrossEntropyLoss` and `BCEWithLogitsLoss` take scores and apply softmax or sigmoid themselves; `NLLLoss` and `KLDivLoss`
    take logarithms of probabilities; `BCELoss` takes probabilities. Training still runs with the wrong one, and goes nowhere. So it
    does where `log_softmax` runs over another dimension than the one in which the loss picks its classes.

    How it is found: The graph shows which operation made the input of the loss, behind changes of shape and dtype; for losses that
    want logarithms, also behind sums and products, of which none is one.

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
    yield from islice(chain(_in_graph(context.graph), _in_calls(context)), 1)


def _in_graph(graph: Graph) -> Iterator[Diagnosis]:
    for node in graph.nodes:
        op = _named(node.op)
        for pair in _PAIRS:
            made = _made(graph, node.id, pair) if op in pair.user else None
            if made is not None:
                yield _found(graph, node.id, made, pair)
        if op in ("NllLoss", "Gather") or (op == "Sum" and _sums_rows(graph, node.id)):
            across = _across(graph, node.id)
            if across is not None:
                yield across
        if op in ("Softmax", "LogSoftmax") and _single(graph, node.id):
            yield _of_one(graph, node.id, op)


def _in_calls(context: CheckContext) -> Iterator[Diagnosis]:
    """Of `kl_div`, which leaves no node of its own."""
    graph = context.graph
    for given in context.given:
        for pair in _PAIRS:
            made = _origin(graph, given.node, pair.made_by) if "KlDiv" in pair.user else None
            if made is not None:
                yield _wrong(graph, f"kl_div in {code(given.source)}", line(given.source), made, pair)._replace(
                    source=given.source if pair.at_user else own_line(graph.nodes[made])
                )


_NOT_BELOW_ZERO = (
    *("NllLoss", "MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss"),
    *("BinaryCrossEntropy", "BinaryCrossEntropyWithLogits"),
)


@check("wrong-sign", "warning", "training makes the loss worse: its sign is wrong")
def wrong_sign(context: CheckContext) -> Diagnoses:
    """A loss is negated as a whole, or the logarithms of probabilities are minimised, and the model is trained with that.

    An optimizer goes down: of a negated error it makes a large one, and of the mean logarithm of the right classes' probabilities
    minus infinity.

    How it is found: the graph shows what is between the loss and the output, where it is nothing but a mean, a sum, a number or a
    change of sign; and one optimizer holds all parameters that are reached. Where it does not, as in a generator that works
    against its discriminator, it is meant.

    What to do: leave out the minus; or put one before the mean of logarithms, as `nll_loss` does.

    When to ignore it: when the model is to forget something.

    ```python
    import torch

    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        chances = model(torch.ones(2, 4)).log_softmax(1)
        loss = chances.gather(1, torch.tensor([[0], [2]])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    graph = context.graph
    if len(graph.roots) != 1 or not _held_by_one(context):
        return
    node, minus = graph.roots[0].node, 0
    while node is not None and node not in graph.leaf_of:
        kind, edges = _kind(graph, node), graph.inputs(node)
        wrong = (kind in _NOT_BELOW_ZERO and minus % 2) or (
            kind in _CHOOSE and not minus % 2 and _of_logarithms(graph, node)
        )
        if wrong:
            yield _negated(graph, node, kind in _CHOOSE)
        numbers = all(slot.tensor is None or slot.tensor.shape == () for slot in graph.nodes[node].saved)
        if kind not in ("Neg", "Mean", "Sum", "Div", "Mul", *_SHAPES) or len(edges) != 1 or not numbers:
            return
        node, minus = edges[0].producer, minus + (kind == "Neg")


_CHOOSE = ("Gather", "Index")


def _held_by_one(context: CheckContext) -> bool:
    """Whether one optimizer holds all parameters that are reached, and goes down."""
    nodes = {leaf.node for leaf in context.graph.leaves if leaf.kind == "parameter"}
    mine = [set(nodes_of(optimizer.tensors)) for optimizer in context.optimizers if not optimizer.maximizes]
    return bool(nodes) and any(nodes <= held for held in mine)


def _of_logarithms(graph: Graph, node: int) -> bool:
    made = graph.inputs(node)
    return bool(made) and _kind(graph, made[0].producer) == "LogSoftmax"


def _negated(graph: Graph, node: int, logarithms: bool) -> Diagnosis:
    source = own_line(graph.nodes[graph.roots[0].node or 0])
    what = "the mean logarithm of the chosen probabilities" if logarithms else "minus an error that is never below zero"
    return Diagnosis(
        "the sign of the loss is wrong: training makes it worse",
        (graph.roots[0].name,),
        f"backward() begins at {what}, of {title_and_code(graph, node)}: each step makes "
        + ("the right classes less likely" if logarithms else "the error larger"),
        "Put a minus before it: minimise -log_probability. Or use torch.nn.functional.nll_loss."
        if logarithms
        else "Leave out the minus.",
        (node,),
        source=source,
    )


@check("broadcast", "warning", "a column and a row broadcast to a square, and all of it is averaged")
def broadcast(context: CheckContext) -> Diagnoses:
    """Tensors of the shapes (n, 1) and (n,) are computed with each other: broadcasting makes (n, n) of them.

    No error says so, and the mean of all is one number as before. The loss is least where every prediction is the mean of the
    targets. In advantages, masks, weights and accuracies it does as much harm.

    How it is found: the shapes of element by element operations, with a graph or without; the result is followed to a mean or a
    sum of all of it. In a notebook the graph alone shows it, of differences. A column that the same line makes, as in
    `x[:, None] - y`, is meant.

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
    yield from told(context, "broadcast", "joins all")
    spread = (node.id for node in context.graph.nodes if _named(node.op) in _DIFFERENCES)
    first = next((node for node in spread if context.call is None and _is_spread(context.graph, node)), None)
    if first is not None:  # of a graph alone: no call was seen
        yield _spread(context.graph, first)


_DIFFERENCES = ("Sub", "Rsub", "MseLoss", "SmoothL1Loss", "HuberLoss")


def _is_spread(graph: Graph, node: int) -> bool:
    """Whether a column of predictions is compared with a row of targets, so that each meets each, and all of it is averaged."""
    edges = graph.inputs(node)
    if len(edges) != 1 or graph.nodes[node].none_inputs != 1:
        return False
    given = edges[0]
    column = graph.inputs(given.producer)[0] if _kind(graph, given.producer) == "Expand" else given
    if _kind(graph, node) in ("Sub", "Rsub"):
        made = _shape(graph, node, 0)
        user = _user(graph, node)
        averaged = user is not None and _kind(graph, user) in ("Pow", "Abs") and _ends(graph, user)
    else:
        made, averaged = _shape(graph, given.producer, given.output), True
    before = _shape(graph, column.producer, column.output)
    return averaged and made is not None and len(made) == 2 and made[0] == made[1] > 1 and before == (made[0], 1)


def _ends(graph: Graph, node: int) -> bool:
    """Whether what follows is a mean or a sum over all of it."""
    user = _user(graph, node)
    return user is not None and _kind(graph, user) in ("Mean", "Sum") and _shape(graph, user, 0) == ()


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
    diagnosis = _wrong(graph, title_and_code(graph, user), place(graph, user), made, pair)
    return diagnosis._replace(nodes=(user, made) if pair.at_user else (made, user))


def _wrong(graph: Graph, user: str, at: str, made: int, pair: _Pair) -> Diagnosis:
    by = _kind(graph, made).lower()
    return Diagnosis(
        pair.summary,
        (),
        f"{user} gets what {title_and_code(graph, made)} made; {pair.why.format(by=by)}",
        pair.fix.format(by=by, log="logsigmoid" if by == "sigmoid" else f"log_{by}"),
        (made,),
        where=at if pair.at_user else place(graph, made),
    )


def _made(graph: Graph, node: int, pair: _Pair) -> int | None:
    """What made the first input of a loss, when it is one of those of a pair."""
    if set(pair.user) & set(_WANT_LOGARITHMS):
        edges = graph.inputs(node)
        return _origin(graph, edges[0].producer, pair.made_by) if edges else None
    made = _maker(graph, node)
    return made if made is not None and _kind(graph, made) in pair.made_by else None


_MOST = 100  # operations between a loss and what made its input


def _origin(graph: Graph, node: int, kinds: tuple[str, ...]) -> int | None:
    """The first of the operations that all ways behind a node end at, when all are of these kinds. Leaves are left out.

    A product counts as a layer only with a weight that is a leaf: of logarithms, one with given numbers makes other logarithms.
    """
    ends: list[int] = []
    waiting = [node]
    for at in waiting:  # grows while it is read
        kind = _kind(graph, at)
        if kind in kinds and (kind not in _PRODUCTS or _has_weight(graph, at)):
            ends.append(at)
        elif kind not in _PASSED or len(waiting) > _MOST:
            return None
        else:
            new = (edge.producer for edge in graph.inputs(at) if edge.producer not in graph.leaf_of)
            waiting += [producer for producer in dict.fromkeys(new) if producer not in waiting]
    return ends[0] if ends else None


def _has_weight(graph: Graph, node: int) -> bool:
    for producer in (edge.producer for edge in graph.inputs(node)):
        while producer not in graph.leaf_of and _kind(graph, producer) in _SHAPES and graph.inputs(producer):
            producer = graph.inputs(producer)[0].producer
        if producer in graph.leaf_of:
            return True
    return False


def _sums_rows(graph: Graph, node: int) -> bool:
    """Whether a matrix is added up over its second dimension, as the terms of a cross entropy with soft targets are."""
    edges, dims = graph.inputs(node), graph.nodes[node].attributes.get("dim")
    before = _shape(graph, edges[0].producer, edges[0].output) if len(edges) == 1 else None
    return (
        before is not None and len(before) == 2 and isinstance(dims, tuple) and [_dimension(d, 2) for d in dims] == [1]
    )


_ELEMENTWISE = ("Log", "Add", "Mul", "Div", "Clamp", "ClampMin", "ClampMax", "Neg", "Clone", "Alias", "ToCopy")


def _across(graph: Graph, loss: int) -> Diagnosis | None:
    """A softmax over another dimension than the one that a loss, or a gather for each row, picks its classes in.

    The dimension is followed through changes of shape. Where the two have one size, nothing is said: a matrix of similarities is
    compared in both directions.
    """
    edge = next(iter(graph.inputs(loss)), None)
    shape = _shape(graph, edge.producer, edge.output) if edge is not None else None
    if edge is None or shape is None or len(shape) < 2:
        return None
    picked = _picked(graph, loss, shape)
    while picked is not None:
        node = edge.producer
        if _kind(graph, node) in ("LogSoftmax", "Softmax"):
            dim = _dimension(graph.nodes[node].attributes.get("dim"), len(shape))
            if dim is None or dim == picked or shape[dim] == shape[picked] or shape[picked] == 1:
                return None
            return _wrong_dimension(graph, loss, node, shape, (dim, picked))
        inputs = graph.inputs(node)
        before = _shape(graph, inputs[0].producer, inputs[0].output) if len(inputs) == 1 else None
        if before is None:
            return None
        picked = _same_dimension(graph, node, picked, before, shape)
        edge, shape = inputs[0], before
    return None


def _picked(graph: Graph, loss: int, shape: tuple[int, ...]) -> int | None:
    """The dimension of its input in which a loss, or a gather of one for each row, picks the classes."""
    record = graph.nodes[loss]
    if not record.op.startswith("Gather"):
        return 1
    chosen = _dimension(record.attributes.get("dim"), len(shape))
    if chosen is None or _shape(graph, loss, 0) != (*shape[:chosen], 1, *shape[chosen + 1 :]):
        return None
    return chosen


def _same_dimension(graph: Graph, node: int, dim: int, before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """Which dimension of what a node was given became this one of what it made; None where that is not known."""
    kind, attributes = _kind(graph, node), graph.nodes[node].attributes
    if kind in _ELEMENTWISE:
        return dim if before == after else None
    if kind == "T":
        return 1 - dim
    if kind == "Transpose":
        pair = [_dimension(attributes.get(name), len(before)) for name in ("dim0", "dim1")]
        if None in pair:
            return None
        return pair[1 - pair.index(dim)] if dim in pair else dim
    if kind in ("View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze"):
        alike = (i for i, size in enumerate(before) if size == after[dim] > 1)
        return next((i for i in alike if prod(before[:i]) == prod(after[:dim])), None)
    return None


def _dimension(value: object, count: int) -> int | None:
    """A dimension as autograd keeps it, counted from the first one."""
    if not isinstance(value, int):
        return None
    value = value - 2**64 if value >= 2**63 else value
    return value % count if -count <= value < count else None


def _wrong_dimension(graph: Graph, loss: int, node: int, shape: tuple[int, ...], dims: tuple[int, int]) -> Diagnosis:
    name = "softmax" if graph.nodes[node].op.startswith("Softmax") else "log_softmax"
    dim, picked = dims
    what = "the batch" if dim == 0 else f"dimension {dim}"
    return Diagnosis(
        f"{name} is taken over {what}, and the classes are picked in dimension {picked}",
        (),
        f"{title_and_code(graph, node)} runs over dimension {dim} of {shape}, so the probabilities of one sample do not add up to "
        f"1; {title_and_code(graph, loss)} picks one of the {shape[picked]} in dimension {picked} for each",
        f"Take it over the classes: dim={picked} in place of dim={dim}.",
        (node, loss),
        where=place(graph, node),
    )


def _kind(graph: Graph, node: int) -> str:
    return _named(graph.nodes[node].op)


def _named(op: str) -> str:
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
        if _kind(graph, node) not in _SHAPES:
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
        if _kind(graph, node) not in _SHAPES:
            return node


def _single(graph: Graph, node: int) -> bool:
    """Whether a softmax runs over a dimension of size 1, on its way into a loss: in an attention there may be one key only."""
    made = next((output for output in graph.nodes[node].outputs if output is not None), None)
    if made is None or made.shape is None or len(made.shape) < 2:
        return False
    user = _user(graph, node)
    if user is None or _kind(graph, user) not in _LOSSES:
        return False
    dim = _dimension(graph.nodes[node].attributes.get("dim"), len(made.shape))
    return dim is not None and made.shape[dim] == 1
