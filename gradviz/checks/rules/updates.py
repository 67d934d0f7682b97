"""Checks on who updates what, over a whole run: each is a look at the rows of leaves
and optimizers.
"""

from __future__ import annotations

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.run import LeafRow
from gradviz.checks.words import as_code, first_names, line, listed, places
from gradviz.wording import plural

ENOUGH = 2
"""Calls, or steps, from which something is a habit of the code."""

_FORGOTTEN = Row(
    "{count} of {model} {has} a gradient, and nothing updates {them}",
    "backward() filled .grad at {calls}, nothing changed {them} in between, and no optimizer ({holders}) holds {them}",
    "Give {them} to the optimizer where it is made, after all parameters are there: {parameters}.parameters(). If not to be "
    "trained, compute the output inside `with torch.no_grad():`, or freeze {them}: requires_grad_(False).",
)


@check(
    "never-updated",
    "warning",
    "a parameter gets a gradient at every step, and nothing ever updates it",
    follows=("nonleaf-parameter",),
    whole_run=True,
)
def never_updated(context: BackwardCall) -> Diagnoses:
    """A parameter gets a gradient, no optimizer holds it, and it does not change from
    call to call.

    A new head that was never given to the optimizer, a target network whose output was
    not computed under `torch.no_grad()`.

    How it is found: two calls of `backward()` reached it, an optimizer took a step in
    between, none holds it, and it did not change. Left alone are a network that is in
    `eval()` mode as a whole, and one beside an optimizer that holds no parameters, as
    when an image is optimized.

    What to do: give it to the optimizer, or freeze it; compute targets under
    `torch.no_grad()`.

    When to ignore it: when you update it yourself, later than in the steps that were
    seen.

    ```python
    import torch

    body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    for step in range(3):
        loss = head(body(torch.ones(2, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    stepping = [row for row in context.run.optimizers if row.steps]
    for name, leaves in _forgotten(context).items():
        modules = {leaf.module for leaf in leaves}
        yield _FORGOTTEN.filled(
            first_names(leaves),
            stepping[-1].source,
            count=plural(len(leaves), "parameter"),
            model=name or "the model",
            calls=plural(leaves[0].reached, "call"),
            holders=listed(row.title for row in stepping),
            parameters=as_code(modules.pop() if len(modules) == 1 else name),
        )._replace(
            nodes=tuple(leaf.node for leaf in leaves if leaf.call == context.call),
            where=places(name, line(stepping[-1].source)),
        )


def _forgotten(context: BackwardCall) -> dict[str, list[LeafRow]]:
    """Parameters that no optimizer holds, by model, while others are stepped."""
    run, forgotten = context.run, dict[str, list[LeafRow]]()
    holding, asleep = run.holding, {m.name for m in context.models if not m.training}
    trained = {row.model for key, row in run.leaves.items() if key in holding} - {None}
    for key, row in run.leaves.items() if run.stepped and trained else ():
        still = row.moved is False and row.reached >= ENOUGH and key not in holding
        # one in eval() mode that no optimizer holds is looked at
        if still and row.model is not None and row.model not in asleep - trained:
            forgotten.setdefault(row.model, []).append(row)
    return forgotten
