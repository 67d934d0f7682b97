"""Checks that read the numbers of gradients: those that vanish, explode or are zero,
and ReLUs that have died.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gradviz.checks.context import CheckContext, LeafGradient
from gradviz.checks.finding import Severity
from gradviz.checks.ops import PRODUCTS, RESHAPES, kind, makers, spread, user, users
from gradviz.checks.registry import Diagnoses, Diagnosis, check
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
from gradviz.graph.amounts import known_elements
from gradviz.graph.origins import own_line
from gradviz.wording import one_line, plural

HUGE = 1e7
"""A norm above this is called huge even when those of all modules are. Loss scaling
stays below.
"""
_VALUES = {"needs_values": True, "once": True}

_Members = list[tuple[Leaf, LeafGradient]]


class Layer(NamedTuple):
    """The gradients of the parameters of one module: root mean square, and norm."""

    name: str
    leaves: Sequence[Leaf]
    rms: float
    norm: float


@check(
    "vanishing-gradient",
    "warning",
    "gradients shrink to nearly nothing on their way to the first modules",
    follows=("nonfinite",),
    **_VALUES,
)
def vanishing_gradient(context: CheckContext) -> Diagnoses:
    """The gradient of a module is less than 1e-5 of that of modules nearer to the
    output.

    Compared are root mean squares over the weights of each module of one model, along
    the depth of the graph. Such modules learn next to nothing. `--vanishing` sets
    another threshold.

    How it is found: The gradients are computed without writing `.grad`; root mean
    squares are compared module by module, from the output backwards.

    What to do: Use activations that do not saturate, normalisation, residual
    connections, or an initialisation made for the activation.

    When to ignore it: When these modules are meant to hardly move, or begin at zero.

    ```python
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(12) for layer in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())]
    model = torch.nn.Sequential(*layers)
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    ```
    """
    limit = context.gradients.vanishing if context.gradients is not None else 0.0
    for layers in _models(context):
        largest, weak = 0.0, list[Layer]()
        for layer in layers:
            names = first_names(layer.leaves)
            if 0 < layer.rms < limit * largest and context.zero_at_first.isdisjoint(
                names
            ):
                weak.append(layer)
            largest = max(largest, layer.rms)

        if weak and _is_main_path(context.graph, layers, weak):
            last = min(weak, key=lambda layer: layer.rms)
            yield _flow(
                context.graph,
                weak,
                f"the gradient vanishes: {plural(len(weak), 'module')} of {len(layers)} get next to nothing",
                f"the root mean square of the gradient is {last.rms:.1e} in {last.name}, and {largest:.1e} nearer to "
                f"the output, a ratio of {last.rms / largest:.1e} (threshold {limit:g})",
                "Use ReLU-like activations, normalisation, residual connections, or an initialisation made for the "
                "activation.",
            )


def _is_main_path(
    graph: Graph,
    layers: Sequence[Layer],
    weak: Sequence[Layer],
) -> bool:
    """Whether all modules at the beginning, which take what no other one has made, are
    weak.

    Where one is not, a gradient passes beside those that are, as beside the queries and
    keys of an attention.
    """
    leaves = {leaf.node for layer in layers for leaf in layer.leaves}
    for layer in layers:
        takers = [
            taker
            for leaf in layer.leaves
            if (taker := user(graph, leaf.node)) is not None
        ]
        first = min(
            takers,
            key=lambda node: graph.nodes[node].sequence or 0,
            default=None,
        )
        behind: Iterable[int]
        if first is not None:
            behind = spread([first], lambda node: makers(graph, node))
        else:
            behind = leaves
        if layer not in weak and leaves.difference(nodes_of(layer.leaves)).isdisjoint(
            behind
        ):
            return False

    return True


@check(
    "exploding-gradient",
    "warning",
    "gradients grow without bounds on their way to the first modules",
    follows=("nonfinite",),
    **_VALUES,
)
def exploding_gradient(context: CheckContext) -> Diagnoses:
    """The gradient of a module is more than 1e4 times that of the module nearest to the
    output, or has a norm above 1e7.

    Compared are root mean squares over the weights of each module of one model, along
    the depth of the graph. One step of the optimizer then throws these modules far
    away. `--exploding` sets another ratio.

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
    limit = context.gradients.exploding if context.gradients is not None else 0.0
    for layers in _models(context):
        layers = [layer for layer in layers if layer.rms]
        huge = [
            layer
            for layer in layers
            if layer.rms > limit * layers[0].rms or layer.norm > HUGE
        ]
        if not huge:
            continue

        worst, nearest = (
            max(huge, key=lambda layer: layer.rms),
            layers[0],
        )
        ratio, why = (
            worst.rms / nearest.rms,
            f"the gradient of {worst.name} has a norm of {worst.norm:.1e}",
        )
        if ratio > limit:
            why += f"; its root mean square is {worst.rms:.1e}, and {nearest.rms:.1e} in {nearest.name}, nearest to "
            why += f"the output: a ratio of {ratio:.1e} (threshold {limit:g})"

        yield _flow(
            context.graph,
            huge,
            f"the gradient explodes: {plural(len(huge), 'module')} of {len(layers)} get a huge one",
            why,
            "Use normalisation, a smaller initialisation, or clip gradients with torch.nn.utils.clip_grad_norm_.",
        )._replace(follows=("wrong-backward", "scaler-order"))


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
    **_VALUES,
)
def zero_gradient(context: CheckContext) -> Diagnoses:
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
        if context.nonzero_later.isdisjoint(leaf.names)
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
    context: CheckContext, zero: Sequence[Leaf]
) -> tuple[_Cause, SourceLine | None]:
    """What may have made the zeros, and the line that did."""
    if sum(leaf.node in context.zero_weights for leaf in zero) > 1:
        return _START, None
    if _behind_zero_weights(context, zero):
        return _BEHIND_START, None

    biases = all("bias" in name for name in first_names(zero))
    lines = _lines_that_stop(context.graph, _above(context.graph, nodes_of(zero)))
    written = [source for source in lines if _TIMES_ZERO.search(source.text)]
    if written:
        return _FACTOR, written[0]
    return (_STOP, lines[0]) if lines and not biases else (_NOTHING, None)


