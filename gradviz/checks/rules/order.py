"""Checks on the order of calls in a training loop: each wrong order is a row, a pattern
over the letters of the log.

b backward, z zero_grad, c clip, S scale, u unscale, x the scaler's step, U its update,
s step, l a scheduler's step.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.run import Log, letters
from gradviz.checks.words import Names, code
from gradviz.source.search import grad_reads
from gradviz.wording import plural

TIMES = 2
"""Times from which an order is a habit of the code."""


class CallOrder(NamedTuple):
    """A wrong order. The group `call` of the pattern is the call to move, `other` where
    to; in the texts {code} and {other} are their lines with the code, {text} and
    {there} their code alone, {times} how often it was seen.
    """

    pattern: str
    row: Row


def found(
    log: Log, order: CallOrder, names: Names = (), enough: int = TIMES
) -> Diagnoses:
    """What is said of an order that a log shows often enough."""
    seen = list(re.finditer(order.pattern, letters(log)))
    if not seen or len(seen) < enough:
        return

    call = log[seen[0].start("call")].source
    other = log[seen[0].start("other")].source
    yield order.row.filled(
        names,
        call,
        other=code(other),
        there=other.text if other is not None else "the call",
        times=plural(len(seen), "time"),
    )


_LATE = CallOrder(
    r"b[^cs]*(?P<other>s)[^bcsS]*(?P<call>c)",
    Row(
        "gradients are clipped after the step that uses them",
        "{code} runs after {other} and before the next backward(), so no step ever sees a clipped gradient",
        "Move {text} above {there}, behind backward().",
    ),
)
_WITH_SCALE = CallOrder(
    r"S[^bucsx]*b[^ucsx]*(?P<call>(?P<other>c))",
    Row(
        "gradients are clipped while the scaler's factor is in them",
        "{code} runs before any scaler.unscale_(optimizer): the norm that it compares is that of gradients times the scale, so "
        "nearly everything is clipped",
        "Call scaler.unscale_(optimizer) directly before {text}.",
    ),
)
_PAST_SCALER = CallOrder(
    r"S[^uxs]*(?P<call>(?P<other>s))",
    Row(
        "optimizer.step() bypasses the GradScaler: gradients are still scaled",
        "{code} uses gradients of a loss that scaler.scale() multiplied, and nothing unscaled them",
        "Replace {text} with scaler.step(optimizer) and then scaler.update().",
    ),
)
_NEVER_UPDATED = CallOrder(
    r"(?P<call>(?P<other>x))",
    Row(
        "the scaler is never updated",
        "{code} has run {times} and scaler.update() never: the scale is not adapted, and another step() without it fails",
        "Call scaler.update() after {text}, once in every step.",
    ),
)
_TOO_EARLY = CallOrder(
    r"b[^bzs]*(?P<call>z)[^bs]*(?P<other>s)",
    Row(
        "{names} updates nothing: the gradients are reset before it takes its step",
        "{code} runs between backward() and step(): {times} a step found no gradient any more",
        "Call {names}.step() after backward(), and {names}.zero_grad() only after that, or before backward().",
    ),
)


@check(
    "clip-order",
    "warning",
    "gradients are clipped too late, or before they are unscaled",
    whole_run=True,
)
def clip_order(context: BackwardCall) -> Diagnoses:
    """Gradients are clipped after the optimizer has used them, or while a GradScaler's
    factor is still in them.

    Clipping changes `.grad` in place, so it has to come after `backward()`, after
    `scaler.unscale_(optimizer)` where there is a GradScaler, and before `step()`.

    How it is found: Calls of `clip_grad_norm_` and `clip_grad_value_` are noted beside
    those of `backward()`, `unscale_()` and `step()`. Reported when, twice, there was a
    step and no clipping between backward and it, and the clipping came then; or when a
    scaled gradient was clipped twice.

    What to do: Move the clipping between the last `backward()` and `step()`. With mixed
    precision: `scaler.scale(loss).backward()`, `scaler.unscale_(optimizer)`, clip,
    `scaler.step(optimizer)`, `scaler.update()`.

    When to ignore it: When clipping is only used to measure the norm of what is left.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    ```
    """
    for order in (_LATE, _WITH_SCALE):
        yield from found(context.run.log, order)


@check(
    "scaler-order",
    "warning",
    "a GradScaler is used without one of its steps",
    whole_run=True,
)
def scaler_order(context: BackwardCall) -> Diagnoses:
    """A GradScaler scales the loss, and the step goes past it, or its scale is never
    updated.

    `scaler.step(optimizer)` divides gradients by the scale and leaves a step out where
    one is not finite; `scaler.update()` then adapts the scale, and lets `step()` be
    called again.

    How it is found: Calls of the scaler and of `optimizer.step()` are noted. Reported
    when two steps went past the scaler though gradients were scaled, or two went
    through it without an `update()`.

    What to do: `scaler.scale(loss).backward()`, `scaler.step(optimizer)`,
    `scaler.update()`, in every step.

    When to ignore it: When the code unscales gradients itself, by hand.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    scaler = torch.amp.GradScaler("cpu")
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        optimizer.step()
    ```
    """
    log = context.run.log
    word = letters(log)
    # code that reads gradients may unscale them itself
    if not grad_reads(context.body):
        yield from found(log, _PAST_SCALER)
    if "S" in word and "U" not in word:
        yield from found(log, _NEVER_UPDATED)


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
        if optimizer.reached and not optimizer.fed:
            log = context.run.about(optimizer)
            # it may have taken a single step
            enough = min(TIMES, letters(log).count("s"))
            yield from found(log, _TOO_EARLY, optimizer.subject, enough)


_SCHEDULE = CallOrder(
    # it comes again after the step, so it is part of the loop
    r"^(?P<call>l)(?P<other>[sx]).*l",
    Row(
        "the scheduler takes its step before the optimizer's first one",
        "{code} runs before {other} in each round: the first learning rate of the schedule is never used, and each other one comes "
        "a round too early",
        "Move {text} to the end of the round, after {there}.",
    ),
)


@check(
    "scheduler-order",
    "warning",
    "a learning rate scheduler takes its step before the optimizer's first one",
    whole_run=True,
)
def scheduler_order(context: BackwardCall) -> Diagnoses:
    """A scheduler's `step()` comes at the beginning of each round, so the first value
    of the schedule is never used.

    A scheduler sets the first learning rate when it is made, and `scheduler.step()`
    sets the next one. It belongs behind the steps of the optimizer that are to use the
    one before.

    How it is found: Calls of `step()` of schedulers and of optimizers are noted.
    Reported when one line calls that of a scheduler before the optimizer took any step,
    in a loop with that step or again after it. Where the learning rate was 0, or an
    epoch is given to `scheduler.step(epoch)`, it is none; nor are steps that only catch
    up with a checkpoint.

    What to do: Call `scheduler.step()` at the end of the round, after
    `optimizer.step()`.

    When to ignore it: When the schedule was written with its first value to be skipped.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for epoch in range(3):
        scheduler.step()
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    steps = [event for event in context.run.log if event.letter in "lsx"]
    for source in dict.fromkeys(step.source for step in steps if step.letter == "l"):
        calls = [one for one in steps if one.letter != "l" or one.source == source]
        yield from found(calls, _SCHEDULE, enough=1)
