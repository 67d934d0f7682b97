"""Checks on the order of calls in a training loop.

An order is a pattern over the letters of the log: b backward, z zero_grad, c clip, S scale, u unscale, x the scaler's step, U its
update, s step, l a scheduler's step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import before, behind, swapped
from gradviz.checks.record import Log, LoopCall, OptimizerRow, RunRecord, calls_in, letters, parts
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, line
from gradviz.graph import SourceLine
from gradviz.wording import plural

TIMES = 2
"""Times from which an order is a habit of the code."""
ROUND = "(?:S[^bs]*)?b[^s]*(?:s[^bS]*)?"
"""From the first backward() after a step to the last call before the next one."""


class _Order(NamedTuple):
    """A wrong order: the part of a log that has it, the letters of the call to move and of the other, and what is said.

    {call}, {other} are their lines with the code, {text} and {there} their code alone, {times} how often.
    """

    within: str
    wrong: str
    letter: str
    other: str
    summary: str
    why: str
    fix: str
    unless: str = "^$"  # a letter that must be nowhere


_CLIPPED = (
    _Order(
        ROUND, "[^c]*s[^cs]*c[^s]*", "c", "s",
        "gradients are clipped after the step that uses them",
        "{call} runs after {other} and before the next backward(), so no step ever sees a clipped gradient",
        "Move {text} above {there}, behind backward().",
    ),
    _Order(
        ROUND, "(?=.*S)(?=.*c.*s|[^s]*$)[^uc]*c.*", "c", "c",
        "gradients are clipped while the scaler's factor is in them",
        "{call} runs before any scaler.unscale_(optimizer): the norm that it compares is that of gradients times the scale, "
        "so nearly everything is clipped",
        "Call {scaler}.unscale_({optimizer}) directly before {text}.",
    ),
)  # fmt: skip
_SCALED = (
    _Order(
        "S[^uxs]*s", ".*", "s", "s",
        "optimizer.step() bypasses the GradScaler: gradients are still scaled",
        "{call} uses gradients of a loss that scaler.scale() multiplied, and nothing unscaled them",
        "Replace {text} with scaler.step(optimizer) and then scaler.update().",
    ),
    _Order(
        "x", ".*", "x", "x",
        "the scaler is never updated",
        "{call} has run {times} and scaler.update() never: the scale is not adapted, and a second step() without it "
        "raises an error",
        "Call {scaler}.update() after {text}, once in every step.",
        "U",
    ),
)  # fmt: skip


def _in_order(log: Log, order: _Order) -> Diagnoses:
    found = [part for part in parts(log, order.within) if re.fullmatch(order.wrong, letters(part))]
    if len(found) < TIMES or re.search(order.unless, letters(log)):
        return
    first = found[0]
    call, other = calls_in(first, order.letter)[0], calls_in(first, order.other)[-1]
    words = {"call": code(call.source), "other": code(other.source), "text": _text(call), "there": _text(other)}
    steps = [re.fullmatch(r"(?P<scaler>[\w.]+)\.step\((?P<optimizer>.+)\)", _text(one)) for one in calls_in(first, "x")]
    words |= steps[0].groupdict() if steps and steps[0] else {"scaler": "scaler", "optimizer": "optimizer"}
    edit = swapped(call.source, other.source) if order.other == "s" != order.letter else None
    if order.fix.startswith("Call {scaler}"):
        new = order.fix.partition(" ")[2].partition(")")[0].format(**words) + ")"
        edit = (before if order.letter == "c" else behind)(call.source, new)
    yield Diagnosis(
        order.summary,
        (),
        order.why.format(times=plural(len(found), "time"), **words),
        order.fix.format(**words),
        source=call.source,
        edit=edit,
    )


@check("clip-order", "warning", "gradients are clipped too late, too often, or before they are unscaled")
def clip_order(context: CheckContext) -> Diagnoses:
    """Gradients are clipped after the optimizer has used them, or while a GradScaler's factor is still in them.

    Clipping changes `.grad` in place, so it has to come after `backward()`, after `scaler.unscale_(optimizer)` where there is a
    GradScaler, and before `step()`.

    How it is found: Calls of `clip_grad_norm_` and `clip_grad_value_` are noted beside those of `backward()`, `unscale_()` and
    `step()`. Reported when, twice, there was a step and no clipping between backward and it, and the clipping came then; when
    a scaled gradient was clipped twice; when one line clips after each of several backward calls whose gradients add up; or when
    the parameters that are clipped are none of those that the next steps update, as with two networks.

    What to do: Move the clipping between the last `backward()` and `step()`. With mixed precision: `scaler.scale(loss).backward()`,
    `scaler.unscale_(optimizer)`, clip, `scaler.step(optimizer)`, `scaler.update()`.

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
    for order in _CLIPPED:
        yield from _in_order(context.record.log, order)
    for optimizer in context.record.optimizers:
        yield from _clipped_in_parts(context, _updates(context.record, optimizer))
    yield from _clips_another(context.record)


