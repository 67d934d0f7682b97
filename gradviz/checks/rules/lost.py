"""Checks on lines that do nothing: nobody gets what they compute, or a method is named and not called."""

from __future__ import annotations

from collections.abc import Iterator

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.words import line
from gradviz.wording import clip, one_line

_CODE = 50


@check("no-effect", "warning", "a line computes something that nobody gets")
def no_effect(context: CheckContext) -> Iterator[Diagnosis]:
    """A line makes a new tensor and drops it: the line does nothing.

    `x.clamp(0, 1)`, `hidden.detach()`, `loss / 4`, `torch.relu(h)` and `images.to(device)` leave their tensor as it is and return
    another one; only names that end in `_` change it in place (and a module's `to` and `cuda`).

    How it is found: Statements that consist of such a call are looked up in the text of your files, and the calls are seen
    as they run, with what they made. The last line of a file, which a notebook would show, and what is inside `try` are left out.

    What to do: Give the result a name, as in `x = x.clamp(0, 1)`.

    When to ignore it: When the line is there to measure or to warm up an operation.

    ```python
    import torch

    w = torch.ones(3, requires_grad=True)
    x = w * 2
    x.clamp(0, 1)
    loss = x.sum()
    loss.backward()
    ```
    """
    for dropped in context.lost:
        if not dropped.method:
            yield Diagnosis(
                f"`{clip(one_line(dropped.text), _CODE)}` does nothing",
                (dropped.of,),
                line(dropped.source),
                f"it makes a new tensor, which nobody gets, and leaves {clip(one_line(dropped.of), _CODE)} as it is",
                f"Write {one_line(dropped.mended)}."
                if dropped.mended
                else "Give the result a name, and go on with that.",
                source=dropped.source,
                part=dropped.text,
            )


@check("not-called", "warning", "a method is named and not called")
def not_called(context: CheckContext) -> Iterator[Diagnosis]:
    """A line consists of a method without `()`, such as `optimizer.step` or `model.eval`: it does nothing.

    How it is found: Statements that consist of such a name are looked up in the text of the script, and of your files that call
    torch. The last line of a file, which a notebook would show, and what is inside `try` are left out.

    What to do: Call the method.

    When to ignore it: When the attribute is one of yours that does something when it is read.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.ones(2, 3)).sum().backward()
        optimizer.step
    print("done")
    ```
    """
    for dropped in context.lost:
        if dropped.method:
            yield Diagnosis(
                f"{one_line(dropped.text)} is named and not called",
                (dropped.of,),
                line(dropped.source),
                "the name of a method alone calls nothing",
                f"Write {one_line(dropped.mended)}.",
                source=dropped.source,
                part=dropped.text,
            )
