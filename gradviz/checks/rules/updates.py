"""Checks on who updates what, over a whole run: each is a look at the rows of leaves
and optimizers.
"""

from __future__ import annotations

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.run import LeafRow, ModelState
from gradviz.checks.words import as_code, first_names, line, listed, places
from gradviz.wording import one_line, plural

ENOUGH = 2
"""Calls, or steps, from which something is a habit of the code."""

_FORGOTTEN = Row(
    "{count} of {model} {has} a gradient, and nothing updates {them}",
    "backward() filled .grad at {calls}, nothing changed {them} in between, and {holders} does not hold {them}",
    "Give {them} to the optimizer where it is made, after all parameters are there: {parameters}.parameters(). If not to be "
    "trained, compute the output inside `with torch.no_grad():`, or freeze {them}: requires_grad_(False).",
)
_ATTRIBUTE = Row(
    "{names} requires grad and gets a gradient, and nothing updates it",
    "no optimizer holds it, and it did not change between {calls}; parameters() of {type} does not list it, since it is no "
    "nn.Parameter",
    "Make it a parameter in __init__(): self.{attribute} = torch.nn.Parameter(...).",
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
    not computed under `torch.no_grad()`, or a tensor with `requires_grad=True` that is
    an attribute of a module but no `nn.Parameter`, so that `parameters()` does not list
    it.

    How it is found: two calls of `backward()` reached it, an optimizer took a step in
    between, none holds it, and it did not change. Left alone are a network that is in
    `eval()` mode as a whole, and one beside an optimizer that holds no parameters, as
    when an image is optimized.

    What to do: give it to the optimizer, make it an `nn.Parameter`, or freeze it;
    compute targets under `torch.no_grad()`.

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
    record = context.run
    # the leaves of a sharded graph are not the tensors that the optimizer holds
    sharded = any(model.sharded for model in record.models)
    if not record.stepped or sharded:
        return

    trained = any(leaf.parameter and leaf.holders for leaf in record.rows)
    # the inputs of an equation are leaves, too
    equation = any("BackwardBackward" in op for op in context.graph.ops)
    forgotten: dict[str, list[LeafRow]] = {}
    for leaf in filter(_is_still, record.rows):
        if leaf.parameter and trained and _is_trained(record.model(leaf.model)):
            forgotten.setdefault(leaf.model, []).append(leaf)
        if not (leaf.parameter or equation) and _is_attribute(context, leaf):
            yield _ATTRIBUTE.filled(
                leaf.names[:1],
                leaf.source,
                calls=plural(leaf.reached, "call"),
                type=one_line(leaf.type),
                attribute=leaf.names[0].rpartition(".")[2],
            )
    for name, leaves in forgotten.items():
        yield _forgotten(context, name, leaves)


def _is_still(leaf: LeafRow) -> bool:
    return leaf.moved is False and not leaf.holders and leaf.reached >= ENOUGH


def _is_attribute(context: BackwardCall, leaf: LeafRow) -> bool:
    return bool(leaf.module) and leaf.node not in context.homes


def _forgotten(context: BackwardCall, name: str, leaves: list[LeafRow]) -> Diagnosis:
    """Parameters of one model that no optimizer holds, while others are stepped."""
    rows = [row for row in context.run.optimizers if row.steps]
    modules = {leaf.module for leaf in leaves}
    owner = modules.pop() if len(modules) == 1 else name
    return _FORGOTTEN.filled(
        first_names(leaves),
        rows[-1].source,
        count=plural(len(leaves), "parameter"),
        model=name or "the model",
        calls=plural(leaves[0].reached, "call"),
        holders=listed(row.title for row in rows),
        parameters=as_code(owner),
    )._replace(
        nodes=tuple(leaf.node for leaf in leaves if leaf.call == context.call),
        where=places(name, line(rows[-1].source)),
    )


def _is_trained(model: ModelState | None) -> bool:
    """One in eval() mode that no optimizer holds is looked at."""
    return model is None or model.training or bool(model.held)
