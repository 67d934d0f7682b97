"""The check on graphs that are kept for nobody."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code
from gradviz.graph.amounts import COUNTED
from gradviz.wording import bytes_text


@check("retained-graph", "note", "retain_graph=True keeps a graph that nothing uses again")
def retained_graph(context: CheckContext) -> Diagnoses:
    """A line calls `backward(retain_graph=True)`, and no later call of backward meets any part of its graph.

    What was saved for backward then stays until the loss is assigned anew: in a loop, while the next step computes, so that two
    graphs are in memory at the same time. It also hides the error that tells of a graph which is carried from step to step.

    How it is found: the nodes of a few calls are compared. Reported when three calls of a line retained their graph, no other call
    met one of them, and the script has come to its end.

    What to do: leave out `retain_graph=True`.

    When to ignore it: when gradients are asked for by code that runs later.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    for step in range(4):
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward(retain_graph=True)
        model.zero_grad()
    ```
    """
    for misuse in context.record.misuses:
        if misuse.kind == "retains in vain":
            storages = context.graph.storages if context.backward == misuse.source else ()
            kept = sum(storage.nbytes or 0 for storage in storages if storage.kind in COUNTED)
            yield Diagnosis(
                "retain_graph=True is not needed: nothing runs through this graph again",
                (),
                f"{code(misuse.source)} retained the graphs of {misuse.words[0]} calls, and no later call met any of them"
                + (f"; each keeps {bytes_text(kept)} until the next one is there" if kept else ""),
                "Leave out retain_graph=True.",
                source=misuse.source,
                part="retain_graph=True",
                follows=("growing-graph", "freed-graph"),
            )
