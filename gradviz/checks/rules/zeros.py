"""Checks for gradients of zeros, and for ReLUs that have died."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.finding import Severity
from gradviz.checks.ops import PRODUCTS, RESHAPES, kind, makers, spread, user, users
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.gradients import VALUES, read
from gradviz.checks.words import (
    as_code,
    code,
    first_names,
    line,
    listed,
    made_at,
    nodes_of,
    places,
)
from gradviz.graph import Graph, Leaf, SourceLine
from gradviz.wording import one_line

_TIMES_ZERO = re.compile(
    r"(?<![\w.)])0(?:\.0*)?\s*\*(?!\*)|(?<!\*)\*\s*0(?:\.0*)?(?![\w.])"
)
"""A factor of 0 as code spells it."""


_STOPS = ("Relu", "Mul", "Threshold", "Hardtanh", "Clamp", "Round", "Sign", "Floor")
"""What can make zeros of a gradient."""


_LEVELS = 8  # nodes that are looked at above a leaf, one above the other


class _Cause(NamedTuple):
    """What may have made the zeros: words on it, what to do, and how bad that is.
    {names}, {code} are filled in.
    """

    why: str
    fix: str
    severity: Severity | None = None


_FACTOR = _Cause(
    "{code} multiplies the term behind it by 0",
    "No change needed if the term only lets every parameter take part, as DistributedDataParallel asks. Else give it a weight.",
    "note",
)


_START = _Cause(
    "all elements of {names} are 0 themselves: where weights are multiplied with each other, as in LoRA's B @ A, the gradient of "
    "each is the other one times something, so they never move",
    "Begin with one factor of each product at zero and the other at random numbers: torch.nn.init.normal_({first}, std=0.02).",
)


_BEHIND_START = _Cause(
    "it comes only through layers whose weights are all 0 still, as those of a ControlNet are before the first step",
    "No change needed if these layers are to begin at zero: from the second step on the gradient passes them.",
    "note",
)
_STOP = _Cause(
    "backward computes a gradient for it, and every element is 0; on the way is {code}, which can stop it",
    "Look for dead ReLUs (all inputs negative), masks and factors of zero; for a layer that begins at zero it is normal in the "
    "first step.",
)


_NOTHING = _Cause(
    "backward computes a gradient for it, and every element is 0",
    "No change needed if the parameter cancels out, as the last bias does in a difference of two scores. Otherwise look for a "
    "factor of zero.",
    "note",
)


@check(
    "zero-gradient",
    "warning",
    "a parameter gets a gradient of zeros only",
    follows=("zero-derivative",),
    **VALUES,
)
def zero_gradient(context: BackwardCall) -> Diagnoses:
    """Every element of a parameter's gradient is exactly zero, although the parameter
    is in the graph.

    Two weights that are multiplied with each other and both begin at zero do that, dead
    ReLUs, a mask or a multiplication with zero, and rounding; without any of those on
    the way it is a note. With one layer that begins at zero (LoRA, zero-initialised
    residuals) it is expected at the first step: a parameter that gets a gradient at
    another of the backward calls is not reported.

    How it is found: The gradients are computed without writing `.grad`, and their
    elements counted that are exactly zero.

    What to do: Look for ReLUs whose inputs are all negative, for masks, for factors of
    zero, and for two layers in a row that both begin at zero.

    When to ignore it: When a layer begins at zero and the gradient comes with the
    second step. A factor of 0 that is written in the code, as in
    `loss + 0.0 * unused.sum()`, is a note.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
    torch.nn.init.constant_(model[0].bias, -100.0)
    loss = model(torch.ones(2, 3)).sum()
    loss.backward()
    ```
    """
    zero = [
        leaf
        for leaf in _leaves(context, zeros=True)
        if not context.run.nonzero.keys() & {*leaf.names}
    ]
    if zero:
        names = first_names(zero)
        cause, source = _zeroed(context, zero)
        yield Diagnosis(
            f"the gradient of {listed(names)} is all zero",
            names,
            cause.why.format(
                names=listed(names),
                code=code(source),
            ),
            cause.fix.format(first=as_code(names[0])) if names else cause.fix,
            nodes_of(zero),
            where=places(
                listed(dict.fromkeys(name.rpartition(".")[0] for name in names)),
                line(source),
            ),
            severity=cause.severity,
            source=source,
            follows=("loss-input",),
        )


def _zeroed(
    context: BackwardCall, zero: Sequence[Leaf]
) -> tuple[_Cause, SourceLine | None]:
    """What may have made the zeros, and the line that did."""
    if sum(leaf.node in context.zero_weights for leaf in zero) > 1:
        return _START, None
    if not context.run.looked and _behind_zero_weights(context, zero):
        return _BEHIND_START, None

    biases = all("bias" in name for name in first_names(zero))
    lines = _lines_that_stop(context.graph, _above(context.graph, nodes_of(zero)))
    written = [source for source in lines if _TIMES_ZERO.search(source.text)]
    if written:
        return _FACTOR, written[0]
    return (_STOP, lines[0]) if lines and not biases else (_NOTHING, None)


def _behind_zero_weights(context: BackwardCall, zero: Sequence[Leaf]) -> bool:
    """Whether each way from the outputs to these leaves leads through a layer whose
    weights are all zero.
    """
    graph = context.graph
    weighs = {user for leaf in context.zero_weights for user in users(graph, leaf)}
    layers = {
        user for i in weighs if kind(graph, i) == "T" for user in users(graph, i)
    } | weighs
    ways = {
        *spread(
            nodes_of(zero),
            lambda i: () if i in layers else users(graph, i),
        )
    }

    return not ways.isdisjoint(layers) and not any(
        root.node in ways - layers for root in graph.roots
    )


def _lines_that_stop(
    graph: Graph,
    nodes: Sequence[int],
) -> list[SourceLine]:
    """The lines of those operations that can make zeros of a gradient."""
    stops = (
        made_at(graph, node)
        for node in nodes
        if graph.nodes[node].op.startswith(_STOPS)
    )
    return [source for source in stops if source is not None]


def _above(
    graph: Graph,
    nodes: Sequence[int],
) -> list[int]:
    """Some nodes, and what they lead to, a few nodes up; in the order of the graph."""
    above = dict.fromkeys(nodes)
    for _ in range(_LEVELS):
        above |= dict.fromkeys(
            user for node in list(above) for user in users(graph, node)
        )
    return sorted(above)


def _leaves(context: BackwardCall, *, zeros: bool) -> list[Leaf]:
    """The parameters whose gradient is known to be all zero, or not to be."""
    return [
        leaf for leaf, gradient in read(context) if (gradient.zeros == 1.0) == zeros
    ]


# calls that were looked at, in which a gradient has to be zero as well
_AFTER = 3


_KEEPS = RESHAPES.union(
    (
        "NativeDropout",
        "Mul",
        "MaxPool2DWithIndices",
        "AvgPool2D",
        "AdaptiveAvgPool2D",
        "Mean",
    )
)
"""Kinds that give zeros where they are given zeros."""


@check(
    "dead-relu",
    "warning",
    "a layer of ReLUs has come to give zero for every input",
    follows=("nonfinite", "exploding-gradient"),
    reads_saved=True,
    **VALUES,
)
def dead_relu(context: BackwardCall) -> Diagnoses:
    """All ReLUs of a layer give zero for every sample: what is in front of them gets no
    gradient any more, and never recovers.

    A step that is too large does that, or inputs that are large numbers: the biases
    become so negative that nothing comes through.

    How it is found: The gradient of a weight behind ReLUs was other than zero, and from
    a call on it is exactly zero, while that of the bias beside it is not. What the
    weight is multiplied with is zero then. It has to stay so for several calls.

    What to do: Scale the inputs to about 1, lower the learning rate, or use LeakyReLU.

    When to ignore it: When the layer is switched off on purpose.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        x = torch.rand(16, 8) * 255
        loss = torch.nn.functional.cross_entropy(model(x), (x[:, 0] > 128).long())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    graph, died = context.graph, list[Leaf]()
    for lost in _leaves(context, zeros=True):
        last = context.run.nonzero.get(lost.names[0], 0) if lost.names else 0
        zero = sum(call > last for call in context.run.looked)
        if 0 < last < (context.call or 0) and zero >= _AFTER:
            died.append(lost)
    alive = set(nodes_of(_leaves(context, zeros=False)))
    fronts = ((leaf, _dead_in_front(graph, leaf.node, alive)) for leaf in died)
    leaf, relu = next(
        (found for found in fronts if found[1] is not None),
        (None, None),
    )
    if leaf is None or relu is None:
        return

    source, name = made_at(graph, relu), one_line(leaf.names[0])
    behind = set(spread([relu], lambda node: makers(graph, node)))
    names = (
        first_names(other for other in died if other.node in behind) or leaf.names[:1]
    )
    yield Diagnosis(
        f"the ReLUs in front of {name.rpartition('.')[0] or name} are dead: they give zero for every input",
        names,
        f"at backward call {context.call} and all that were looked at since, the gradient of {name} is exactly 0 and that of "
        "the bias beside it is not: what the weight is multiplied with is 0. Before, it had a gradient. Nothing in front of "
        f"{code(source)} learns any more",
        "Scale the inputs to about 1, as in x = (x - x.mean(0)) / x.std(0), and lower the learning rate, tenfold at a time; or "
        "use torch.nn.LeakyReLU, which lets a gradient through.",
        (relu, leaf.node),
        where=places(
            listed(dict.fromkeys(name.rpartition(".")[0] for name in names)),
            line(source),
        ),
        source=source,
    )


def _dead_in_front(
    graph: Graph,
    leaf: int,
    alive: set[int],
) -> int | None:
    """The ReLU whose results a weight is multiplied with, when a bias is added to the
    product that has a gradient.
    """
    product = user(graph, leaf)
    if product is None or kind(graph, product) not in PRODUCTS:
        return None

    given, after = makers(graph, product), user(graph, product)
    if after is not None and kind(graph, after) == "Add":
        added = makers(graph, after)
    else:
        added = []

    for node in given if alive.intersection([*given, *added]) else ():
        while kind(graph, node) in _KEEPS and len(graph.inputs(node)) == 1:
            node = graph.inputs(node)[0].producer
        if graph.nodes[node].op.startswith(("Relu", "Threshold")):
            return node

    return None
