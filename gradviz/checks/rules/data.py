"""The check on data: numbers that are lost on their way. Each way is a row of what is said of it."""

from __future__ import annotations

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.rules.misuse import told

_ROWS = {
    "bytes inverted": Row(
        "~ of a uint8 tensor makes 254 and 255 of 1 and 0",
        "{code} inverts a mask of uint8 numbers, which are 0 and 1: ~ turns their bits, and is no logical not for them",
        "Make it bool first, in {text}: ~mask.bool().",
    ),
    "data written": Row(
        "the data is changed in place, each time that it is read",
        "{code} writes to a part of the stored tensor of shape {0}, and has written to the same elements before: what was meant "
        "for one batch stays for all later ones",
        "Change a copy: take the part with .clone() before {line} writes to it; or compute a new tensor.",
    ),
    "nan left": Row(
        "{0} is NaN at the end",
        "{code} is the first line that made NaN of finite numbers, without a graph; the loss stayed finite",
        "Keep a divisor above zero, .clamp(min=1e-6), or leave out what is empty, in {text}.",
    ),
}  # fmt: skip


@check("lost-numbers", "warning", "data is changed in place, or a metric, a buffer or a state becomes NaN")
def lost_numbers(context: CheckContext) -> Diagnoses:
    """A line without a graph changes the stored data with each batch, or makes NaN that stays in a buffer.

    The loss is finite and training goes on: an augmentation that writes to the stored data changes it more with each epoch; an
    accuracy of no samples is NaN, and so is a running mean that it is added to.

    How it is found: writes to parts of data that layers are given are counted. Lines that divide or take roots and logarithms are
    looked at, ever less often. When the script has ended, buffers, states of optimizers and variables are searched for NaN.

    What to do: change a copy, `.clone()`; leave out what is empty.

    When to ignore it: when the NaN is taken out later.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    stored = torch.rand(8, 3)
    for step in range(4):
        batch = stored[:4]
        batch += 0.1
        loss = model(batch).square().mean()
        loss.backward()
    ```
    """
    yield from told(context, _ROWS)
