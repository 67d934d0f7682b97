"""Checks on what a loss is given: probabilities where it wants scores, and the like.
Looks at the graph, the code, and what losses were given.
"""

from __future__ import annotations

import ast
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from functools import partial
from itertools import islice, zip_longest

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import RESHAPES, behind, kind, makers, shape, spread, users
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check, told
from gradviz.checks.run import Kind, LossArguments
from gradviz.checks.words import first_names, made_at, title_and_code, where as place
from gradviz.graph import Graph, SourceLine
from gradviz.source.statements import called, expressions_at, written_at

_LAYERS = frozenset(
    [
        "Addmm",
        "Convolution",
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


_NO_LOG = Row(
    "kl_div is given probabilities, and wants their logarithm first",
    "{code} gives it what {by} made, so that it is no divergence: it is below 0, and least elsewhere",
    "In {line}, give it log_softmax() in place of {by}(); the second argument stays a probability.",
)
_SCORES = (
    "Give the scores themselves to the loss: leave out this {by}. Where probabilities are wanted, as for printing, compute them "
    "there."
)
_MADE = "{loss} gets what {maker} made; "
_PAIRS: dict[tuple[str, Collection[str]], Row] = {
    ("LogSoftmax", ("Softmax", "Sigmoid")): Row(
        "softmax is taken of a {by}",
        f"{_MADE}cross entropy takes log_softmax of its input itself; of probabilities, which lie between 0 and 1, that is nearly "
        "flat: the loss cannot come near 0, and gradients are small",
        _SCORES,
    ),
    ("BinaryCrossEntropyWithLogits", ("Sigmoid", "Softmax")): Row(
        "the sigmoid is taken twice",
        f"{_MADE}binary_cross_entropy_with_logits takes the sigmoid of its input itself; of numbers between 0 and 1 that lies "
        "between 0.5 and 0.73, whatever the model says",
        _SCORES,
    ),
    ("NllLoss", ("Softmax", "Sigmoid")): Row(
        "nll_loss is given probabilities, not their logarithms",
        f"{_MADE}it takes the logarithm of nothing: it averages minus the number that stands at each target, and that is bounded "
        "by -1",
        "Use log_softmax in place of this {by}; or give the scores themselves to torch.nn.CrossEntropyLoss.",
    ),
    ("NllLoss", _LAYERS): Row(
        "nll_loss is given scores, not logarithms of probabilities",
        f"{_MADE}it averages minus the number that stands at each target: scores can make that as negative as they like, so the "
        "loss falls without end",
        "Use torch.nn.CrossEntropyLoss in place of NLLLoss, or put log_softmax(scores, dim=1) before it.",
    ),
}
"""An operation that is directly behind one of others, and what is wrong with that."""


_SHAPES = Row(
    "{function} compares {given} with {target}: they broadcast to {result}",
    "{code} gives it an input of shape {given} and a target of shape {target}, so each element is compared with several others",
    "Give both one shape{mend}.",
)
_ONE_CLASS = Row(
    "cross_entropy of a single class is always 0",
    "{code} gives it scores of shape {given}: softmax over a single one is 1, whatever the model says",
    "Use torch.nn.BCEWithLogitsLoss for one score for each sample; or let the model give a score for each class.",
)
_TARGET = Row(
    "the target of {function} has a graph: this term trains {names}, too",
    "{code} compares with {target}, which was computed from {names} with recording on, so backward() pulls the target towards the "
    "prediction as well",
    "Cut the target: use ({target}).detach() in {line}, or compute it under torch.no_grad().",
)
_WEIGHT = Row(
    "{weight} has a graph where it weighs a log probability: this term trains {names}, too",
    "{code} multiplies by {weight}, which was computed from {names} with recording on: what judges the actions is changed so that "
    "they look better",
    "In {line}, use ({weight}).detach().",
)
_MOVES = Row(
    "the log probability of this sample has no gradient in the mean: both move alike",
    "{code} takes log_prob of what rsample() gave, which is the mean and noise: their difference does not change, and "
    "what weighs it pulls at the spread alone",
    "Draw with sample() where a log probability is weighed by a reward; rsample() is for losses that are computed from the sample.",
)
_OLD = Row(
    "{old} has a graph: this term trains {names} through it, too",
    "{code} compares with {old}, which was computed from {names} with recording on: where both move alike, their gradients "
    "cancel",
    "Keep {old} without its graph: .detach() where it is computed, or compute it under torch.no_grad().",
)
_ITSELF = Row(
    "{first} and {second} are one tensor: their difference is always 0",
    "{code} takes a tensor from itself, so that this term is 0 and trains nothing",
    "Keep a copy of the one that is to stay as it is: .detach().clone() where it is noted.",
)
_DRAWN = {
    Kind.DRAWN: Row(
        "the loss expects {0}, and the input was computed from other numbers",
        "{code} calls {1}(), which draws {0} of its own; nothing can be learned about the one that the loss compares with",
        "In {line}, let both be one: {2}, which {1}() uses in place of its own.",
    )
}
_COLLAPSES = Row(
    "the loss is least where {names} give one result for every input",
    "{code} compares two results that both train them, and nothing else is in the loss that tells inputs apart",
    "Use .detach() on the one that is to be the target; or add pairs that are to differ.",
)
_ADDING = RESHAPES | {"Add", "Sub", "Rsub", "Sum", "Mean", "Neg", "Stack"}
_COLUMN = ": .squeeze(1) on the one with two dimensions"
_OTHER = ", where they are made: a missing sum or mean over a dimension, .squeeze(-1) or .unsqueeze(-1)"
_SAME_SHAPE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
_CODE = {
    "Mul": "*",
    "Sub": "-",
    "MseLoss": "mse_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "HuberLoss": "huber_loss",
}
"""What is written for an operation of two operands."""
_OPERATORS = {"*": ast.Mult, "-": ast.Sub}
_COMPARES = _CODE.keys() - {"Mul"}
_AIM = re.compile(r"(target|teacher|expected|bellman|td_|next_(q|v|state_v))", re.I)
"""What people call what a prediction is to come to."""
_LOG = re.compile(r"log_?p(rob|i)?s?\b|log_?probs?_?\w*", re.I)
_JUDGE = re.compile(r"\b(\w*adv\w*|delta|td_\w+|returns?)\b", re.I)
"""Log probabilities, and what weighs them."""
_BEFORE = re.compile(r"(\b|_)old|prev|behavio|buffer|\bb_", re.I)
"""What people call the log probabilities of the policy that has acted."""


@check("loss-input", "warning", "a loss is given something else than it expects")
def loss_input(context: BackwardCall) -> Diagnoses:
    """A loss gets probabilities where it takes scores, or scores where it takes
    logarithms, or scores of a single class; shapes that only broadcast; a target, the
    weight of a log probability, or that of an earlier policy, that has a graph; or a
    tensor is compared with itself, or with noise that nothing was computed from, since a
    function drew it a second time. Or nothing is in it but the similarity of two results
    of the same parameters, both of which it trains, so that one result for every input is
    the best one.

    `CrossEntropyLoss` and `BCEWithLogitsLoss` take scores and apply softmax or sigmoid
    themselves; `NLLLoss` takes logarithms of probabilities; `BCELoss` takes
    probabilities. Training still runs with the wrong one, and goes nowhere.

    How it is found: The graph shows which operation made the input of the loss, behind
    changes of shape and dtype. Calls of torch's losses are seen with what they are
    given; a target is one by the name that the line has for it, or since it is a softmax
    that weighs the logarithms of another network's. A log probability is one by its
    name, or where the line calls `log_prob()`; what weighs it is told of by its name,
    or where it is data less what a layer gave.

    What to do: Leave the extra softmax or sigmoid out, or use the loss that fits; give
    both arguments one shape; detach the target.

    When to ignore it: When the second softmax is meant, as a temperature of its own.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Softmax(dim=1))
    scores = model(torch.ones(2, 4))
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor([0, 2]))
    loss.backward()
    ```
    """
    pair = next(_pairs(context.graph), None)
    if pair is not None:
        yield pair
        return
    yield from _weights(context)
    yield from _soft_targets(context)
    yield from _own_samples(context.graph)
    yield from _differences(context)
    yield from _collapses(context)
    yield from told(context, _DRAWN)
    if context.is_last:
        yield from _arguments(context)


def _pairs(graph: Graph) -> Diagnoses:
    """Losses that get what is none of theirs to take."""
    for node in range(len(graph.nodes)):
        op = kind(graph, node)
        for (user, made_by), row in _PAIRS.items():
            producer = _origin(graph, node, made_by) if op == user else None
            if producer is None:
                continue
            # of scores, the line of the loss is the one to change
            at_loss = made_by is _LAYERS
            wrong, other = (node, producer) if at_loss else (producer, node)
            yield row.filled(
                (),
                by=kind(graph, producer).lower(),
                loss=title_and_code(graph, node),
                maker=title_and_code(graph, producer),
                nodes=(wrong, other),
                where=place(graph, wrong),
            )


def _weights(context: BackwardCall) -> Diagnoses:
    """What weighs a log probability and has a graph itself."""
    graph, optimized = context.graph, context.optimized
    for node, source, *factors in _written(graph, ("Mul",)):
        inputs = graph.inputs(node)
        if len(inputs) != 2:
            continue
        for weight, other, use in zip(factors, reversed(factors), inputs):
            judges = _JUDGE.search(weight) or _is_error(graph, use.producer)
            is_weight = judges and "detach" not in weight
            start = [use.producer] if is_weight and _LOG.search(other) else []
            trained = [leaf for leaf in behind(graph, start) if leaf in optimized]
            if trained:
                names = first_names(graph.leaf_of[leaf] for leaf in trained)
                found = _WEIGHT.filled(names, source, weight=weight)
                yield found._replace(nodes=(node,))
                break


def _soft_targets(context: BackwardCall) -> Diagnoses:
    """Probabilities that one network gives with a graph, and that weigh the logarithms
    of another one's, but not the other way round, too.
    """
    graph, optimized = context.graph, context.optimized
    told: dict[tuple[frozenset[int], frozenset[int]], Diagnosis] = {}
    entropies = set[frozenset[int]]()
    for node, source, *factors in _written(graph, ("Mul",)):
        made = [_made(graph, maker) for maker in makers(graph, node)]
        kinds = [kind(graph, each) for each in made]
        if sorted(kinds) != ["LogSoftmax", "Softmax"]:
            continue
        place = kinds.index("Softmax")
        target, given = (
            frozenset(leaf for leaf in behind(graph, [each]) if leaf in optimized)
            for each in (made[place], made[1 - place])
        )
        if target == given:
            entropies.add(target)
        elif given and shape(graph, made[0]) == shape(graph, made[1]):
            names = first_names(graph.leaf_of[leaf] for leaf in sorted(target))
            words = {"function": "the cross entropy", "target": factors[place]}
            found = _TARGET.filled(names, source, nodes=(node,), **words)
            told.setdefault((target, given), found)
    for (target, given), found in told.items():
        # a divergence takes the entropy off, too
        if (given, target) not in told and target not in entropies:
            yield found


def _own_samples(graph: Graph) -> Diagnoses:
    """Log probabilities that data weighs, of a sample that moves with the mean."""
    taken = {node for data in graph.data for node in data.nodes}
    for node in range(len(graph.nodes)):
        inputs = makers(graph, node) if kind(graph, node) == "Sub" else []
        if len(inputs) != 2:
            continue
        sample, mean = inputs
        moves = kind(graph, sample) == "Add" and mean in makers(graph, sample)
        # such as a critic that the sample is shown
        if not moves or users(graph, sample) != [node]:
            continue
        weighed = spread([node], lambda n: users(graph, n) if n not in taken else [])
        is_log = "log_prob(" in written_at(made_at(graph, node))
        if is_log and any(kind(graph, n) == "Mul" and n in taken for n in weighed):
            yield _MOVES.filled((), made_at(graph, node), nodes=(node,))


def _is_error(graph: Graph, node: int) -> bool:
    """Whether a node made the difference of data and what a layer predicts."""
    made = _made(graph, node)
    if kind(graph, made) not in ("Sub", "Rsub") or len(makers(graph, made)) != 1:
        return False
    return kind(graph, _made(graph, makers(graph, made)[0])) in _LAYERS


def _made(graph: Graph, node: int) -> int:
    """The node whose numbers one hands on in another shape."""
    while kind(graph, node) in RESHAPES and makers(graph, node):
        node = makers(graph, node)[0]
    return node


def _differences(context: BackwardCall) -> Diagnoses:
    """Log probabilities of an earlier policy that have a graph, and differences of a
    tensor with itself.
    """
    graph, told = context.graph, set[SourceLine]()
    for node, source, first, second in _written(graph, _COMPARES):
        inputs = graph.inputs(node)
        if source in told or len(inputs) != 2:
            continue
        one, other = ((use.producer, use.output) for use in inputs)
        if one == other and first != second:
            told.add(source)
            found = _ITSELF.filled((), source, first=first, second=second)
            yield found._replace(nodes=(node,))
        elif _LOG.search(first) and _BEFORE.search(second):
            leaves = [set(behind(graph, [use.producer])) for use in inputs]
            trained = set.intersection(*leaves) & context.optimized
            if trained:
                told.add(source)
                names = first_names(graph.leaf_of[leaf] for leaf in sorted(trained))
                yield _OLD.filled(names, source, old=second)._replace(nodes=(node,))


def _collapses(context: BackwardCall) -> Diagnoses:
    """A loss of nothing but cosines between results of the same parameters."""
    graph = context.graph
    added = partial(_added, graph)
    roots = [(root.node, False) for root in graph.roots if root.node is not None]
    terms = [term for term in spread(roots, added) if not added(term)]
    shared = [_compared(context, node) for node, _ in terms]
    trained = sorted(set[int]().union(*shared))
    # what is to be small pushes results apart
    is_pulled = all(is_negative for _, is_negative in terms)
    if trained and all(shared) and is_pulled:
        names = first_names(graph.leaf_of[leaf] for leaf in trained)
        nodes = tuple(node for node, _ in terms)
        yield _COLLAPSES.filled(names, made_at(graph, nodes[0]), nodes=nodes)


def _added(graph: Graph, term: tuple[int, bool]) -> list[tuple[int, bool]]:
    """What an operation adds up, or multiplies by a constant, each with whether it is
    taken from the whole.
    """
    node, is_negative = term
    op, uses = kind(graph, node), graph.inputs(node)
    is_scaled = op in ("Mul", "Div") and len(uses) == 1
    if not (is_scaled or op in _ADDING):
        return []
    taken = {"Neg": 0, "Rsub": 0, "Sub": 1}.get(op)
    return [(use.producer, is_negative != (use.position == taken)) for use in uses]


def _compared(context: BackwardCall, node: int) -> set[int]:
    """The trained leaves of both results whose cosine a node is a part of, where those
    of one are among those of the other.
    """
    graph, sides = context.graph, makers(context.graph, node)
    units = [side for side in sides if _is_unit(graph, side)]
    if kind(graph, node) != "Mul" or len(units) != 2:
        return set()
    one, other = (
        {leaf for leaf in behind(graph, [side]) if leaf in context.optimized}
        for side in units
    )
    return one & other if one <= other or other <= one else set()


def _is_unit(graph: Graph, node: int) -> bool:
    """Whether a result was divided by its norm."""
    inputs = makers(graph, node)
    if kind(graph, node) != "Div" or len(inputs) != 2:
        return False
    kept = RESHAPES | {"ClampMin"}
    divisor = spread(
        inputs[1:], lambda n: makers(graph, n) if kind(graph, n) in kept else []
    )
    return any(kind(graph, part) == "LinalgVectorNorm" for part in divisor)


def _written(
    graph: Graph, kinds: Collection[str]
) -> Iterator[tuple[int, SourceLine, str, str]]:
    """The operations of these kinds, each with its line and its two operands as they are
    written there. What a statement has several of ran in the order of the text; where
    there are more or fewer operations than that, none is certain.
    """
    within = {node: i for i, part in enumerate(graph.program) for node in part.nodes}
    made = defaultdict[tuple[SourceLine, int | None, str], list[int]](list)
    for node in sorted(graph.nodes, key=lambda node: node.sequence or 0):
        op, source = kind(graph, node.id), made_at(graph, node.id)
        if op not in kinds or source is None:
            continue
        inside, code = within.get(node.id), _CODE[op]
        part = graph.program[inside] if inside is not None else None
        # `log_prob()` of a distribution subtracts, too, in the line that calls it
        if part is not None and part.kind == "call":
            inside, code = part.parent, part.text
        made[source, inside, code].append(node.id)

    for (line, _, code), nodes in made.items():
        written = _operands(line, code)
        if len(nodes) == len(written):
            for number, operands in zip(nodes, written):
                yield number, line, *operands


def _operands(source: SourceLine, code: str) -> list[tuple[str, str]]:
    """The operands of each such operator or call that begins on a line, in the order in
    which they run.
    """
    found = dict[tuple[int, int], tuple[str, str]]()
    for node in expressions_at(source.file, source.line):
        end = node.end_lineno or 0, node.end_col_offset or 0
        if isinstance(node, ast.BinOp) and type(node.op) is _OPERATORS.get(code):
            if node.lineno == source.line:
                found[end] = ast.unparse(node.left), ast.unparse(node.right)
        elif isinstance(node, ast.Call) and called(node) == code in _SAME_SHAPE:
            found[end] = _given(node)
    return [operands for _, operands in sorted(found.items())]


def _given(call: ast.Call) -> tuple[str, str]:
    """What a call gives a loss of torch as its input and its target, as it is written;
    "" where `*` or `**` hides it.
    """
    given = {part.arg: part.value for part in call.keywords}
    given |= zip(("input", "target"), call.args)
    first, second = given.get("input"), given.get("target")
    is_hidden = any(isinstance(value, ast.Starred) for value in call.args)
    if first is None or second is None or is_hidden:
        return "", ""
    return ast.unparse(first), ast.unparse(second)


def _arguments(context: BackwardCall) -> Diagnoses:
    """What torch's own losses were given."""
    for (source, _), given in context.run.loss_arguments.items():
        if given.function == "kl_div" and given.made_by in ("Softmax", "Sigmoid"):
            yield _NO_LOG.filled((), source, by=given.made_by.lower())
        first, second = given.shapes
        if given.function == "cross_entropy" and first[1:2] == (1,):
            yield _ONE_CLASS.filled((), source, given=first)
        result = _broadcast(first, second)
        numbers = set(map(math.prod, (first, second, result)))
        differ = len(numbers) > 1 and 1 not in numbers
        if given.function in _SAME_SHAPE and differ:
            column = {len(first), len(second)} == {1, 2}
            yield _SHAPES.filled(
                (),
                source,
                mend=_COLUMN if column else _OTHER,
                function=given.function,
                given=first,
                target=second,
                result=result,
            )
        names = context.run.named(_trained_with(context, given))
        target = _target(source, given.function) if names else ""
        if _AIM.search(target):
            found = _TARGET.filled(
                names, source, function=given.function, target=target
            )
            yield found._replace(follows=("no-effect",))


def _trained_with(context: BackwardCall, given: LossArguments) -> set[int]:
    """The leaves behind a target that an optimizer holds beside some of the input."""
    trained = set[int]()
    for optimizer in context.run.optimizers:
        if not optimizer.current.isdisjoint(given.input_leaves):
            trained |= optimizer.current & given.leaves
    return trained


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that tensors of these shapes are computed in."""
    longest = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return tuple(max(sizes) for sizes in longest)[::-1]


def _target(source: SourceLine, function: str) -> str:
    """What the code gives a loss as its target, "" where its line does not show it."""
    for node in expressions_at(source.file, source.line):
        if isinstance(node, ast.Call):
            target = _given(node)[1]
            if target and (called(node) == function or "criterion" in called(node)):
                return target
    return ""


_MOST = 100  # operations between a loss and what made its input


def _origin(graph: Graph, loss: int, made_by: Collection[str]) -> int | None:
    """The first of the operations that all ways behind the first input of a loss end
    at, when all are of these kinds. Leaves are left out.
    """

    def is_end(member: int) -> bool:
        return kind(graph, member) in made_by

    def onward(member: int) -> list[int]:
        if is_end(member):
            return []
        return [maker for maker in makers(graph, member) if maker not in graph.leaf_of]

    ways = list(islice(spread(makers(graph, loss)[:1], onward), _MOST))
    ends = [member for member in ways if is_end(member)]
    # any other op on the way may have taken the logarithm
    others = {kind(graph, member) for member in ways if member not in ends}
    return ends[0] if ends and others <= RESHAPES else None
