"""Checks on what a loss is given: probabilities where it wants scores, and the like. Looks at the graph only."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import instead
from gradviz.checks.flow import behind, from_outputs
from gradviz.checks.ops import PRODUCTS, RESHAPES, kind, maker, makers, spread, user, users, weight
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.rules.misuse import BROADCAST, told
from gradviz.checks.rules.softmax import across
from gradviz.checks.words import Names, code, line, made_at, nodes_of, title_and_code, where as place
from gradviz.graph import Graph, SourceLine
from gradviz.source.code_line import assigned, leaving_out, without_graph
from gradviz.source.search import calls_of

_LAYERS = (
    *(*PRODUCTS, "Relu", "LeakyRelu", "Tanh", "Gelu", "Silu", "Elu", "NativeLayerNorm", "NativeBatchNorm"),
    *("CudnnBatchNorm", "MkldnnRnnLayer", "CudnnRnn"),
)
_CHANCES = ("Softmax", "Sigmoid")
_COMMON = (
    "Add Sub Mul Div Neg Mean Sum NativeDropout Cat Stack Select Index IndexSelect Clamp ClampMin ClampMax "
    "AdaptiveAvgPool2D UpsampleBilinear2D UpsampleNearest2D"
)
_PASSED = RESHAPES.union(_COMMON.split())
"""What makes no logarithm of anything, on the way from a layer to a loss that wants logarithms."""


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
        ("Logsumexp",),
        ("Softmax",),
        "softmax is taken twice",
        "a distribution of logits takes log_softmax of them itself; of probabilities, between 0 and 1, that is nearly flat",
        "Pass them as Categorical(probs=...), in place of logits; or give it the scores, without this {by}.",
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
        "can be below zero",
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
    does where `log_softmax` runs over another dimension than the one in which the loss picks its classes; and where the loss trains
    its own target, as of a value function that looks ahead, or of a teacher.

    How it is found: The graph shows which operation made the input of the loss, behind changes of shape and dtype; for losses that
    want logarithms, also behind sums and products, of which none is one. A target is trained along where it is data and a multiple
    of what the same parameters say of other data; or where nothing but the target of a `kl_div` or of a cross entropy reaches
    parameters that an optimizer holds; or where an error between two networks is all that one optimizer trains both by.

    What to do: Leave the extra softmax or sigmoid out, or use the loss that fits. Compute targets under `torch.no_grad()`.

    When to ignore it: When the second softmax is meant, as a temperature of its own; or residual gradients are.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(dim=1))
    scores = model(torch.ones(2, 4))
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor([0, 2]))
    loss.backward()
    ```
    """
    found = chain(
        _in_graph(context.graph),
        _in_calls(context),
        _chased(context),
        told(context, _GIVEN),
    )
    yield from islice(found, 1)


def _in_graph(graph: Graph) -> Iterator[Diagnosis]:
    for node in graph.nodes:
        op = kind(graph, node.id)
        for pair in _PAIRS:
            made = _made(graph, node.id, pair) if op in pair.user else None
            if made is not None:
                yield _wrong(graph, title_and_code(graph, node.id), place(graph, node.id), made, pair)._replace(
                    nodes=(node.id, made) if pair.at_user else (made, node.id)
                )
        yield from filter(None, [across(graph, node.id)])


def _in_calls(context: CheckContext) -> Iterator[Diagnosis]:
    """Of `kl_div`, which leaves no node of its own."""
    graph = context.graph
    for node, source in context.given.items():
        for pair in _PAIRS:
            made = _origin(graph, node, pair.made_by) if "KlDiv" in pair.user else None
            if made is not None:
                yield _wrong(graph, f"kl_div in {code(source)}", line(source), made, pair)._replace(
                    source=source if pair.at_user else made_at(graph, made)
                )