def _clipped_in_parts(context: CheckContext, updates: Sequence[Log]) -> Diagnoses:
    """A sum of gradients that is clipped each time that another one is added."""
    clipped = [update for update in updates if re.fullmatch("b(cb)+c?", _kinds(update, "bcz")) and _is_one(update, "c")]
    adds_up = [done for done in context.record.intervals if "s" not in done]
    if len(clipped) < min(TIMES, len(updates)) or not clipped or context.reads_grad:
        return
    if not adds_up or any({*done} & {"z", "?"} for done in adds_up):
        return  # they are taken away between the calls, without zero_grad()
    clip, step = calls_in(clipped[0], "c")[0], clipped[0][-1]
    count = letters(clipped[0]).count("b")
    yield Diagnosis(
        f"gradients are clipped after each of {count} backward calls that add up",
        (),
        f"{code(clip.source)} runs after each of the {count} backward calls before {code(step.source)}: clipping runs on the "
        "accumulated sum, so earlier batches are scaled down several times",
        f"Move {_text(clip)} directly above {_text(step)}, so that the sum is clipped once.",
        source=clip.source,
    )


def _kinds(update: Log, kinds: str) -> str:
    """The order of the calls of these kinds, from the first backward on, where one line calls backward."""
    return letters(calls_in(update, kinds)).lstrip("z") if _is_one(update, "b") else ""


def _is_one(update: Log, kind: str) -> bool:
    """Whether one line makes all calls of this kind."""
    return len({call.source for call in calls_in(update, kind)}) == 1


def _clips_another(record: RunRecord) -> Diagnoses:
    """Clips of gradients that no step uses before the next backward, where the steps that come use others, which nothing clips."""
    wrong, right = dict[SourceLine | None, list[tuple[LoopCall, LoopCall]]](), set[SourceLine | None]()
    for part in parts(record.log, "c[^b]*s[^b]*"):
        clips, steps = calls_in(part, "c"), calls_in(part, "s")
        for clip in clips:
            if any(clip.about(step) for step in steps) or any(other.about(steps[0]) for other in clips):
                right.add(clip.source)
            else:
                wrong.setdefault(clip.source, []).append((clip, steps[0]))
    for source, every in wrong.items():
        if len(every) >= TIMES and source not in right:
            (_, step), (mine, other) = every[0], (record.models_of(call.tensors or ()) for call in every[0])
            yield Diagnosis(
                f"gradients of {mine} are clipped, and the step that follows is of {other}",
                (),
                f"no step uses what {code(source)} has clipped, and nothing clips the gradients that {code(step.source)} uses",
                f"In {line(source)}, clip the parameters of {other}.",
                source=source,
            )


@check("scaler-order", "warning", "a GradScaler is used without one of its steps")
def scaler_order(context: CheckContext) -> Diagnoses:
    """A GradScaler scales the loss, and the step goes past it, or its scale is never updated.

    `scaler.step(optimizer)` divides gradients by the scale and leaves a step out where one is not finite; `scaler.update()` then
    adapts the scale, and lets `step()` be called again.

    How it is found: Calls of the scaler and of `optimizer.step()` are noted. Reported when two steps went past the scaler
    though gradients were scaled, or two went through it without an `update()`.

    What to do: `scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`, in every step.

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
    log = context.record.log
    if "S" in letters(log):
        for order in _SCALED[context.reads_grad :]:  # code that reads gradients may unscale them itself
            yield from _in_order(log, order)


@check("scheduler-order", "warning", "a learning rate scheduler takes its step before the optimizer's first one")
def scheduler_order(context: CheckContext) -> Diagnoses:
    """A scheduler's `step()` comes at the beginning of each round, so the first value of the schedule is never used.

    A scheduler sets the first learning rate when it is made, and `scheduler.step()` sets the next one. It belongs behind the steps
    of the optimizer that are to use the one before.

    How it is found: Calls of `step()` of schedulers and of optimizers are noted. Reported when one line calls that of a scheduler
    before the optimizer took any step, in a loop with that step or again after it. Where the learning rate was 0, or an epoch is
    given to `scheduler.step(epoch)`, it is none; nor are steps that only catch up with a checkpoint.

    What to do: Call `scheduler.step()` at the end of the round, after `optimizer.step()`.

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
    log = context.record.log
    for source in dict.fromkeys(call.source for call in calls_in(log, "l")):
        schedule = next(call for call in calls_in(log, "l") if call.source == source)
        mine = [call for call in log if call.source == source or (call.letter in "sx" and call.about(schedule))]
        in_order = re.match("l[sx](.*l)?", letters(mine))
        if in_order and (in_order[1] or {*schedule.loops[-1:]} & {*mine[1].loops}):
            step = mine[1]
            yield Diagnosis(
                "the scheduler takes its step before the optimizer's first one",
                (),
                f"{code(schedule.source)} runs before {code(step.source)} in each round: the first learning rate of the schedule "
                "is never used, and each other one comes a round too early",
                f"Move {_text(schedule)} to the end of the round, after {_text(step)}.",
                source=schedule.source,
            )
            return


def _updates(record: RunRecord, optimizer: OptimizerRow) -> list[Log]:
    """The calls about what an optimizer holds that lead to each of its steps."""
    return list(parts(record.about(optimizer), "[^s]*s"))


def _text(call: LoopCall) -> str:
    return call.source.text if call.source is not None and call.source.text else line(call.source)
