"""Checks that read the numbers of gradients: those that explode, and those of zeros only,
where ReLUs have died.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from gradviz.checks.call import BackwardCall, LeafGradient
from gradviz.checks.ops import PRODUCTS, behind, kind, makers, spread, users
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.words import (
    Names,
    code,
    first_names,
    listed,
    made_at,
    nodes_of,
    verb,
)
from gradviz.graph import Leaf, SourceLine
from gradviz.graph.amounts import known_elements
from gradviz.wording import plural

# -- exploding-gradient ----------------------------------------------------------------

RATIO = 1e4
"""A gradient that is more than so many times that nearest to the output is huge."""
HUGE = 1e7
"""And one with a norm above this, even when those of all modules are. Loss scaling
stays below.
"""


class Layer(NamedTuple):
    """A weight with its gradient, root mean square and norm, and when and where it is
    used first.
    """

    order: int
    leaf: Leaf
    rms: float
    norm: float
    source: SourceLine | None


_EXPLODES = Row(
    "the gradient explodes: {count} of {total} get a huge one",
    "the gradient of {name} has a norm of {norm:.1e}; its root mean square is {rms:.1e}, and {reference:.1e} nearest to the "
    "output: a ratio of {ratio:.1e} (threshold {limit:g})",
    "Use normalisation, a smaller initialisation, or clip gradients with torch.nn.utils.clip_grad_norm_.",
)


@check(
    "exploding-gradient",
    "warning",
    "gradients grow without bounds on their way to the first modules",
    repeats=("nonfinite",),
    needs_values=True,
    once=True,
)
def exploding_gradient(context: BackwardCall) -> Diagnoses:
    """The gradient of a module is more than 1e4 times that of the module nearest to the
    output, or has a norm above 1e7.

    Compared are root mean squares over the weights of each module of one model, along
    the depth of the graph. One step of the optimizer then throws these modules far
    away.

    How it is found: The gradients are computed without writing `.grad`; root mean
    squares are compared module by module, from the output backwards.

    What to do: Normalise, initialise with smaller weights, or clip with
    `torch.nn.utils.clip_grad_norm_`.

    When to ignore it: When the loss is scaled by a large factor that is divided out
    before the update.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(12)))
    for layer in model:
        torch.nn.init.normal_(layer.weight, std=3.0)
    loss = model(torch.randn(4, 8)).mean()
    loss.backward()
    ```
    """
    for layers in _models(context):
        first, last = layers[0], layers[-1]
        # beside the main path, as in queries and keys, it does not count
        if not _is_huge(first, last):
            continue

        leaves = [layer.leaf for layer in layers if _is_huge(layer, last)]
        yield _EXPLODES.filled(
            first_names(leaves),
            first.source,
            count=plural(len(leaves), "weight"),
            total=len(layers),
            name=listed(first.leaf.names[:1]),
            rms=first.rms,
            norm=first.norm,
            reference=last.rms,
            ratio=first.rms / last.rms,
            limit=RATIO,
            nodes=nodes_of(leaves),
            follows=("wrong-backward",),
        )


def _is_huge(layer: Layer, last: Layer) -> bool:
    """Nearest to the output, nothing has been multiplied up yet."""
    return layer.rms > RATIO * last.rms or layer.norm > HUGE


def _read(context: BackwardCall) -> Iterator[tuple[Leaf, LeafGradient]]:
    """The parameters whose gradient is known and finite."""
    for gradient in context.leaf_gradients:
        leaf = context.graph.leaf_of[gradient.node]
        if leaf.kind == "parameter" and not gradient.nonfinite:
            yield leaf, gradient


def _models(context: BackwardCall) -> Iterable[list[Layer]]:
    """The weights of each model, in the order in which they ran."""
    graph, models = context.graph, dict[int | None, list[Layer]]()
    owner = {parameter.node: parameter.model for parameter in context.parameters}
    for leaf, gradient in _read(context):
        takers = users(graph, leaf.node)
        # a bias, or the scale of a norm, does not count
        if len(leaf.tensor.shape or ()) < 2 or not takers or not gradient.norm:
            continue

        # a tied weight is used in several places, and the first gives its depth
        first = min(takers, key=lambda node: graph.nodes[node].sequence or 0)
        order = graph.nodes[first].sequence or 0
        rms = gradient.norm / max(1, known_elements(leaf.tensor)) ** 0.5
        layer = Layer(order, leaf, rms, gradient.norm, made_at(graph, first))
        models.setdefault(owner.get(leaf.node), []).append(layer)

    return [sorted(layers, key=attrgetter("order")) for layers in models.values()]


# -- dead-relu -------------------------------------------------------------------------

_AFTER = 3  # calls that were looked at, in which a gradient has to be zero as well
_INPUTS = "the inputs to about 1, as in x = (x - x.mean(0)) / x.std(0)"
_SLOWER = f"Scale {_INPUTS}, and lower the learning rate, tenfold at a time"
_ANEW = (
    "Begin with weights on both sides of 0 and biases of 0, as torch.nn.init.kaiming_normal_() makes them, and "
    f"scale {_INPUTS}"
)
_OUTPUT = "Compute the loss from what goes into it: leave it out behind the last layer, or use it for what is shown alone"
_LEAKY = "; or use torch.nn.LeakyReLU, which lets a gradient through"
_DEAD = Row(
    "{what}, and {names} {learn} nothing",
    "at backward call {call} and all that were looked at since, {seen}, where the derivative is 0: no gradient comes "
    "through{before}",
    "{mend}.",
)
_RELU = "the ReLUs are dead: they give zero for every input", "0 for every input"
_WHAT = {
    "Relu": _RELU,
    "Sigmoid": ("the sigmoids are saturated", "exactly 0 or 1 for every input"),
    "Tanh": ("every tanh is saturated", "exactly -1 or 1 for every input"),
}
_CUT_OFF = (
    "every input is outside of the bounds of the clamp",
    "a bound for every input",
)


@check(
    "dead-relu",
    "warning",
    "a layer of ReLUs gives zero for every input, or another activation is saturated",
    repeats=("nonfinite", "exploding-gradient"),
    reads_saved=True,
    needs_values=True,
    once=True,
)
def dead_relu(context: BackwardCall) -> Diagnoses:
    """All ReLUs of a layer give zero for every sample: what is in front of them gets no
    gradient any more, and never recovers. Likewise sigmoids and tanh where they are
    flat, and a clamp of which every input is outside.

    A step that is too large does that, inputs that are large numbers, or the initial
    weights; or a ReLU behind the last layer.

    How it is found: A gradient is exactly zero, from the start or from a call on, and
    every path to it leads through activations whose derivative is 0 at every element.
    It has to stay so for several calls.

    What to do: Scale the inputs to about 1, lower the learning rate, or use LeakyReLU;
    have no ReLU, sigmoid or clamp between the last layer and a loss that needs none.

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
    lines = list(_dead_lines(context))
    if not lines:
        return
    leaves = dict.fromkeys(leaf for line in lines for leaf in line.leaves)
    names, seen = first_names(leaves), dict.fromkeys(line.seen for line in lines)
    mends = dict.fromkeys(line.mend for line in lines)
    leaky = any(line.mend != _OUTPUT and line.what == _RELU[0] for line in lines)
    yield _DEAD.filled(
        names,
        made_at(context.graph, lines[0].node),
        what="; ".join(dict.fromkeys(line.what for line in lines)),
        seen=listed(seen),
        learn=verb(names, "learns", "learn"),
        call=context.call,
        before=". Before, they had one" if _had_any(context, names) else "",
        mend=". ".join(mends) + (_LEAKY if leaky else ""),
        nodes=tuple(line.node for line in lines),
    )


class _DeadLine(NamedTuple):
    """The activations of one line that let nothing through, of which `node` is one; the
    leaves that are cut off; and what is said of it.
    """

    node: int
    leaves: list[Leaf]
    what: str
    seen: str
    mend: str


def _dead_lines(context: BackwardCall) -> Iterator[_DeadLine]:
    graph, dead = context.graph, context.dead
    # what is asked for is reached, or there is nothing to learn any more
    if not dead or context.loss == 0:
        return
    passing = set(
        spread(graph.roots_of, lambda n: [] if n in dead else makers(graph, n))
    )
    zero = {leaf.node: leaf for leaf in _dried(context) if leaf.node not in passing}
    lines: dict[tuple[str, SourceLine | None], list[int]] = {}
    for node in sorted(dead & passing):
        lines.setdefault((kind(graph, node), made_at(graph, node)), []).append(node)

    products = [node for node in graph.order if kind(graph, node) in PRODUCTS]
    into_layers = set(behind(graph, products))
    for (op, source), nodes in lines.items():
        inputs = [maker for node in nodes for maker in makers(graph, node)]
        leaves = [zero[each] for each in behind(graph, inputs) if each in zero]
        is_last = into_layers.isdisjoint(nodes)
        had = _had_any(context, first_names(leaves))
        # what had a gradient is done, as a margin that every sample keeps now
        if leaves and not (is_last and had):
            what, gave = _WHAT.get(op, _CUT_OFF)
            mend = _OUTPUT if is_last else _SLOWER if had else _ANEW
            yield _DeadLine(nodes[0], leaves, what, f"{code(source)} gave {gave}", mend)


def _had_any(context: BackwardCall, names: Names) -> bool:
    """Whether one of these leaves had a gradient in an earlier call."""
    return any(map(context.run.nonzero.get, names))


def _dried(context: BackwardCall) -> Iterator[Leaf]:
    """The parameters whose gradient is zero in this call and several more, to the end."""
    run = context.run
    for leaf, gradient in _read(context):
        last = run.nonzero.get(leaf.names[0], 0) if leaf.names else 0
        zero = sum(call > last for call in run.looked)
        if not gradient.norm and last < (context.call or 0) and zero >= _AFTER:
            yield leaf