def _behind_zero_weights(context: CheckContext, zero: Sequence[Leaf]) -> bool:
    """Whether each way from the outputs to these leaves leads through a layer whose
    weights are all zero.
    """
    graph = context.graph
    layers = {user for leaf in context.zero_weights for user in users(graph, leaf)}
    for node in list(layers):
        if kind(graph, node) == "T":  # the weight of a linear map is transposed first
            layers.update(users(graph, node))

    def upwards(node: int) -> Sequence[int]:
        return () if node in layers else users(graph, node)

    ways = {*spread(nodes_of(zero), upwards)}
    passes_by = any(root.node in ways - layers for root in graph.roots)
    return not ways.isdisjoint(layers) and not passes_by


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


def _leaves(context: CheckContext, *, zeros: bool) -> list[Leaf]:
    """The parameters whose gradient is known to be all zero, or not to be."""
    return [
        leaf for leaf, gradient in _read(context) if (gradient.zeros == 1.0) == zeros
    ]


def _read(context: CheckContext) -> _Members:
    """The parameters whose gradient is known and of this call alone."""
    known = [
        (context.graph.leaf_of[gradient.node], gradient)
        for gradient in context.leaf_gradients
    ]
    return [
        one
        for one in known
        if one[0].kind == "parameter" and not (one[1].nonfinite or one[1].mixed)
    ]


def _models(context: CheckContext) -> list[list[Layer]]:
    """The modules of each model with the size of their gradients, the nearest to the
    output first.

    Weights are compared with weights: a bias, or the scale of a norm, counts only where
    a model has nothing else.
    """
    graph = context.graph
    ways = spread(
        [root.node for root in graph.roots if root.node is not None],
        lambda node: makers(graph, node),
    )
    near = {node: place for place, node in enumerate(ways)}
    owner = {parameter.node: parameter.model for parameter in context.parameters}
    models: dict[int | None, _Members] = {}

    for leaf, gradient in sorted(
        _read(context),
        key=lambda one: near[one[0].node],
    ):
        models.setdefault(
            owner.get(leaf.node),
            [],
        ).append((leaf, gradient))

    weights = [
        [one for one in members if len(one[0].tensor.shape or ()) > 1] or members
        for members in models.values()
    ]

    return [_layers(members) for members in weights]


def _layers(members: _Members) -> list[Layer]:
    """Modules with the size of their gradients. Without modules, each parameter is one."""
    groups: dict[str, _Members] = {}
    for leaf, gradient in members:
        name = leaf.names[0] if leaf.names else f"parameter {leaf.node}"
        groups.setdefault(
            name.rpartition(".")[0] or name,
            [],
        ).append((leaf, gradient))

    layers = []
    for name, group in groups.items():
        leaves = [leaf for leaf, _ in group]
        norm = sum(gradient.norm**2 for _, gradient in group) ** 0.5
        rms = (
            norm
            / max(
                1,
                sum(known_elements(leaf.tensor) for leaf in leaves),
            )
            ** 0.5
        )
        layers.append(Layer(name, leaves, rms, norm))

    return layers


def _flow(
    graph: Graph,
    layers: Sequence[Layer],
    summary: str,
    why: str,
    fix: str,
) -> Diagnosis:
    """What is said of these modules, at the line that uses most of them."""
    leaves = [leaf for layer in layers for leaf in layer.leaves]
    used = (
        own_line(graph.nodes[node])
        for leaf in leaves
        for node in users(graph, leaf.node)
    )
    source = next(
        (source for source, _ in Counter(filter(None, used)).most_common(1)), None
    )
    where = places(
        listed(layer.name for layer in layers),
        line(source),
    )

    return Diagnosis(
        summary,
        first_names(leaves),
        why,
        fix,
        nodes_of(leaves),
        where=where,
        source=source,
        follows=("wrong-backward",),
    )


# calls that were looked at later, in which a gradient has to be zero as well
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
    **_VALUES,
)
def dead_relu(context: CheckContext) -> Diagnoses:
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
    graph, now, before = context.graph, context.nonzero_after, context.nonzero_later
    zero = _leaves(context, zeros=True) if context.looked_after >= _AFTER else []
    died = [
        leaf
        for leaf in zero
        if before.intersection(leaf.names) and not now.intersection(leaf.names)
    ]
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
