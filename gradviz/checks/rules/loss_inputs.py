"""Checks on what a loss is given: probabilities where it wants scores, and the like.
Looks at the graph only.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import RESHAPES, kind, makers, spread
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import title_and_code, where as place
from gradviz.graph import Graph

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
        ("Softmax", "Sigmoid"),
        "softmax is taken of a {by}",
        "cross entropy takes log_softmax of its input itself; of probabilities, which lie between 0 and 1, that is nearly flat: "
        "the loss cannot come near 0, and gradients are small",
        _SCORES,
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
)


@check("loss-input", "warning", "a loss is given something else than it expects")
def loss_input(context: BackwardCall) -> Diagnoses:
    """A loss gets probabilities where it takes scores, or scores where it takes
    logarithms.

    `CrossEntropyLoss` and `BCEWithLogitsLoss` take scores and apply softmax or sigmoid
    themselves; `NLLLoss` takes logarithms of probabilities; `BCELoss` takes
    probabilities. Training still runs with the wrong one, and goes nowhere.

    How it is found: The graph shows which operation made the input of the loss, behind
    changes of shape and dtype.

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
            producer = _origin(graph, node, pair) if op == pair.user else None
            if producer is not None:
                yield _wrong(graph, node, producer, pair)
                return


def _wrong(
    graph: Graph,
    loss: int,
    producer: int,
    pair: _Pair,
) -> Diagnosis:
    by, member = kind(graph, producer).lower(), loss if pair.at_user else producer
    return Diagnosis(
        pair.summary.format(by=by),
        (),
        f"{title_and_code(graph, loss)} gets what {title_and_code(graph, producer)} made; {pair.why}",
        pair.fix.format(by=by),
        # `member`, then the other one of the two
        (member, loss + producer - member),
        where=place(graph, member),
    )


_MOST = 100  # operations between a loss and what made its input


def _origin(
    graph: Graph,
    loss: int,
    pair: _Pair,
) -> int | None:
    """The first of the operations that all ways behind the first input of a loss end
    at, when all are of those of a pair. Leaves are left out.
    """

    def is_end(member: int) -> bool:
        return kind(graph, member) in pair.made_by

    def onward(member: int) -> list[int]:
        if is_end(member):
            return []
        return [maker for maker in makers(graph, member) if maker not in graph.leaf_of]

    ways = list(islice(spread(makers(graph, loss)[:1], onward), _MOST))
    ends = [member for member in ways if is_end(member)]
    # any other op on the way may have taken the logarithm
    others = {kind(graph, member) for member in ways if member not in ends}
    return ends[0] if ends and others <= RESHAPES else None
