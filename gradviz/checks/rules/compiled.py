"""Notes on `torch.compile`: where it could not go on, and began another graph."""

from __future__ import annotations

from collections.abc import Iterator

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.words import code, line
from gradviz.wording import one_line

_KNOWN = {
    "generic_jump": (
        "a branch depends on the numbers of a tensor",
        "Choose with torch.where() or torch.cond() in place of `if`, or move the line out of the compiled function.",
    ),
    "step_unsupported": ("it cannot trace this line", ""),
}
"""What torch names after its own parts, by how its words begin: in other words, and what to do."""


@check("graph-break", "note", "torch.compile broke a function into several graphs")
def graph_break(context: CheckContext) -> Iterator[Diagnosis]:
    """A line that `torch.compile` could not compile, so that what comes before it and after it are graphs of their own.

    At each break Python runs, the graphs before and after are optimised apart, and what the one hands to the other is kept for
    backward. With `fullgraph=True` torch raises an error there instead.

    How it is found: torch notes every break that it makes, with the line and the reason; its notes are read. A break counts
    where an operation of the graph comes from the same function.

    What to do: What torch advises, which the finding quotes; or move the line out of the compiled function.

    When to ignore it: When the break is outside the part that takes the time.

    ```python
    import torch


    def step(x):
        y = x.sin()
        torch._dynamo.graph_break()
        return y.cos().sum()


    x = torch.ones(3, requires_grad=True)
    loss = torch.compile(step, backend="aot_eager")(x)
    loss.backward()
    ```
    """
    lines = {place for node in context.graph.nodes for place in (node.source, node.script_line) if place is not None}
    functions = {(place.file, place.function) for place in lines}
    for broken in context.breaks:  # of the whole process: those in other functions are not about this graph
        if (broken.source.file, broken.source.function) not in functions:
            continue
        reason, fix = next((known for start, known in _KNOWN.items() if broken.reason.startswith(start)), ("", ""))
        yield Diagnosis(
            f"torch.compile broke the graph: {reason or one_line(broken.reason)}",
            (),
            line(broken.source),
            f"torch could not compile {code(broken.source)} together with what comes before it",
            one_line(broken.hint) or fix or "Move the line out of the compiled function.",
            source=broken.source,
        )
