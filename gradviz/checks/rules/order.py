"""Checks on the lines of a training loop: calls in the wrong order, and lines without an effect."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gradviz.checks.context import CheckContext, Event
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import code, line
from gradviz.graph import Graph
from gradviz.graph.origins import own_line
from gradviz.source.code_line import assigned
from gradviz.wording import clip, one_line, plural

TIMES = 2
"""Times from which an order is a habit of the code."""


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
    late: list[tuple[Event, Event]] = []
    scaled: list[Event] = []
    for step in _rounds(context.events):
        clips = [i for i, event in enumerate(step) if event.kind == "clip"]
        ends = [i for i, event in enumerate(step) if event.kind == "step"]
        if clips and ends and clips[0] > ends[-1]:
            late.append((step[clips[0]], step[ends[-1]]))
        elif clips and _has(step, "scale") and not _has(step[: clips[0]], "unscale"):
            scaled.append(step[clips[0]])
    if len(late) >= TIMES:
        clip, end = late[0]
        yield Diagnosis(
            "gradients are clipped after the step that uses them",
            (),
            f"{code(clip.source)} runs after {code(end.source)} and before the next backward(), so no step ever sees a clipped "
            "gradient",
            f"Move {_text(clip)} above {_text(end)}, behind backward().",
            source=clip.source,
        )
    if len(scaled) >= TIMES:
        clip = scaled[0]
        yield Diagnosis(
            "gradients are clipped while the scaler's factor is in them",
            (),
            f"{code(clip.source)} runs before any scaler.unscale_(optimizer): the norm that it compares is that of gradients times "
            "the scale, by default 65536, so nearly everything is clipped",
            f"Call scaler.unscale_(optimizer) directly before {_text(clip)}.",
            source=clip.source,
        )
    yield from _clipped_in_parts(context)


def _clipped_in_parts(context: CheckContext) -> Diagnoses:
    """A sum of gradients that is clipped each time that another one is added."""
    updates = _updates(context.events)
    parts = [clips for update in updates if (clips := _clips_between(update))]
    adds_up = [handled for times in context.handled.values() for handled in times if not handled.stepped]
    if len(parts) < min(TIMES, len(updates)) or not parts or context.reads_grad:
        return
    if not adds_up or any(handled.reset is not False for handled in adds_up):
        return  # they are taken away between the calls, without zero_grad()
    clip, step = parts[0][0], next(update for update in updates if _clips_between(update))[-1]
    count = len(parts[0]) + 1
    yield Diagnosis(
        f"gradients are clipped after each of {count} backward calls that add up",
        (),
        f"{code(clip.source)} runs after each of the {count} backward calls before {code(step.source)}: clipping runs on the "
        "accumulated sum, so earlier batches are scaled down several times",
        f"Move {_text(clip)} directly above {_text(step)}, so that the sum is clipped once.",
        source=clip.source,
    )


def _clips_between(events: Sequence[Event]) -> list[Event]:
    """The calls of one line that clip between each two backward calls of another, which nothing resets in between."""
    step, calls = events[-1], [i for i, event in enumerate(events) if event.kind == "backward"]
    if len({events[i].source for i in calls}) != 1:
        return []
    clips: list[Event] = []
    for first, other in pairwise(calls):
        between = [event for event in events[first:other] if event.kind in ("clip", "zero") and _about(event, step)]
        if len(between) != 1 or between[0].kind != "clip" or (clips and between[0].source != clips[0].source):
            return []
        clips += between
    return clips


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
    events = context.events
    if not _has(events, "scale"):
        return
    past: list[Event] = []
    scaled = False
    for event in events:
        if event.kind == "scale":
            scaled = True
        elif event.kind in ("unscale", "scaler_step"):
            scaled = False
        elif event.kind == "step" and scaled:
            past.append(event)
            scaled = False
    if len(past) >= TIMES and not context.reads_grad:
        yield Diagnosis(
            "optimizer.step() bypasses the GradScaler: gradients are still scaled",
            (),
            f"{code(past[0].source)} uses gradients of a loss that scaler.scale() multiplied, and nothing unscaled them",
            f"Replace {_text(past[0])} with scaler.step(optimizer) and then scaler.update().",
            source=past[0].source,
        )
    through = [event for event in events if event.kind == "scaler_step"]
    if len(through) >= TIMES and not _has(events, "update"):
        yield Diagnosis(
            "the scaler is never updated",
            (),
            f"{code(through[0].source)} has run {plural(len(through), 'time')} and scaler.update() never: the scale is not "
            "adapted, and a second step() without it raises an error",
            f"Call scaler.update() after {_text(through[0])}, once in every step.",
            source=through[0].source,
        )


@check("scheduler-order", "warning", "a learning rate scheduler takes its step before the optimizer's first one")
def scheduler_order(context: CheckContext) -> Diagnoses:
    """A scheduler's `step()` comes at the beginning of each round, so the first value of the schedule is never used.

    A scheduler sets the first learning rate when it is made, and `scheduler.step()` sets the next one. It belongs behind the steps
    of the optimizer that are to use the one before.

    How it is found: Calls of `step()` of schedulers and of optimizers are noted. Reported when one line calls that of a scheduler
    before the optimizer took any step, and again after it did. Where the learning rate was 0, or an epoch is given to
    `scheduler.step(epoch)`, it is none; nor are steps that only catch up with a checkpoint.

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
    events = context.events
    for source in dict.fromkeys(event.source for event in events if event.kind == "schedule"):
        calls = [i for i, event in enumerate(events) if event.kind == "schedule" and event.source == source]
        steps = [i for i, event in enumerate(events) if event.kind in _STEPS and _about(event, events[calls[0]])]
        if len(calls) < TIMES or not steps or not calls[0] < steps[0] < calls[1]:
            continue
        schedule, step = events[calls[0]], events[steps[0]]
        yield Diagnosis(
            "the scheduler takes its step before the optimizer's first one",
            (),
            f"{code(schedule.source)} runs before {code(step.source)} in each round: the first learning rate of the schedule is "
            "never used, and each other one comes a round too early",
            f"Move {_text(schedule)} to the end of the round, after {_text(step)}.",
            source=schedule.source,
        )
        return


