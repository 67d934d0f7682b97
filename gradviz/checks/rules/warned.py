"""The check on what torch itself has warned of: each message that concerns training is
a row with its cause and a fix.
"""

from __future__ import annotations

import re

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.raised.messages import messages, understood
from gradviz.checks.run import Kind
from gradviz.checks.words import code
from gradviz.wording import clip, one_line

_LEFT_OUT = (
    "deprecated|prototype|experimental|not available|nested_tensor|to a scalar|copy construct|Anomaly|future|beta"
    r"|Full backward hook is firing|call of `lr_scheduler.step\(\)`"
)
"""What is harmless, and the order that scheduler-order judges: torch warns of a right
one, too.
"""


@check(
    "torch-warning",
    "warning",
    "torch has warned of a line of the script",
    whole_run=True,
)
def torch_warning(context: BackwardCall) -> Diagnoses:
    """torch warned of something that concerns training, at a line of yours: what it
    means, and what to do.

    A warning is shown once, among all that a script prints. What another check says
    more exactly is not said twice, and the order of steps of a scheduler is left to
    `scheduler-order`; a message that is not known here is a note.

    How it is found: Warnings of torch are taken up as Python shows them. What a filter
    hides is not seen.

    What to do: What the finding says.

    When to ignore it: When it is known and meant; a filter hides the warning here, too.

    ```python
    import torch

    model = torch.nn.Linear(3, 2)
    loss = torch.nn.functional.l1_loss(model(torch.ones(8, 3)), torch.ones(2))
    loss.backward()
    ```
    """
    for warning in context.run.events(Kind.WARNING):
        (text,) = warning.about
        found = understood(text, messages("warnings"))

        if found is not None:
            message, groups = found
            yield Diagnosis(
                message.summary.format(**groups),
                (),
                f"{code(warning.source)}: {message.why.format(**groups)}",
                message.fix.format(**groups),
                source=warning.source,
                follows=tuple(message.follows.split()),
            )
        # not understood, so a note only
        elif not re.search(_LEFT_OUT, text):
            yield Diagnosis(
                f"torch warns: {clip(one_line(text), 80)}",
                (),
                f"{code(warning.source)}: {clip(one_line(text), 200)}",
                "Read the message; no change is needed if this is intentional.",
                source=warning.source,
                severity="note",
            )
