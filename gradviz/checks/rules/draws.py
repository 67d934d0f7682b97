"""The check on random draws that a model goes on with: what they were drawn from gets no gradient through them."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.flow import behind, from_outputs
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, first_names, line, listed
from gradviz.graph import Graph
from gradviz.graph.origins import own_line

_DRAWS = ("NormalBackward", "BernoulliBackward", "PoissonBackward", "BinomialBackward")
_TURNED = ("TBackward0", "TransposeBackward0", "PermuteBackward0")


@check("draw-without-gradient", "warning", "a layer goes on with a random draw, whose gradient is zero")
def draw_without_gradient(context: CheckContext) -> Diagnoses:
    """A model draws from a distribution that it has computed, and a layer goes on with the draw, which has no graph.

    `torch.normal(mean, std)` and `torch.bernoulli(p)` have a graph, and their derivative is zero. What computed the distribution is
    not trained by what comes after them, though another term of the loss may still reach it, as the divergence of a variational
    autoencoder does.

    How it is found: in the graph alone. Reported when only layers take the draw in, and not the log probability of a policy
    gradient, and the same parameters are reached in another way.

    What to do: draw so that the gradient passes: `mean + std * torch.randn_like(std)`.

    When to ignore it: when the draw is meant to be data.

    ```python
    import torch

    encoder, decoder = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    for step in range(3):
        x = torch.ones(8, 3)
        mean, log_deviation = encoder(x).chunk(2, dim=1)
        z = torch.normal(mean, log_deviation.exp())
        loss = (decoder(z) - x).square().mean() + (mean.square() + log_deviation.square()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    graph = context.graph
    draws = [node.id for node in graph.nodes if node.op.startswith(_DRAWS)]
    alive = from_outputs(graph, set(draws)) if draws else set()
    for node in draws:
        lost = [
            leaf for i in behind(graph, [node]) if (leaf := graph.leaf_of.get(i)) is not None and leaf.node in alive
        ]
        if lost and all(_is_layer(graph, edge.consumer, node) for edge in graph.consumers(node)):
            source = own_line(graph.nodes[node])
            how = "torch.bernoulli" if "Bernoulli" in graph.nodes[node].op else "torch.normal"
            better = (
                "mean + std * torch.randn_like(std)" if how == "torch.normal" else "a relaxed Bernoulli's rsample()"
            )
            yield Diagnosis(
                f"a layer goes on with what {how} drew: its gradient is zero",
                first_names(lost),
                f"{code(source)} draws from what {listed(first_names(lost))} computed, and the derivative of a draw is zero: "
                "nothing that is computed from it trains them, only other terms of the loss do",
                f"In {line(source)}, draw so that the gradient passes: {better}.",
                (node,),
                source=source,
            )
            return


def _is_layer(graph: Graph, node: int, draw: int) -> bool:
    """Whether a node computes something of a draw with parameters alone."""
    for edge in graph.inputs(node):
        inner = edge.producer
        while graph.nodes[inner].op in _TURNED:
            inner = graph.inputs(inner)[0].producer
        if inner not in graph.leaf_of and inner != draw:
            return False
    return len(graph.inputs(node)) > 1