_STEPS = ("step", "scaler_step")


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
    updates = _updates(context.events)
    rounds = list(filter(None, map(_accumulated, updates)))
    if len(rounds) < min(TIMES, len(updates)) or not rounds or context.reads_grad:
        return
    first = rounds[0]
    count = len(first.calls)
    if all(accumulated.resets for accumulated in rounds):
        reset = first.resets[0]
        yield Diagnosis(
            f"of {count} batches only the last one counts: gradients are reset before each backward()",
            (),
            f"{code(reset.source)} runs before each of the {count} backward calls that {code(first.step.source)} comes after",
            f"Move {_text(reset)} directly behind {_text(first.step)}, so that gradients are reset once for each step.",
            source=reset.source,
        )
    elif first.counted and not any(accumulated.resets for accumulated in rounds) and _is_undivided_mean(context.graph):
        test = next(test for test in first.step.tests if "%" in test)
        number = re.search(r"%\s*([\w.]+)", test)
        by = number[1] if number is not None else str(count)
        root = next(iter(context.graph.roots), None)
        name = root.name if root is not None else "loss"
        made = own_line(context.graph.nodes[root.node]) if root is not None and root.node is not None else None
        of = f" of {line(made)}" if made is not None and name in assigned(made) else ""
        yield Diagnosis(
            f"the gradients of {count} batches are added up, and the loss is not divided",
            (),
            f"{code(first.calls[0].source)} runs {count} times for each {code(first.step.source)}, and each loss is a mean over "
            f"its own batch: the update is {count} times that of one large batch",
            f"Divide the loss{of}: ({name} / {by}).backward() in place of {name}.backward().",
            source=first.calls[0].source,
        )


class _Round(NamedTuple):
    """The calls for one update, the resets before each but the first, and whether a condition with `%` lets the step run."""

    calls: tuple[Event, ...]
    resets: tuple[Event, ...]
    step: Event
    counted: bool


def _accumulated(events: Sequence[Event]) -> _Round | None:
    """What one update was made of, when one line called backward several times for it."""
    step = events[-1]
    calls = [i for i, event in enumerate(events) if event.kind == "backward"]
    if len(calls) < TIMES or len({events[i].source for i in calls}) > 1:
        return None
    counted = any("%" in test for test in step.tests)
    if not counted and set(events[calls[0]].loops) <= set(step.loops):
        return None  # the calls have no loop of their own
    resets = []
    for first, other in pairwise(calls):
        between = (event for event in events[first:other] if event.kind == "zero" and _about(event, step))
        resets += list(between)[:1]
    if resets and len(resets) < len(calls) - 1:
        return None
    return _Round(tuple(events[i] for i in calls), tuple(resets), step, counted)


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


def _updates(events: Sequence[Event]) -> list[list[Event]]:
    """The events up to each step of an optimizer, the step included. What comes after the last one is left out."""
    updates: list[list[Event]] = [[]]
    for event in events:
        updates[-1].append(event)
        if event.kind == "step":
            updates.append([])
    return updates[:-1]


def _rounds(events: Sequence[Event]) -> list[list[Event]]:
    """From the first backward() after a step to the last event before the next such call."""
    rounds: list[list[Event]] = []
    stepped = True
    for event in events:
        if event.kind == "backward" and stepped:
            scales = bool(rounds) and bool(rounds[-1]) and rounds[-1][-1].kind == "scale"
            rounds.append([rounds[-1].pop()] if scales else [])
            stepped = False
        if rounds:
            rounds[-1].append(event)
        elif event.kind == "scale":
            rounds.append([event])
        stepped = stepped or event.kind == "step"
    return rounds


def _has(events: Sequence[Event], kind: str) -> bool:
    return any(event.kind == kind for event in events)


def _about(event: Event, step: Event) -> bool:
    return event.tensors is None or step.tensors is None or bool(event.tensors & step.tensors)


def _text(event: Event) -> str:
    return event.source.text if event.source is not None and event.source.text else line(event.source)


_CODE = 50


@check("no-effect", "warning", "a line computes something that nobody gets")
def no_effect(context: CheckContext) -> Diagnoses:
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
                f"it makes a new tensor, which nobody gets, and leaves {clip(one_line(dropped.of), _CODE)} as it is",
                f"Write {one_line(dropped.mended)}."
                if dropped.mended
                else "Give the result a name, and go on with that.",
                source=dropped.source,
                part=dropped.text,
            )


@check("not-called", "warning", "a method is named and not called")
def not_called(context: CheckContext) -> Diagnoses:
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
                "the name of a method alone calls nothing",
                f"Write {one_line(dropped.mended)}.",
                source=dropped.source,
                part=dropped.text,
            )
