"""Checks on what holds memory beyond the graph of a step: passes that nothing differentiates."""

from __future__ import annotations

from collections.abc import Iterator

from gradviz.checks.context import CheckContext, Unused
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.words import code, line, listed, verb
from gradviz.wording import one_line, plural


@check("unused-graph", "warning", "passes in eval() mode record a graph that no backward() uses")
def unused_graph(context: CheckContext) -> Iterator[Diagnosis]:
    """A model in `eval()` mode runs over data with recording on, and no backward call reaches what it records.

    `eval()` switches dropout and batch normalization, and does not switch recording off. So each pass keeps what its
    operations save, until its result is gone: validation then needs several times the memory that it should, and a sum or a
    list of results keeps all passes alive.

    How it is found: Several calls of a model in `eval()` mode, in a row from one line, made nodes, and none of these is in
    the graph of a later backward call.

    What to do: Run the evaluation under `torch.no_grad()`, or `torch.inference_mode()`.

    When to ignore it: When a gradient of these results is computed after the run that was watched.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step()
    model.eval()
    total = 0.0
    for batch in range(4):
        total += model(torch.ones(2, 3)).mean()
    ```
    """
    for one in context.evaluations:
        why = (
            f"{plural(one.calls, 'call')} in a row from {code(one.source)} made {plural(one.nodes, 'node')}, and no backward call "
            "reached any of them: eval() does not switch recording off"
        )
        if one.holders:
            why += f". {listed(one.holders)} {verb(one.holders, 'keeps', 'keep')} the graphs of several calls, with all they saved"
        yield Diagnosis(
            f"{plural(one.calls, 'pass', 'passes')} of {one_line(one.type)} in eval() mode record a graph that nothing uses",
            one.holders,
            line(one.source),
            why,
            _fix(one),
            source=one.source,
        )


def _fix(one: Unused) -> str:
    if one.separate:
        return f"Put @torch.no_grad() above `def {one_line(one.source.function)}`."
    if one.loop is not None:
        return f"Put the loop of {line(one.loop)} into a block `with torch.no_grad():`."
    return f"Run {line(one.source)} in a block `with torch.no_grad():`."
