"""Notes: what is not wrong, but good to know about a graph."""

from __future__ import annotations

import re

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import all_names, listed, nodes_of, title
from gradviz.graph.amounts import depth
from gradviz.wording import one_line, plural, tensor_line

DEEP = 10_000
"""Backward functions in a row from which `deep-graph` speaks up."""

_TWICE = re.compile(r"Backward\d*(Backward)\d*$")


@check("tied-parameter", "note", "one parameter is used under several names")
def tied_parameter(context: BackwardCall) -> Diagnoses:
    """One parameter has several names in the model: its gradient is the sum over all
    its uses.

    That is how tied embeddings work. It matters when parameters are counted, saved,
    sharded or given to optimizers in groups.

    How it is found: The names of each parameter are collected from the models.

    What to do: Nothing, when they are tied on purpose. Else give each module a tensor
    of its own: `copy.deepcopy(module)`.

    When to ignore it: When they are tied on purpose.

    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    model[1].weight = model[0].weight
    loss = model(torch.ones(1, 3)).sum()
    loss.backward()
    ```
    """
    tied = [leaf for leaf in context.graph.leaves if len(leaf.names) > 1]
    tied = [leaf for leaf in tied if leaf.kind == "parameter"]
    if tied:
        others = f"; {plural(len(tied) - 1, 'other')} with several names, too"
        yield Diagnosis(
            f"{listed(tied[0].names)} are one parameter{others * bool(tied[1:])}",
            all_names(tied),
            f"these names lead to one tensor {tensor_line(tied[0].tensor)}, and its gradient is the sum over all uses",
            "No change needed if they are tied on purpose.",
            nodes_of(tied),
        )


@check(
    "double-backward",
    "note",
    "the graph contains a backward pass: gradients of gradients",
)
def double_backward(context: BackwardCall) -> Diagnoses:
    """The graph was made by `create_graph=True`: a part of it is a backward pass
    itself.

    That is how gradient penalties and Hessians are computed. It keeps the first graph
    alive and costs a second one; when `backward(create_graph=True)` made it, `.grad`
    and the graph hold each other alive until `.grad` is reset.

    How it is found: The names of the backward functions tell:
    `ThresholdBackwardBackward0` is the derivative of a derivative.

    What to do: Leave out `create_graph=True` where no gradient of a gradient is needed.

    When to ignore it: When gradients of gradients are wanted.

    ```python
    import torch

    w = torch.ones(3, requires_grad=True)
    score = torch.tanh(w).sum()
    (slope,) = torch.autograd.grad(score, w, create_graph=True)
    penalty = slope.square().sum()
    penalty.backward()
    ```
    """
    graph = context.graph
    second = [graph.nodes[i] for i, op in enumerate(graph.ops) if _TWICE.search(op)]
    if second:
        yield Diagnosis(
            f"the graph contains a backward pass ({plural(len(second), 'node')} of second order)",
            tuple(name for node in second for name in node.names),
            f"such as {title(graph, second[0].id)}, the derivative of a backward function",
            "No change needed if you differentiate the gradients. Otherwise remove create_graph=True.",
            tuple(node.id for node in second),
        )


@check("deep-graph", "note", "the graph is very deep")
def deep_graph(context: BackwardCall) -> Diagnoses:
    """More than 10,000 backward functions in a row: as deep as a very long recurrence.

    Backward handles that. Gradients over so many steps mostly vanish or explode, every
    step keeps what it saved, and tools that follow the graph recursively fail on it.
    Truncated backpropagation cuts it with `state = state.detach()`.

    How it is found: The longest way from an output to a leaf is counted.

    What to do: Cut the recurrence now and then: `state = state.detach()`.

    When to ignore it: When gradients over the whole length are wanted, and the memory
    suffices.

    ```python
    import torch

    x = torch.ones(1, requires_grad=True)
    state = x
    for step in range(10_001):
        state = state * 1.0
    loss = state.sum()
    loss.backward()
    ```
    """
    # no path is longer than there are nodes: most graphs need no search
    if len(context.graph.nodes) <= DEEP:
        return
    deepest = depth(context.graph)
    if deepest > DEEP:
        yield Diagnosis(
            f"the graph is {deepest:,} backward functions deep",
            tuple(one_line(root.name) for root in context.graph.roots),
            f"the longest way from an output to a leaf has {deepest:,} backward functions, more than {DEEP:,}",
            "If it is a recurrence, cut its history now and then: state = state.detach().",
        )