def _wrong(graph: Graph, loss: str, at: str, made: int, pair: _Pair) -> Diagnosis:
    by, source, new = kind(graph, made).lower(), made_at(graph, made), ""
    log = "logsigmoid" if by == "sigmoid" else f"log_{by}"
    fix = pair.fix.format(by=by, log=log)
    if pair.fix is _SCORES:
        source, new = _left_out(graph, made, by)
    elif source is not None and "{log}" in pair.fix and source.text.count(f"{by}(") == 1:
        new = source.text.replace(f"{by}(", f"{log}(")
    edit = instead(source, new)
    moved = source is not None and source != made_at(graph, made)
    return Diagnosis(
        pair.summary,
        (),
        f"{loss} gets what {title_and_code(graph, made)} made; {pair.why.format(by=by)}",
        f"{fix} In {line(source)}: {new}." if edit is not None else fix,
        (made,),
        where=at if pair.at_user else line(source) if moved else place(graph, made),
        source=source if moved else None,
        edit=edit,
    )


def _left_out(graph: Graph, made: int, by: str) -> tuple[SourceLine | None, str]:
    """The line that calls what made a node, or that makes its module, and the same without that."""
    node, source = graph.nodes[made], made_at(graph, made)
    scope = graph.scopes[node.scope] if node.scope is not None else None
    names = [by, scope.path.rpartition(".")[2] if scope is not None else by]
    called = next(filter(None, (leaving_out(source, name) for name in names)), "")
    lines = calls_of(source.file, scope.type) if source is not None and scope is not None and not called else []
    alone = scope is not None and scope.type.lower() == by and len(lines) == 1
    return (lines[0], leaving_out(lines[0], scope.type)) if scope is not None and alone else (source, called)


def _made(graph: Graph, node: int, pair: _Pair) -> int | None:
    """What made the first input of a loss, when it is one of those of a pair."""
    if "NllLoss" in pair.user:
        given = makers(graph, node)
        return _origin(graph, given[0], pair.made_by) if given else None
    made = maker(graph, node)
    return made if made is not None and kind(graph, made) in pair.made_by else None


_MOST = 100  # operations between a loss and what made its input


def _origin(graph: Graph, node: int, kinds: Collection[str]) -> int | None:
    """The first of the operations that all ways behind a node end at, when all are of these kinds. Leaves are left out.

    A product counts as a layer only with a weight that is a leaf: of logarithms, one with given numbers makes other logarithms.
    """

    def is_end(at: int) -> bool:
        op = kind(graph, at)
        return op in kinds and (op not in PRODUCTS or weight(graph, at) is not None)

    def onward(at: int) -> list[int]:
        return [] if is_end(at) else [maker for maker in makers(graph, at) if maker not in graph.leaf_of]

    ways = list(islice(spread([node], onward), _MOST))
    ends = [at for at in ways if is_end(at)]
    return ends[0] if ends and all(kind(graph, at) in _PASSED for at in ways if at not in ends) else None


