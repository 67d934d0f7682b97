"""Checks that read the numbers of gradients: those that vanish, explode or are zero,
and ReLUs that have died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from gradviz.checks.call import BackwardCall, LeafGradient
from gradviz.checks.ops import makers, spread, user, users
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import (
    first_names,
    line,
    listed,
    nodes_of,
    places,
)
from gradviz.graph import Graph, Leaf
from gradviz.graph.amounts import known_elements
from gradviz.graph.origins import own_line
from gradviz.wording import plural

HUGE = 1e7
"""A norm above this is called huge even when those of all modules are. Loss scaling
stays below.
"""
VALUES = {"needs_values": True, "once": True}

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
    **VALUES,
)
def vanishing_gradient(context: BackwardCall) -> Diagnoses:
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
            if 0 < layer.rms < limit * largest:
                weak.append(layer)
            largest = max(largest, layer.rms)

        main = weak and _is_main_path(context.graph, layers, weak)
        if main and not _is_beside_data(context.graph, layers):
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


def _is_beside_data(graph: Graph, layers: Sequence[Layer]) -> bool:
    """Whether what the last module computes is added to data, as in the first block of
    a residual network, and goes on.
    """
    first, last = layers[-1].leaves[0].node, layers[0].leaves[0].node
    end = max(
        (graph.nodes[node].sequence or 0 for node in users(graph, last)), default=0
    )
    near = (
        graph.nodes[node]
        for node in islice(
            spread([first], lambda node: users(graph, node)),
            _FAR,
        )
    )

    return any(
        node.op == "AddBackward0" and node.none_inputs and (node.sequence or 0) < end
        for node in near
    )


_FAR = 200  # operations between the inside of a residual block and its sum


@check(
    "exploding-gradient",
    "warning",
    "gradients grow without bounds on their way to the first modules",
    follows=("nonfinite",),
    **VALUES,
)
def exploding_gradient(context: BackwardCall) -> Diagnoses:
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


def read(context: BackwardCall) -> _Members:
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


def _models(context: BackwardCall) -> list[list[Layer]]:
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
        read(context),
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
