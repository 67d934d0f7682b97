"""Notes: what is not wrong, but good to know about a graph."""

from __future__ import annotations

import re

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import title
from gradviz.wording import plural

_TWICE = re.compile(r"Backward\d*(Backward)\d*$")


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
