"""Checks that read the numbers of gradients: those that vanish or explode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from gradviz.checks.call import BackwardCall, LeafGradient
from gradviz.checks.ops import users
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.words import first_names, listed, made_at, nodes_of
from gradviz.graph import Leaf, SourceLine
from gradviz.graph.amounts import known_elements
from gradviz.wording import plural

VANISHING = 1e-5
"""A gradient below this part of the one nearest to the output vanishes."""
EXPLODING = 1e4
"""One above this multiple of it explodes."""
HUGE = 1e7
"""A norm above this is called huge even when those of all modules are. Loss scaling
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


_VANISHES = Row(
    "the gradient vanishes: {count} of {total} get next to nothing",
    "the root mean square of the gradient is {rms:.1e} in {name}, and {reference:.1e} nearest to the output, a ratio of "
    "{ratio:.1e} (threshold 1e-05)",
    "Use ReLU-like activations, normalisation, residual connections, or an initialisation made for the activation.",
)
_EXPLODES = Row(
    "the gradient explodes: {count} of {total} get a huge one",
    "the gradient of {name} has a norm of {norm:.1e}; its root mean square is {rms:.1e}, and {reference:.1e} nearest to the "
    "output: a ratio of {ratio:.1e} (threshold 10000)",
    "Use normalisation, a smaller initialisation, or clip gradients with torch.nn.utils.clip_grad_norm_.",
)


@check(
    "vanishing-gradient",
    "warning",
    "gradients shrink to nearly nothing on their way to the first modules",
    follows=("nonfinite",),
    needs_values=True,
    once=True,
)
def vanishing_gradient(context: BackwardCall) -> Diagnoses:
    """The gradient of a module is less than 1e-5 of that of the module nearest to the
    output.

    Compared are root mean squares over the weights of each module of one model, along
    the depth of the graph. Such modules learn next to nothing.

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
    return _unlike_the_last(
        context, _VANISHES, lambda layer, last: layer.rms < VANISHING * last.rms
    )


@check(
    "exploding-gradient",
    "warning",
    "gradients grow without bounds on their way to the first modules",
    follows=("nonfinite",),
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
    return _unlike_the_last(
        context,
        _EXPLODES,
        lambda layer, last: layer.rms > EXPLODING * last.rms or layer.norm > HUGE,
    )


def read(context: BackwardCall) -> Iterator[tuple[Leaf, LeafGradient]]:
    """The parameters whose gradient is known and of this call alone."""
    for gradient in context.leaf_gradients:
        leaf = context.graph.leaf_of[gradient.node]
        if leaf.kind == "parameter" and not (gradient.nonfinite or gradient.mixed):
            yield leaf, gradient


def _models(context: BackwardCall) -> Iterable[list[Layer]]:
    """The weights of each model, in the order in which they ran."""
    graph, models = context.graph, dict[int | None, list[Layer]]()
    owner = {parameter.node: parameter.model for parameter in context.parameters}
    for leaf, gradient in read(context):
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


def _unlike_the_last(
    context: BackwardCall,
    row: Row,
    is_unlike: Callable[[Layer, Layer], bool],
) -> Diagnoses:
    """What is said of models whose first weights are unlike the one nearest to the
    output, where nothing has been multiplied up yet.
    """
    for layers in _models(context):
        first, last = layers[0], layers[-1]
        # beside the main path, as in queries and keys, a small gradient is normal
        if not is_unlike(first, last):
            continue

        leaves = [layer.leaf for layer in layers if is_unlike(layer, last)]
        yield row.filled(
            first_names(leaves),
            first.source,
            count=plural(len(leaves), "weight"),
            total=len(layers),
            name=listed(first.leaf.names[:1]),
            rms=first.rms,
            norm=first.norm,
            reference=last.rms,
            ratio=first.rms / last.rms,
        )._replace(nodes=nodes_of(leaves), follows=("wrong-backward", "scaler-order"))
