"""Checks on the order of calls in a training loop: each wrong order is a row, a pattern
over the letters of the log.

b backward, z zero_grad, c clip, S scale, u unscale, x the scaler's step, U its update,
s step, l a scheduler's step.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.edit import Edit, before, behind
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.run import Log, OptimizerRow, calls_in, letters
from gradviz.checks.words import Names, code
from gradviz.graph import SourceLine
from gradviz.wording import plural

TIMES = 2
"""Times from which an order is a habit of the code."""


class CallOrder(NamedTuple):
    """A wrong order. The group `call` of the pattern is the call to move, `other` where
    to; in the texts {call} and {other} are their lines with the code, {text} and
    {there} their code alone, {times} and {count} how often it was seen, and backward in
    it.

    `of_each`: asked of the calls about each optimizer. `holds`: what else has to be.
    `unless`: a letter that must be nowhere.
    """

    pattern: str
    summary: str
    why: str
    fix: str
    edit: Callable[
        [
            SourceLine | None,
            SourceLine | None,
            dict[str, str],
        ],
        Edit | None,
    ] = lambda call, other, words: None
    of_each: bool = False
    holds: Callable[[BackwardCall, OptimizerRow, Log], bool] = (
        lambda context, optimizer, part: True
    )
    unless: str = "-"


def found(context: BackwardCall, *orders: CallOrder) -> Diagnoses:
    """What is said of these orders."""
    record = context.run
    for order in orders:
        for optimizer in record.optimizers if order.of_each else [OptimizerRow("")]:
            log = record.about(optimizer) if order.of_each else record.log
            word, names = letters(log), optimizer.subject if order.of_each else ()
            seen = [
                match
                for match in re.finditer(order.pattern, word)
                if order.unless not in word
            ]
            part = log[seen[0].start() : seen[0].end()] if seen else ()
            enough = len(seen) >= (
                min(TIMES, word.count("s")) if order.of_each else TIMES
            )

            if seen and enough and order.holds(context, optimizer, part):
                call, other = (
                    log[seen[0].start(group)].source for group in ("call", "other")
                )
                yield _told(
                    order,
                    call,
                    other,
                    names,
                    {
                        "times": len(seen),
                        "count": letters(part).count("b"),
                    },
                )


def _told(
    order: CallOrder,
    call: SourceLine | None,
    other: SourceLine | None,
    names: Names,
    counts: dict[str, int],
) -> Diagnosis:
    words = {
        "call": code(call),
        "other": code(other),
        "text": _text(call),
        "there": _text(other),
    }
    words |= {
        "times": plural(counts["times"], "time"),
        "count": str(counts["count"]),
        "optimizer": "".join(names),
    }
    step = re.fullmatch(r"([\w.]+)\.step\((.+)\)", words["there"])
    words |= dict(
        zip(
            ("scaler", "opt"),
            step.groups() if step else ("scaler", "optimizer"),
        )
    )
    summary, why, fix = (text.format(**words) for text in order[1:4])

    return Diagnosis(
        summary,
        names,
        why,
        fix,
        source=call,
        edit=order.edit(call, other, words),
    )


def _text(source: SourceLine | None) -> str:
    return source.text if source is not None else "the call"


_LATE = CallOrder(
    r"b[^cs]*(?P<other>s)[^bcsS]*(?P<call>c)",
    "gradients are clipped after the step that uses them",
    "{call} runs after {other} and before the next backward(), so no step ever sees a clipped gradient",
    "Move {text} above {there}, behind backward().",
    lambda call, other, words: None,
)
_WITH_SCALE = CallOrder(
    r"S[^bucsx]*b[^ucsx]*(?P<call>c)[^s]*?(?P<other>x)?",
    "gradients are clipped while the scaler's factor is in them",
    "{call} runs before any scaler.unscale_(optimizer): the norm that it compares is that of gradients times the scale, so nearly "
    "everything is clipped",
    "Call {scaler}.unscale_({opt}) directly before {text}.",
    lambda call, other, words: before(call, "{scaler}.unscale_({opt})".format(**words)),
)
_PAST_SCALER = CallOrder(
    r"S[^uxs]*(?P<call>(?P<other>s))",
    "optimizer.step() bypasses the GradScaler: gradients are still scaled",
    "{call} uses gradients of a loss that scaler.scale() multiplied, and nothing unscaled them",
    "Replace {text} with scaler.step(optimizer) and then scaler.update().",
    # such code may unscale them itself
    holds=lambda context, optimizer, part: not context.reads_grad,
)
_NEVER_UPDATED = CallOrder(
    r"(?P<call>(?P<other>x))",
    "the scaler is never updated",
    "{call} has run {times} and scaler.update() never: the scale is not adapted, and a second step() without it raises an error",
    "Call {scaler}.update() after {text}, once in every step.",
    lambda call, other, words: behind(call, "{scaler}.update()".format(**words)),
    unless="U",
)
_TOO_EARLY = CallOrder(
    r"b[^bzs]*(?P<call>z)[^bs]*(?P<other>s)",
    "{optimizer} updates nothing: the gradients are reset before it takes its step",
    "{call} runs between backward() and step(): {times} a step found no gradient any more",
    "Call {optimizer}.step() after backward(), and {optimizer}.zero_grad() only after that, or before backward().",
    lambda call, other, words: None,
    of_each=True,
    holds=lambda context, optimizer, part: (
        bool(optimizer.reached) and not optimizer.fed
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
    yield from found(context, _LATE, _WITH_SCALE)


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
    if "S" in letters(context.run.log):
        yield from found(context, _PAST_SCALER, _NEVER_UPDATED)


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
    yield from found(context, _TOO_EARLY)


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
    log = context.run.log
    for schedule in {call.source: call for call in calls_in(log, "l")[::-1]}.values():
        mine = [
            call
            for call in calls_in(log, "lsx")
            if call.source == schedule.source
            or (call.letter in "sx" and call.concerns(schedule))
        ]
        if re.match("l[sx].*l", letters(mine)):
            there = mine[1].source
            yield Diagnosis(
                "the scheduler takes its step before the optimizer's first one",
                (),
                f"{code(schedule.source)} runs before {code(there)} in each round: the first learning rate of the schedule is "
                "never used, and each other one comes a round too early",
                f"Move {_text(schedule.source)} to the end of the round, after {_text(there)}.",
                source=schedule.source,
            )
            return
