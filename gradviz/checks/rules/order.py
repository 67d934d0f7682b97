"""Checks on the order of calls in a training loop.

An order is a pattern over the letters of the log: b backward, z zero_grad, c clip, S scale, u unscale, x the scaler's step, U its
update, s step, l a scheduler's step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.record import Log, LoopCall, letters, parts
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, line
from gradviz.graph import Graph
from gradviz.graph.origins import own_line
from gradviz.source.code_line import assigned
from gradviz.source.search import changes_gradients
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
        "Call scaler.unscale_(optimizer) directly before {text}.",
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
        "Call scaler.update() after {text}, once in every step.",
        "U",
    ),
)  # fmt: skip


def _in_order(log: Log, order: _Order) -> Diagnoses:
    found = [part for part in parts(log, order.within) if re.fullmatch(order.wrong, letters(part))]
    if len(found) < TIMES or re.search(order.unless, letters(log)):
        return
    first = found[0]
    call = next(call for call in first if call.letter == order.letter)
    other = [other for other in first if other.letter == order.other][-1]
    words = {"call": code(call.source), "other": code(other.source), "text": _text(call), "there": _text(other)}
    yield Diagnosis(
        order.summary,
        (),
        order.why.format(times=plural(len(found), "time"), **words),
        order.fix.format(**words),
        source=call.source,
    )


@check("clip-order", "warning", "gradients are clipped too late, too often, or before they are unscaled")
def clip_order(context: CheckContext) -> Diagnoses:
    """Gradients are clipped after the optimizer has used them, or while a GradScaler's factor is still in them.

    Clipping changes `.grad` in place, so it has to come after `backward()`, after `scaler.unscale_(optimizer)` where there is a
    GradScaler, and before `step()`.

    How it is found: Calls of `clip_grad_norm_` and `clip_grad_value_` are noted beside those of `backward()`, `unscale_()` and
    `step()`. Reported when, twice, there was a step and no clipping between backward and it, and the clipping came then; when
    a scaled gradient was clipped twice; or when one line clips after each of several backward calls whose gradients add up.

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
    yield from _clipped_in_parts(context)


def _clipped_in_parts(context: CheckContext) -> Diagnoses:
    """A sum of gradients that is clipped each time that another one is added."""
    updates = list(parts(context.record.log, "[^s]*s"))
    clipped = [(clips, update[-1]) for update in updates if (clips := _clips_between(update))]
    adds_up = [done for done in context.record.intervals if "s" not in done]
    if len(clipped) < min(TIMES, len(updates)) or not clipped or context.reads_grad:
        return
    if not adds_up or any({*done} & {"z", "?"} for done in adds_up):
        return  # they are taken away between the calls, without zero_grad()
    (clip, *others), step = clipped[0]
    count = len(others) + 2
    yield Diagnosis(
        f"gradients are clipped after each of {count} backward calls that add up",
        (),
        f"{code(clip.source)} runs after each of the {count} backward calls before {code(step.source)}: clipping runs on the "
        "accumulated sum, so earlier batches are scaled down several times",
        f"Move {_text(clip)} directly above {_text(step)}, so that the sum is clipped once.",
        source=clip.source,
    )


def _between(update: Log, kinds: str) -> Iterator[list[LoopCall]]:
    """The calls of these kinds between each two backward calls of one line, which lead to one step, as far as about the same."""
    step, calls = update[-1], [i for i, call in enumerate(update) if call.letter == "b"]
    if len({update[i].source for i in calls}) == 1:
        for first, other in pairwise(calls):
            yield [call for call in update[first:other] if call.letter in kinds and call.about(step)]


def _clips_between(update: Log) -> list[LoopCall]:
    """The calls of one line that clip between each two backward calls of another, which nothing resets in between."""
    between = list(_between(update, "cz"))
    clips = [call for calls in between for call in calls]
    alone = all(len(calls) == 1 for calls in between) and letters(clips) == "c" * len(clips)
    return clips if alone and len({clip.source for clip in clips}) == 1 else []


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
    for source in dict.fromkeys(call.source for call in log if call.letter == "l"):
        schedule = next(call for call in log if call.letter == "l" and call.source == source)
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