_ERRORS = ("MseLoss", "L1Loss", "SmoothL1Loss", "HuberLoss")
_NOT_BELOW_ZERO = (*_ERRORS, "NllLoss", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits")
_OWN = Row(
    "the network trains its own target: the target has a graph",
    "{0} compares the output with data plus a multiple of what the same parameters say of other data, and both have a graph: each "
    "step also moves the target towards the prediction",
    "Compute the target under torch.no_grad(), or detach it: {1}.",
)
_TEACHER = Row(
    "the loss trains its soft target: nothing else trains what computes it",
    "{0} takes probabilities with a graph for its target, and that is all that the parameters behind them learn from: these follow "
    "the predictions, which are to follow them",
    "Leave its network out of the optimizer, and detach what it computes: {1}.",
)
_BOTH = Row(
    "the loss trains its target, and nothing tells either side what is right",
    "{0} compares what two networks compute, each with parameters of its own that learn from nothing else: the same numbers for "
    "any input make it 0",
    "Leave the network that is to be followed out of the optimizer, and detach what it computes: {1}.",
)


def _chased(context: CheckContext) -> Diagnoses:
    """Comparisons with a target that the loss trains as well."""
    graph = context.graph
    for node in range(len(graph.nodes)):
        found = (_OWN, _bootstrapped(graph, node)), (_TEACHER, _taught(context, node)), (_BOTH, _alike(context, node))
        for row, target in found:
            if target is not None:
                source, at = made_at(graph, target), made_at(graph, node)
                if source is None or at is None or source.function != at.function:
                    source = at
                new = without_graph(source, 0) if source != at and len(assigned(source)) == 1 else ""
                yield row.told((), source, code(at), new or "target.detach()")._replace(
                    nodes=(node, target), edit=instead(source, new)
                )


def _bootstrapped(graph: Graph, node: int) -> int | None:
    """What an output is compared with, where it is data and a multiple of what the same network says of other data."""
    ends = makers(graph, node) if kind(graph, node) in (*_ERRORS, "Sub") else []
    for end, other in zip(ends, reversed(ends)):
        own = _multiplied(graph, end)
        if own is not None and _multiplied(graph, other) is None:
            mine = {*behind(graph, [other])}
            if mine.intersection(behind(graph, [own])) == mine & graph.leaf_of.keys():
                return end  # all parameters are in both, and no operation
    return None


def _multiplied(graph: Graph, node: int) -> int | None:
    """What a sum with data has a multiple of."""
    for op in ("Add", "Mul"):
        while kind(graph, node) in RESHAPES:
            node = makers(graph, node)[0]
        if kind(graph, node) != op or graph.nodes[node].none_inputs != 1:
            return None
        (node,) = makers(graph, node)
    return node


def _taught(context: CheckContext, node: int) -> int | None:
    """The last layer of a network that learns only from being the target of this kl_div or cross entropy.

    Both multiply a log_softmax by their target; kl_div does one thing more with it.
    """
    graph = context.graph
    loss, ends = user(graph, node), makers(graph, node)
    soft = [end for end in ends if kind(graph, end) != "LogSoftmax"]
    if loss is None or kind(graph, node) != "Mul" or not len(soft) == 1 < len(ends):
        return None
    alone, uses = {*behind(graph, soft)}.difference(from_outputs(graph, soft)), makers(graph, loss)
    layers = [one for one in alone if kind(graph, one) in PRODUCTS]
    judged = kind(graph, uses[0]) == "Xlogy" or graph.nodes[loss].op == "SumBackward0"  # of all elements
    if judged and not {*users(graph, *soft)}.difference(uses) and not alone.isdisjoint(context.optimized):
        return min(layers, default=None)
    return None


def _alike(context: CheckContext, node: int) -> int | None:
    """The target of an error between two networks, both of which one optimizer trains by nothing else."""
    graph = context.graph
    ends = makers(graph, node) if kind(graph, node) in _ERRORS else []
    if len(ends) < 2:
        return None
    outside = spread(ends, lambda at: () if kind(graph, at) in PRODUCTS else makers(graph, at))
    if any(kind(graph, at) in ("Add", "Sub") and graph.nodes[at].none_inputs for at in outside):
        return None  # data is added to what a network computes, as a reward: that tells what is right
    sides = [{weight(graph, one) for one in behind(graph, [end]) if kind(graph, one) in PRODUCTS} for end in ends]
    beside = from_outputs(graph, [node])
    for held in ({*nodes_of(optimizer.tensors)} - {None} for optimizer in context.at_work):
        first, second = (held.intersection(side) for side in sides)
        if first and second and first.isdisjoint(second) and held.isdisjoint(beside):
            return ends[1]
    return None


_OF_ONE = Row(
    "{0} is taken over a single element",
    "{code} computes {0} over dimension {1} of {2}, which has size 1: it is the same number whatever it gets, and what is "
    "before it gets no gradient",
    "Take it over the dimension of the classes or steps, in place of dim={1}; for one score each, use torch.sigmoid.",
)
_STEPS = "Take it over the steps, dim=1 in place of dim={1}, if the batch comes first."
_GIVEN = {
    "softmax of one": _OF_ONE,
    "softmax of each": _OF_ONE._replace(fix=_STEPS, passes=("dim=1", "{0}", "Softmax", "LogSoftmax")),
    "one score": Row(
        "cross entropy is given a single score for each sample: it is 0 whatever that is",
        "{code} is given scores of shape {0}: a softmax over one class is always 1",
        "For two classes with one score, use torch.nn.BCEWithLogitsLoss()(scores, labels.float().view_as(scores)). Or let "
        "the last layer return a score for each class.",
    ),
    "trained weight": Row(
        "what weighs log_prob() is trained by it: .detach() is missing",
        "{code} multiplies log_prob() by a tensor with a graph of its own: the loss moves what that is computed from, such as a "
        "critic, to where the product is least, in place of leaving it to its own loss",
        "Detach the weight: .detach() of what log_prob() is multiplied by, in {text}.",
    ),
    "no logarithms": Row(
        "ctc_loss is given scores, not logarithms of probabilities",
        "the probabilities behind what {code} is given do not add up to 1: the loss can become negative without end",
        "Put log_softmax before it: ctc_loss(scores.log_softmax(-1), ...).",
    ),
    "weighs the frequent": Row(
        "the loss weighs the frequent class most: its weights are the inverse of what balances the classes",
        "the largest weight in {code} is {0} times the smallest, and so are the classes: one came {1} times, one {2} times",
        "Invert the weights: weight = counts.sum() / counts, or pos_weight = negatives / positives.",
    ),
}  # fmt: skip


_MINUS = (
    Row(
        "the sign of the loss is wrong: training makes it worse",
        "backward() begins at minus an error that is never below zero, of {0}: each step makes the error larger",
        "Leave out the minus.",
    ),
    Row(
        "the sign of the loss is wrong: training makes it worse",
        "backward() begins at the mean logarithm of the chosen probabilities, of {0}: each step makes the right ones less likely",
        "Put a minus before it: minimise -log_probability. Or use torch.nn.functional.nll_loss.",
    ),
)
"""Of an error, and of logarithms."""


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
    (root,) = graph.roots
    minus, node = False, root.node
    while node is not None and node not in graph.leaf_of:
        chosen = kind(graph, node) in ("Gather", "Index") and kind(graph, makers(graph, node)[0]) == "LogSoftmax"
        if kind(graph, node) in _NOT_BELOW_ZERO if minus else chosen:
            source, sign = made_at(graph, root.node), ("= ", "= -")
            new = source.text.replace(*(sign if chosen else sign[::-1]), 1) if source is not None else ""
            found = _MINUS[chosen].told((root.name,), source, title_and_code(graph, node))
            yield found._replace(nodes=(node,), edit=instead(source, new))
        minus, node = minus ^ (kind(graph, node) == "Neg"), _scaled(graph, node)


def _scaled(graph: Graph, node: int) -> int | None:
    """What a mean, a sum, a number or a change of sign is taken of; None for other operations."""
    op, ends, saved = kind(graph, node), makers(graph, node), graph.nodes[node].saved
    numbers = all(slot.tensor is None or slot.tensor.shape == () for slot in saved)
    passed = op in RESHAPES or op in ("Neg", "Mean", "Sum", "Div", "Mul")
    return ends[0] if passed and len(ends) == 1 and numbers else None


def _held_by_one(context: CheckContext) -> bool:
    """Whether one optimizer holds all parameters that are reached, and goes down."""
    nodes = {leaf.node for leaf in context.graph.leaves if leaf.kind == "parameter"}
    mine = [set(nodes_of(optimizer.tensors)) for optimizer in context.optimizers if not optimizer.maximizes]
    return bool(nodes) and any(nodes <= held for held in mine)


@check("broadcast", "warning", "a column and a row broadcast to a square, and all of it is averaged")
def broadcast(context: CheckContext) -> Diagnoses:
    """Tensors of the shapes (n, 1) and (n,) are computed with each other: broadcasting makes (n, n) of them.

    No error says so, and the mean of all is one number as before. The loss is least where every prediction is the mean of the
    targets. In advantages, masks, weights and accuracies it does as much harm.

    How it is found: the shapes of element by element operations, with a graph or without; the result is followed to a mean or a
    sum of all of it. A column that the same line makes, as in
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
    yield from told(context, BROADCAST)
