"""The check on random draws that a model goes on with: what they were drawn from gets no gradient through them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.flow import behind, from_outputs
from gradviz.checks.ops import RESHAPES, kind, makers, spread, users
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.rules.misuse import told
from gradviz.checks.words import Names, code, first_names, line, listed, made_at
from gradviz.cuts.lines import Cut
from gradviz.graph import Graph, SourceLine

_DRAWS = ("NormalBackward", "BernoulliBackward", "PoissonBackward", "BinomialBackward")
_TURNED = ("TBackward0", "TransposeBackward0", "PermuteBackward0")


_SEEDED = {
    "seeded again": Row(
        "torch.manual_seed({0}) runs in every step: each step draws the same random numbers",
        "{code} sets the seed {0} in one step after the other, and random numbers were drawn after each: batches, noise and the "
        "masks of dropout are the same every time",
        "Set the seed once, before the loop.",
    ),
}


@check("seeded-again", "warning", "a seed is set in every step, so that each draws the same numbers")
def seeded_again(context: CheckContext) -> Diagnoses:
    """`torch.manual_seed()` runs in every step of the training, with one seed, and what is drawn at random is the same each time.

    Dropout then leaves out the same units always, noise is a constant, and random batches are one batch.

    How it is found: a line sets one seed in three steps that follow each other, random numbers were drawn after each, and the state
    that was there before is not put back, as `torch.random.fork_rng()` does.

    What to do: set the seed once, before the loop.

    When to ignore it: when all steps are to see the same numbers.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    for step in range(6):
        torch.manual_seed(0)
        loss = model(torch.randn(2, 3)).square().mean()
        model.zero_grad()
        loss.backward()
    ```
    """
    yield from told(context, _SEEDED)


@check(
    "draw-without-gradient",
    "warning",
    "a layer goes on with a random draw or a hard choice, which lets no gradient through",
)
def draw_without_gradient(context: CheckContext) -> Diagnoses:
    """A model draws from a distribution that it has computed, and a layer goes on with the draw, which has no graph.

    `torch.normal(mean, std)` and `torch.bernoulli(p)` have a graph, and their derivative is zero; `sample()` of a distribution has
    none; nor has the nearest of several codes. What computed the distribution is
    not trained by what comes after them, though another term of the loss may still reach it, as the divergence of a variational
    autoencoder does.

    How it is found: in the graph, and for `sample()` in the operations that take in what it gave. Reported when only layers do, and
    not the log probability of a policy gradient, and the same parameters are reached in another way.

    What to do: draw so that the gradient passes: `rsample()`, or `mean + std * torch.randn_like(std)`.

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
    for find in (_recorded, _unrecorded, _picked):
        for draw in islice(find(context), 1):
            words = {"code": code(draw.source), "lost": listed(draw.names), "how": draw.how, "line": line(draw.source)}
            summary, why, fix = (text.format(**words) for text in _ROWS[find])
            yield Diagnosis(summary, draw.names, why, fix, (draw.node,), source=draw.source)
            return


class _Draw(NamedTuple):
    """A choice that only layers take in: its node or the first that takes it, whom it leaves without a gradient, and its line."""

    node: int
    how: str
    names: Names
    source: SourceLine | None


def _recorded(context: CheckContext) -> Iterator[_Draw]:
    """Draws that have a graph."""
    graph = context.graph
    draws = [node.id for node in graph.nodes if node.op.startswith(_DRAWS)]
    alive = from_outputs(graph, set(draws)) if draws else set()
    for node in draws:
        reached = (graph.leaf_of.get(i) for i in behind(graph, [node]))
        lost = [leaf for leaf in reached if leaf is not None and leaf.node in alive]
        if lost and all(_is_layer(graph, edge.consumer, node) for edge in graph.consumers(node)):
            how = kind(graph, node).lower()
            yield _Draw(node, how, first_names(lost), made_at(graph, node))


def _taken(context: CheckContext) -> dict[Cut, list[int]]:
    """The nodes that take in what was cut off, by where."""
    taken: dict[Cut, list[int]] = {}
    for node, cuts in context.entered.items():
        for cut in cuts:
            taken.setdefault(cut, []).append(node)
    return taken


def _unrecorded(context: CheckContext) -> Iterator[_Draw]:
    """Draws of `sample()`, which have no graph."""
    graph = context.graph
    for cut, nodes in _taken(context).items():
        lost = [leaf for leaf in graph.leaves if cut.behind.intersection(leaf.names)]
        drawn = cut.kind == "sample" and not cut.chosen and not cut.leaf
        if drawn and lost and all(_is_layer(graph, node) for node in nodes):
            yield _Draw(nodes[0], "sample()", first_names(lost), cut.source)


def _picked(context: CheckContext) -> Iterator[_Draw]:
    """The nearest of some codes, which was picked by a distance to the same codes, and which layers go on with."""
    graph = context.graph

    def reshaped(node: int) -> list[int]:
        return [user for user in users(graph, node) if kind(graph, user) in RESHAPES]

    for cut, nodes in _taken(context).items():
        for node in nodes if cut.kind == "integer" and cut.operation in ("argmin", "min") else ():
            codes = {leaf.node for leaf in graph.leaves if cut.behind.intersection(leaf.names)}
            own = codes.intersection(makers(graph, node))
            lost = first_names(graph.leaf_of[leaf] for leaf in sorted(codes - own))
            layers = (
                user for at in spread([node], reshaped) for user in users(graph, at) if _is_layer(graph, user, at)
            )
            for layer in layers if own and lost else ():
                yield _Draw(layer, code(made_at(graph, node)), lost, made_at(graph, layer))


_DRAWN = (
    "a layer goes on with what {how} drew: its gradient is zero",
    "{code} draws from what {lost} computed, and the derivative of a draw is zero: nothing that is computed from it trains them, "
    "only other terms of the loss do",
)
_ROWS: dict[Callable[[CheckContext], Iterator[_Draw]], tuple[str, str, str]] = {
    _recorded: (
        *_DRAWN,
        "In {line}, draw so that the gradient passes: mean + std * torch.randn_like(std), or a relaxed rsample().",
    ),
    _unrecorded: (*_DRAWN, "In {line}, draw so that the gradient passes: rsample() in place of sample()."),
    _picked: (
        "a layer goes on with the nearest codes: no gradient reaches what they are near to",
        "{code} takes what {how} picked, and {lost} computed what it is near to: what is computed from the codes trains the codes "
        "alone, and {lost} only by other terms of the loss",
        "Pass the gradient around the choice before a layer takes it: codes = z + (codes - z).detach(), with z for what was near.",
    ),
}
"""What is said of each kind: summary, why and fix."""


def _is_layer(graph: Graph, node: int, draw: int | None = None) -> bool:
    """Whether a node computes something of a draw with parameters alone."""
    for edge in graph.inputs(node):
        inner = edge.producer
        while graph.nodes[inner].op in _TURNED:
            inner = graph.inputs(inner)[0].producer
        if inner not in graph.leaf_of and inner != draw:
            return False
    return len(graph.inputs(node)) > (draw is not None)