@check("accumulation", "warning", "gradients of several batches are to be added up, and are not, or not averaged")
def accumulation(context: CheckContext) -> Diagnoses:
    """Several backward calls share one update, and only the last one counts, or their sum is used as if it were a mean.

    Gradient accumulation replaces a large batch by several small ones. Gradients must not be reset between them, and each loss
    has to be divided by their number: else the update is as many times too large.

    How it is found: One line called backward twice or more between two steps of the optimizer, each time. Reported when
    the gradients were reset before each of these calls; and when a loss that is a mean was not divided and the step waits for a
    condition with `%`, as accumulation is written.

    What to do: Call `zero_grad()` only after `step()`, and divide the loss by the number of batches.

    When to ignore it: When the sum is meant, with a learning rate to go with it.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 3)).square().mean() / 4
        loss.backward()
        if (step + 1) % 4 == 0:
            optimizer.step()
    ```
    """
    updates = list(parts(context.record.log, "[^s]*s"))
    rounds = list(filter(None, map(_accumulated, updates)))
    if len(rounds) < min(TIMES, len(updates)) or not rounds or _by_hand(context):
        return
    resets = [accumulated.resets for accumulated in rounds]
    if all(resets):
        yield _only_the_last(rounds[0])
    elif rounds[0].counted and not any(resets) and _is_undivided_mean(context.graph):
        yield _undivided(context.graph, rounds[0])


def _by_hand(context: CheckContext) -> bool:
    """Whether the code may put gradients together by itself."""
    return context.reads_grad and context.backward is not None and changes_gradients(context.backward.file)


def _only_the_last(accumulated: _Round) -> Diagnosis:
    reset, step, count = accumulated.resets[0], accumulated.step, len(accumulated.calls)
    return Diagnosis(
        f"of {count} batches only the last one counts: gradients are reset before each backward()",
        (),
        f"{code(reset.source)} runs before each of the {count} backward calls that {code(step.source)} comes after",
        f"Move {_text(reset)} directly behind {_text(step)}, so that gradients are reset once for each step.",
        source=reset.source,
    )


def _undivided(graph: Graph, accumulated: _Round) -> Diagnosis:
    count, step, source = len(accumulated.calls), accumulated.step, accumulated.calls[0].source
    number = re.search(r"%\s*([\w.]+)", " ".join(step.tests))
    by = number[1] if number is not None else str(count)
    root = next(iter(graph.roots), None)
    name = root.name if root is not None else "loss"
    made = own_line(graph.nodes[root.node]) if root is not None and root.node is not None else None
    of = f" of {line(made)}" if made is not None and name in assigned(made) else ""
    return Diagnosis(
        f"the gradients of {count} batches are added up, and the loss is not divided",
        (),
        f"{code(source)} runs {count} times for each {code(step.source)}, and each loss is a mean over its own batch: the update "
        f"is {count} times that of one large batch",
        f"Divide the loss{of}: ({name} / {by}).backward() in place of {name}.backward().",
        source=source,
    )


class _Round(NamedTuple):
    """The calls for one update, the resets before each but the first, and whether a condition with `%` lets the step run."""

    calls: tuple[LoopCall, ...]
    resets: tuple[LoopCall, ...]
    step: LoopCall
    counted: bool


def _accumulated(update: Log) -> _Round | None:
    """What one update was made of, when one line called backward several times for it."""
    step, between = update[-1], list(_between(update, "z"))
    calls = tuple(call for call in update if call.letter == "b")
    counted = any("%" in test for test in step.tests)
    if not between or (not counted and set(calls[0].loops) <= set(step.loops)):
        return None  # the calls have no loop of their own
    resets = tuple(call for zeros in between for call in zeros[:1])
    return None if resets and len(resets) < len(between) else _Round(calls, resets, step, counted)


def _is_undivided_mean(graph: Graph) -> bool:
    """Whether the output is a mean as a loss gives it, and nothing on the way to it divides or multiplies by a number."""
    waiting = [root.node for root in graph.roots if root.node is not None]
    for node in waiting:  # grows while it is read
        record = graph.nodes[node]
        if record.op.startswith("MeanBackward") or record.attributes.get("reduction") == 1:
            return True
        passes_on = record.op.startswith(("AddBackward", "SubBackward", "SqueezeBackward", "ViewBackward"))
        if not passes_on or len(waiting) > 50:
            return False
        waiting += [edge.producer for edge in graph.inputs(node) if edge.producer not in graph.leaf_of]
    return False


def _text(call: LoopCall) -> str:
    return call.source.text if call.source is not None and call.source.text else line(call.source)
