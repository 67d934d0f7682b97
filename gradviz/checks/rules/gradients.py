"""Checks that read the numbers of gradients: those that explode, and those of zeros only,
where ReLUs have died.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

from gradviz.checks.call import BackwardCall, LeafGradient
from gradviz.checks.ops import PRODUCTS, RESHAPES, kind, makers, user, users
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.words import first_names, listed, made_at, nodes_of
from gradviz.graph import Graph, Leaf, SourceLine
from gradviz.graph.amounts import known_elements
from gradviz.wording import one_line, plural

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
    "output: a ratio of {ratio:.1e} (threshold 10000)",
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
_KEEPS = RESHAPES | {"NativeDropout", "Mul", "MaxPool2DWithIndices", "AvgPool2D"}
_KEEPS |= {"AdaptiveAvgPool2D", "Mean"}
"""Kinds that give zeros where they are given zeros."""
_SLOWER = "lower the learning rate, tenfold at a time"
_ANEW = "begin with weights on both sides of 0 and biases of 0, as torch.nn.init.kaiming_normal_() makes them"
_DEAD = Row(
    "the ReLUs in front of {module} are dead: they give zero for every input",
    "at backward call {call} and all that were looked at since, the gradient of {name} is exactly 0 and that of the bias beside "
    "it is not: what the weight is multiplied with is 0{before}. Nothing in front of {code} learns any more",
    "Scale the inputs to about 1, as in x = (x - x.mean(0)) / x.std(0), and {mend}; or use "
    "torch.nn.LeakyReLU, which lets a gradient through.",
)


@check(
    "dead-relu",
    "warning",
    "a layer of ReLUs gives zero for every input",
    repeats=("nonfinite", "exploding-gradient"),
    reads_saved=True,
    needs_values=True,
    once=True,
)
def dead_relu(context: BackwardCall) -> Diagnoses:
    """All ReLUs of a layer give zero for every sample: what is in front of them gets no
    gradient any more, and never recovers.

    A step that is too large does that, or inputs that are large numbers: the biases
    become so negative that nothing comes through.

    How it is found: The gradient of a weight behind ReLUs is exactly zero, from the start
    or from a call on, while that of the bias beside it is not. What the
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
    graph, run = context.graph, context.run
    alive = {leaf.node for leaf, gradient in _read(context) if gradient.norm}
    for leaf, gradient in _read(context):
        last = run.nonzero.get(leaf.names[0], 0) if leaf.names else 0
        zero = sum(call > last for call in run.looked)
        died = last < (context.call or 0) and zero >= _AFTER
        if gradient.norm or not died:
            continue
        relu = _dead_in_front(graph, leaf.node, alive)
        if relu is None:
            continue

        name = one_line(leaf.names[0])
        module = name.rpartition(".")[0] or name
        before = ". Before, it had a gradient" if last else ""
        words = {"module": module, "name": name, "call": context.call, "before": before}
        words["mend"] = _SLOWER if last else _ANEW
        yield _DEAD.filled(
            leaf.names[:1], made_at(graph, relu), **words, nodes=(relu, leaf.node)
        )
        return


def _dead_in_front(graph: Graph, leaf: int, alive: set[int]) -> int | None:
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
