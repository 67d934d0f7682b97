"""Checks on activations that let no gradient through: ReLUs that have died, tanh and sigmoid that are flat from the start."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.flow import behind
from gradviz.checks.ops import PRODUCTS, RESHAPES, kind, maker, makers, user, weight
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.numbers import leaves_of
from gradviz.checks.words import code, first_names, line, listed, made_at, places
from gradviz.graph import Graph
from gradviz.wording import one_line

_AFTER = 3  # calls that were looked at later, in which a gradient has to be zero as well
_KEEPS = RESHAPES.union(("NativeDropout", "Mul", "MaxPool2DWithIndices", "AvgPool2D", "AdaptiveAvgPool2D", "Mean"))
"""Kinds that give zeros where they are given zeros."""


@check(
    "dead-relu",
    "warning",
    "a layer of ReLUs has come to give zero for every input",
    needs_values=True,
    follows=("nonfinite", "exploding-gradient"),
    once=True,
    reads_saved=True,
)
def dead_relu(context: CheckContext) -> Diagnoses:
    """All ReLUs of a layer give zero for every sample: what is in front of them gets no gradient any more, and never recovers.

    A step that is too large does that, or inputs that are large numbers: the biases become so negative that nothing comes through.

    How it is found: The gradient of a weight behind ReLUs was other than zero, and from a call on it is exactly zero, while that of
    the bias beside it is not. What the weight is multiplied with is zero then. It has to stay so for several calls.

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
    zero = leaves_of(context, zeros=True) if context.looked_after >= _AFTER else []
    died = [leaf for leaf in zero if before.intersection(leaf.names) and not now.intersection(leaf.names)]
    alive = {leaf.node for leaf in leaves_of(context, zeros=False)}
    for leaf in died:
        relu = _dead_in_front(graph, leaf.node, alive)
        if relu is None:
            continue
        source, name = made_at(graph, relu), one_line(leaf.names[0])
        behind_it = set(behind(graph, [relu]))
        names = first_names(other for other in died if other.node in behind_it) or leaf.names[:1]
        yield Diagnosis(
            f"the ReLUs in front of {name.rpartition('.')[0] or name} are dead: they give zero for every input",
            names,
            f"at backward call {context.call} and all that were looked at since, the gradient of {name} is exactly 0 and that of "
            "the bias beside it is not: what the weight is multiplied with is 0. Before, it had a gradient. Nothing in front of "
            f"{code(source)} learns any more",
            "Scale the inputs to about 1, as in x = (x - x.mean(0)) / x.std(0), and lower the learning rate, tenfold at a time; or "
            "use torch.nn.LeakyReLU, which lets a gradient through.",
            (relu, leaf.node),
            where=places(listed(dict.fromkeys(name.rpartition(".")[0] for name in names)), line(source)),
            source=source,
        )
        return


def _dead_in_front(graph: Graph, leaf: int, alive: set[int]) -> int | None:
    """The ReLU whose results a weight is multiplied with, when a bias is added to the product that has a gradient."""
    product = user(graph, leaf)
    if product is None or kind(graph, product) not in PRODUCTS:
        return None
    given, after = makers(graph, product), user(graph, product)
    added = makers(graph, after) if after is not None and kind(graph, after) == "Add" else []
    for node in given if alive.intersection([*given, *added]) else ():
        while kind(graph, node) in _KEEPS and len(graph.inputs(node)) == 1:
            node = graph.inputs(node)[0].producer
        if graph.nodes[node].op.startswith(("Relu", "Threshold")):
            return node
    return None


@check(
    "saturated",
    "warning",
    "hidden layers of tanh or sigmoid are flat for nearly all inputs from the start",
    follows=("nonfinite", "vanishing-gradient", "exploding-gradient"),
    once=True,
    reads_saved=True,
)
def saturated(context: CheckContext) -> Diagnoses:
    """The results of tanh or sigmoid lie next to their limits, where the slope is zero: hardly any gradient comes through.

    Weights that are drawn from a normal distribution of width 1 do that, whatever the number of inputs, and so do inputs that are
    large numbers.

    How it is found: What tanh and sigmoid have saved at the first backward call is read. Reported when in two hidden layers or
    more, and in most of them, two thirds of the results are within a thousandth of a limit. A gate, which multiplies, is left out.

    What to do: Initialise for the number of inputs, as `torch.nn.init.xavier_normal_` does, and scale inputs to about 1.

    When to ignore it: When results next to the limits are meant, as in a network of bits that was trained before.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(part for _ in range(3) for part in (torch.nn.Linear(256, 256), torch.nn.Tanh())))
    model.append(torch.nn.Linear(256, 1))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    loss = model(torch.randn(8, 256)).square().mean()
    loss.backward()
    ```
    """
    graph = context.graph
    hidden = [weights for node in graph.nodes if (weights := _hidden(graph, node.id))] if context.saturated else []
    flat = [weights for weights in hidden if weights[0] in context.saturated]
    if len(flat) < 2 or 2 * len(flat) <= len(hidden):
        return
    names = first_names(graph.leaf_of[weight] for _, weight in flat)
    drawn = (context.filled[name] for name in names if name in context.filled)
    source = next((at for at in drawn if "normal_" in at.text or "uniform_" in at.text), made_at(graph, flat[-1][0]))
    what = kind(graph, flat[0][0]).lower()
    yield Diagnosis(
        f"{len(flat)} of {len(hidden)} hidden layers of {what} are saturated from the start",
        names,
        f"at the first backward call, two thirds of what {what} gave or more is within a thousandth of its limits, where its slope "
        f"is next to zero: behind {listed(names, 3)}",
        "Draw the weights for the number of inputs: torch.nn.init.xavier_normal_(weight) in place of normal_(weight); and scale "
        "the inputs of the model to about 1.",
        tuple(node for node, _ in flat),
        where=places(listed(dict.fromkeys(name.rpartition(".")[0] for name in names), 3), line(source)),
        source=source,
    )


def _hidden(graph: Graph, node: int) -> tuple[int, int] | None:
    """A tanh or sigmoid between two products with weights: it, and the weight of the first product."""
    if kind(graph, node) not in ("Tanh", "Sigmoid"):
        return None
    around = user(graph, node, RESHAPES | {"NativeDropout"}), maker(graph, node, RESHAPES | {"Add"})
    weights = [weight(graph, other) for other in around if other is not None and kind(graph, other) in PRODUCTS]
    return (node, weights[1] or 0) if len(weights) == 2 and None not in weights else None
