"""The check on the order of calls in a training loop, as the log has them."""

from __future__ import annotations

import re

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.run import letters
from gradviz.wording import plural

TIMES = 2
"""Times from which an order is a habit of the code."""
_TOO_EARLY = re.compile("b[^bzs]*(?P<reset>z)[^bs]*(?P<step>s)")
_ROW = Row(
    "{names} updates nothing: the gradients are reset before it takes its step",
    "{code} runs between backward() and step(): {times} a step found no gradient any more",
    "Call {names}.step() after backward(), and {names}.zero_grad() only after that, or before backward().",
)


@check(
    "no-update",
    "warning",
    "gradients are reset before the optimizer takes its step",
    whole_run=True,
)
def no_update(context: BackwardCall) -> Diagnoses:
    """An optimizer takes its steps when the gradients are gone already: it updates
    nothing.

    Mostly `zero_grad()` stands between `backward()` and `step()`. Reported when this
    happened to all tensors of an optimizer that the last three backward calls reached
    (see `--steps`), both times. Gradients that are reset with no step at all are no
    sign: code may look at them only, as attacks and saliency maps do.

    How it is found: For each optimizer that takes a step, it is noted whether the
    tensors it holds have a gradient at that moment.

    What to do: Order the calls: `zero_grad()`, `backward()`, `step()`.

    When to ignore it: When the steps are taken without gradients on purpose.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
    ```
    """
    for optimizer in context.run.optimizers:
        if optimizer.fed or not optimizer.reached:
            continue
        log = context.run.about(optimizer)
        word = letters(log)
        early = list(_TOO_EARLY.finditer(word))
        # it may have taken a single step
        if early and len(early) >= min(TIMES, word.count("s")):
            reset = log[early[0].start("reset")].source
            times = plural(len(early), "time")
            yield _ROW.filled(optimizer.subject, reset, times=times)
