"""The check on ReLUs that have died."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.flow import behind
from gradviz.checks.ops import PRODUCTS, RESHAPES, kind, makers, user
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
