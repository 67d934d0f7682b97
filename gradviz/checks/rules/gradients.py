"""Checks that read the numbers of gradients: those that vanish or explode."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from gradviz.checks.call import BackwardCall, LeafGradient
from gradviz.checks.ops import users
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.words import first_names, listed, made_at, nodes_of
from gradviz.graph import Leaf, SourceLine
from gradviz.graph.amounts import known_elements
from gradviz.wording import plural

HUGE = 1e7
"""A norm above this is called huge even when those of all modules are. Loss scaling
stays below.
"""
VALUES = {"needs_values": True, "once": True}

_Members = list[tuple[Leaf, LeafGradient]]


class Layer(NamedTuple):
    """A weight with its gradient, root mean square and norm, and the line that uses it."""

    leaf: Leaf
    rms: float
    norm: float
    source: SourceLine | None


_VANISHES = Row(
    "the gradient vanishes: {count} of {total} get next to nothing",
    "the root mean square of the gradient is {rms:.1e} in {name}, and {reference:.1e} nearer to the output, a ratio of {ratio:.1e} "
    "(threshold {limit:g})",
    "Use ReLU-like activations, normalisation, residual connections, or an initialisation made for the activation.",
)
_EXPLODES = Row(
    "the gradient explodes: {count} of {total} get a huge one",
    "the gradient of {name} has a norm of {norm:.1e}; its root mean square is {rms:.1e}, and {reference:.1e} nearest to the "
    "output: a ratio of {ratio:.1e} (threshold {limit:g})",
    "Use normalisation, a smaller initialisation, or clip gradients with torch.nn.utils.clip_grad_norm_.",
)


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
    the depth of the graph. Such modules learn next to nothing. In Python,
    `vanishing=` sets another threshold.

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
        largest = max(layer.rms for layer in layers)
        weak = [layer for layer in layers if layer.rms < limit * largest]
        # beside the main path, as in queries and keys, a small gradient is normal
        if layers[0] in weak:
            yield _flow(_VANISHES, layers, weak, weak[0], largest, limit)


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
    away. In Python, `exploding=` sets another ratio.

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
        # next to the output, where nothing has been multiplied up yet
        last = layers[-1].rms
        huge = [
            layer for layer in layers if layer.rms > limit * last or layer.norm > HUGE
        ]
        if huge:
            worst = max(huge, key=lambda layer: layer.rms)
            yield _flow(_EXPLODES, layers, huge, worst, last, limit)


def read(context: BackwardCall) -> _Members:
    """The parameters whose gradient is known and of this call alone."""
    leaf_of, members = context.graph.leaf_of, []
    for gradient in context.leaf_gradients:
        leaf = leaf_of[gradient.node]
        if leaf.kind == "parameter" and not (gradient.nonfinite or gradient.mixed):
            members.append((leaf, gradient))
    return members


def _models(context: BackwardCall) -> list[list[Layer]]:
    """The modules of each model with the size of their gradients, in the order in which
    they ran.

    Weights are compared with weights: a bias, or the scale of a norm, does not count.
    """
    graph, found = context.graph, []
    for leaf, gradient in read(context):
        takers = users(graph, leaf.node)
        if len(leaf.tensor.shape or ()) > 1 and takers and gradient.norm:
            # a tied weight is used in several places, and the first gives its depth
            first = min(takers, key=lambda node: graph.nodes[node].sequence or 0)
            order = graph.nodes[first].sequence or 0
            found.append((order, first, leaf, gradient))

    owner = {parameter.node: parameter.model for parameter in context.parameters}
    models: dict[int | None, list[Layer]] = {}
    for _, first, leaf, gradient in sorted(found, key=itemgetter(0)):
        rms = gradient.norm / max(1, known_elements(leaf.tensor)) ** 0.5
        layer = Layer(leaf, rms, gradient.norm, made_at(graph, first))
        models.setdefault(owner.get(leaf.node), []).append(layer)
    return list(models.values())


def _flow(
    row: Row,
    layers: Sequence[Layer],
    concerned: Sequence[Layer],
    worst: Layer,
    reference: float,
    limit: float,
) -> Diagnosis:
    """What is said of these layers, at the line that uses the worst."""
    leaves = [layer.leaf for layer in concerned]

    return row.filled(
        first_names(leaves),
        worst.source,
        count=plural(len(concerned), "weight"),
        total=len(layers),
        name=listed(worst.leaf.names[:1]),
        rms=worst.rms,
        norm=worst.norm,
        reference=reference,
        ratio=worst.rms / reference,
        limit=limit,
    )._replace(nodes=nodes_of(leaves), follows=("wrong-backward", "scaler-order"))
