"""Checks for gradients of zeros, and for ReLUs that have died."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

from gradviz.checks.call import BackwardCall
from gradviz.checks.finding import Severity
from gradviz.checks.ops import PRODUCTS, RESHAPES, kind, makers, spread, user, users
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.gradients import read
from gradviz.checks.words import Names, as_code, first_names, made_at, nodes_of
from gradviz.graph import Graph, Leaf, SourceLine
from gradviz.wording import one_line

_TIMES_ZERO = re.compile(
    r"(?<![\w.)])0(?:\.0*)?\s*\*(?!\*)|(?<!\*)\*\s*0(?:\.0*)?(?![\w.])"
)
"""A factor of 0 as code spells it."""
_STOPS = ("Relu", "Mul", "Threshold", "Hardtanh", "Clamp", "Round", "Sign", "Floor")
"""What can make zeros of a gradient."""
_NEAR = 30  # operations that are looked at above a leaf
_ZERO = "the gradient of {names} is all zero"
_START = Row(
    _ZERO,
    "all elements of {names} are 0 themselves: where weights are multiplied with each other, as in LoRA's B @ A, the gradient of "
    "each is the other one times something, so they never move",
    "Begin with one factor of each product at zero and the other at random numbers: torch.nn.init.normal_({first}, std=0.02).",
)
_STOP = Row(
    _ZERO,
    "backward computes a gradient for it, and every element is 0; on the way is {code}, which can stop it",
    "Look for dead ReLUs (all inputs negative), masks and factors of zero; let the gradient pass around round() and the like: x + "
    "(x.round() - x).detach(). For a layer that begins at zero it is normal in the first step.",
)
_NOTHING = Row(
    _ZERO,
    "backward computes a gradient for it, and every element is 0",
    "No change needed if layers begin at zero, as those of a ControlNet before the first step; if a factor of 0 only lets every "
    "parameter take part, as DistributedDataParallel asks; or if the parameter cancels out, as the last bias does in a "
    "difference of two scores.",
)


@check(
    "zero-gradient",
    "warning",
    "a parameter gets a gradient of zeros only",
    needs_values=True,
    once=True,
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
        if context.run.nonzero.keys().isdisjoint(leaf.names)
    ]
    if not zero:
        return

    names = first_names(zero)
    row, source = _zeroed(context, zero, names)
    severity: Severity = "note" if row is _NOTHING else "warning"
    first = as_code(next(iter(names), "weight"))
    yield row.filled(names, source, first=first)._replace(
        nodes=nodes_of(zero), severity=severity, follows=("loss-input",)
    )


def _zeroed(
    context: BackwardCall, zero: Sequence[Leaf], names: Names
) -> tuple[Row, SourceLine | None]:
    """What may have made the zeros, and the line that did."""
    # one layer that starts at zero is normal; two in a row never leave it
    if sum(leaf.node in context.zero_weights for leaf in zero) > 1:
        return _START, None

    graph, lines = context.graph, list[SourceLine]()
    above = spread(nodes_of(zero), lambda node: users(graph, node))
    for node in sorted(islice(above, _NEAR)):
        source = made_at(graph, node)
        if source is not None and graph.ops[node].startswith(_STOPS):
            lines.append(source)

    # only at the first call: a step would have moved them
    begins = context.zero_weights and not context.run.looked
    meant = begins or any(_TIMES_ZERO.search(source.text) for source in lines)
    # the last bias of a difference cancels out
    if meant or not lines or all("bias" in name for name in names):
        return _NOTHING, next(iter(lines), None)
    return _STOP, lines[0]


def _leaves(context: BackwardCall, *, zeros: bool) -> list[Leaf]:
    """The parameters whose gradient is known to be all zero, or not to be."""
    gradients = read(context)
    return [leaf for leaf, gradient in gradients if (gradient.zeros == 1.0) == zeros]


_AFTER = 3  # calls that were looked at, in which a gradient has to be zero as well
_KEEPS = RESHAPES | {"NativeDropout", "Mul", "MaxPool2DWithIndices", "AvgPool2D"}
_KEEPS |= {"AdaptiveAvgPool2D", "Mean"}
"""Kinds that give zeros where they are given zeros."""
_DEAD = Row(
    "the ReLUs in front of {module} are dead: they give zero for every input",
    "at backward call {call} and all that were looked at since, the gradient of {name} is exactly 0 and that of the bias beside "
    "it is not: what the weight is multiplied with is 0. Before, it had a gradient. Nothing in front of {code} learns any more",
    "Scale the inputs to about 1, as in x = (x - x.mean(0)) / x.std(0), and lower the learning rate, tenfold at a time; or use "
    "torch.nn.LeakyReLU, which lets a gradient through.",
)


@check(
    "dead-relu",
    "warning",
    "a layer of ReLUs has come to give zero for every input",
    follows=("nonfinite", "exploding-gradient"),
    reads_saved=True,
    needs_values=True,
    once=True,
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
    graph = context.graph
    alive = set(nodes_of(_leaves(context, zeros=False)))
    for leaf in _leaves(context, zeros=True):
        last = context.run.nonzero.get(leaf.names[0], 0) if leaf.names else 0
        zero = sum(call > last for call in context.run.looked)
        # a gradient that was never there may be zero by design
        died = 0 < last < (context.call or 0) and zero >= _AFTER
        relu = _dead_in_front(graph, leaf.node, alive) if died else None
        if relu is None:
            continue

        name = one_line(leaf.names[0])
        module = name.rpartition(".")[0] or name
        words = {"module": module, "name": name, "call": context.call}
        yield _DEAD.filled(leaf.names[:1], made_at(graph, relu), **words)._replace(
            nodes=(relu, leaf.node)
        )
        return


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

    inputs = makers(graph, product)
    # a bias with a gradient proves that backward arrived: so the input is 0
    if alive.isdisjoint(inputs):
        return None

    for node in inputs:
        while kind(graph, node) in _KEEPS and len(graph.inputs(node)) == 1:
            node = graph.inputs(node)[0].producer
        if kind(graph, node) in ("Relu", "Threshold"):
            return node

    return None
