"""The check on freezing: what was meant to stay as it is, and is trained."""

from __future__ import annotations

import re

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import instead
from gradviz.checks.record import Mistyped
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import as_code, code, verb
from gradviz.wording import one_line, plural


@check("not-frozen", "warning", "what was meant to be frozen is trained")
def not_frozen(context: CheckContext) -> Diagnoses:
    """Parameters that the code means to freeze and that are updated all the same.

    How it is found: an attribute that freezes nothing (`parameter.require_grad = False`, `module.requires_grad = False`: a module
    has only `requires_grad_()`); or a parameter with `requires_grad=False` in which its
    optimizer still finds an old gradient, and goes on.

    What to do: set `requires_grad` of the parameters, call `requires_grad_(False)` of the module, and set `.grad` to None.

    When to ignore it: when these parameters are to be trained.

    ```python
    import torch

    body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    for parameter in body.parameters():
        parameter.require_grad = False
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    for step in range(3):
        loss = head(body(torch.ones(2, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    record = context.record
    yield from map(_mistyped, record.mistyped)
    for optimizer in record.optimizers:
        name, frozen = one_line(optimizer.name or optimizer.type), record.named(optimizer.frozen)
        if frozen:
            yield Diagnosis(
                f"{plural(len(frozen), 'frozen parameter')} {verb(frozen, 'is', 'are')} still updated by {name}",
                frozen,
                f"{verb(frozen, 'it has', 'they have')} requires_grad=False, but a gradient from before is still in .grad, and "
                f"{name} takes it for its step each time (with momentum and weight decay)",
                f"Empty it when you freeze: parameter.requires_grad_(False); parameter.grad = None. Or give {name} only what is "
                "trained.",
                source=optimizer.source,
            )


def _mistyped(mistyped: Mistyped) -> Diagnosis:
    names, source = tuple(map(one_line, mistyped.names)), mistyped.source
    what, fix = f".{mistyped.attribute} = False", "Write parameter.requires_grad = False."
    new = source.text.replace(mistyped.attribute, "requires_grad") if source is not None else ""
    why = f"a tensor's switch is requires_grad: this only gives it an attribute named {mistyped.attribute} that nobody reads"
    if mistyped.module:
        what = f"{names[0]}{what}" if len(names) == 1 else f"{what} on modules"
        why = "a module has no such switch: this only gives it an attribute that nobody reads"
        spelled = re.match(rf"([\w.\[\]]+)\.{mistyped.attribute}\s*=[^=]*$", source.text.strip() if source else "")
        name = spelled[1] if spelled is not None else as_code(names[0])
        new = f"{name}.requires_grad_(False)"
        fix = f"Write {new}: the method, with an underscore, goes through all its parameters."
    return Diagnosis(
        f"{what} freezes nothing: {verb(names, 'it still requires', 'they still require')} grad",
        names,
        f"{code(source)}: {why}" if source is not None else why,
        fix,
        source=source,
        edit=instead(source, new),
    )
