"""Whether the gradients that an optimizer uses are the ones that were clipped."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.run import HABIT, Kind, OptimizerRow, letters
from gradviz.checks.words import line
from gradviz.graph import SourceLine
from gradviz.source.search import matching, uses_gradients
from gradviz.source.statements import (
    blocks_around,
    body_around,
    loops_around,
    written_at,
)
from gradviz.source.syntax import LOOPS

_UNCLIPPED = Row(
    "the gradients of {names} are not clipped",
    "{code} runs {when}: it changes no gradient that a step uses",
    "Move {code} between backward() and {names}.step().",
)
_SCALED = Row(
    "gradients are clipped while they are scaled: {names} steps with next to nothing",
    "{code} clips what a gradient scaler has multiplied by its scale, which is 65,536 in the beginning",
    "Call scaler.unscale_({names}) right before {code}.",
)
# a scaler leaves a step out where the gradients are not finite
_ONE_EACH = re.compile("z?(bs?z)*b?s?")
_CLIPS = r"\bclip_grad_(?:norm|value)_\("
_GIVEN = rf"{_CLIPS}(?:parameters=)?([\w.]+)[,)]"
_EMPTY = Row(
    "the gradients are not clipped: {names} can be gone through once only",
    "{code} gets an iterator, which has nothing more to give",
    "Make a list of it {place}.",
)


@check(
    "no-clipping",
    "warning",
    "gradients are clipped when there are none, while they are scaled, or after the step",
    whole_run=True,
)
def no_clipping(context: BackwardCall) -> Diagnoses:
    """`clip_grad_norm_()` runs before `backward()` or after `step()`: the optimizer uses
    gradients that nothing has clipped. Or it clips gradients that a `GradScaler` has
    multiplied by thousands, and has not divided yet.

    How it is found: The code clips in the loop that calls `backward()`, but nowhere
    between this call and the step, and in every turn the gradients were reset, computed
    once and used once.

    What to do: Clip between `backward()` and `step()`; with a gradient scaler after
    `scaler.unscale_(optimizer)`.

    When to ignore it: When the returned norm is only logged.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        loss.backward()
        optimizer.step()
    ```
    """
    yield from _used_up(context)
    backward = context.backward
    for optimizer, step in _plain_steps(context):
        if backward is None or step.function != backward.function:
            return
        clips = [clip for clip, _ in matching(backward.file, _CLIPS, context.body)]
        used = [clip for clip in clips if clip.line in range(backward.line, step.line)]
        is_unscaled = any(matching(backward.file, r"\bunscale_\("))
        if used and context.run.scaled and not is_unscaled:
            yield _SCALED.filled(optimizer.subject, used[0])
        if used:
            return
        for clip in [clip for clip in clips if _in_every_turn(clip, backward)][:1]:
            is_early = clip.line < backward.line
            when = "before backward()" if is_early else "after step()"
            yield _UNCLIPPED.filled(optimizer.subject, clip, when=when)


def _used_up(context: BackwardCall) -> Diagnoses:
    """Iterators that were given to be clipped when nothing was left in them."""
    habits = [row for row in context.run.optimizers if row.steps >= HABIT and row.given]
    for event in context.run.events(Kind.NO_CLIP) if habits else ():
        match, made = re.search(_GIVEN, written_at(event.source)), []
        if event.source is not None and match:
            file, number, *_ = event.source
            pattern = rf"^({re.escape(match[1])}) = (?!None$)(.+)"
            # an attribute is set in another method
            body = None if "." in match[1] else body_around(file, number)
            made = list(matching(file, pattern, body))
        place = "where it is made"
        if len(made) == 1:
            source, match = made[0]
            place = f"in {line(source)}: {match[1]} = list({match[2]})"
        names = (match[1],) if match else ("what it is given",)
        yield _EMPTY.filled(names, event.source, place=place)


def _plain_steps(context: BackwardCall) -> Iterator[tuple[OptimizerRow, SourceLine]]:
    """The only optimizer, if each of its steps uses the gradient of one call, and the
    line at which it takes them.
    """
    optimizers = [row for row in context.run.optimizers if row.steps]
    for optimizer in () if uses_gradients(context.body.file) else optimizers:
        log = [e for e in context.run.about(optimizer) if e.kind.value in "bzs"]
        steps = {event.source for event in log if event.kind is Kind.STEP}
        often = len(optimizers) == 1 and optimizer.steps >= HABIT
        if often and len(steps) == 1 and _ONE_EACH.fullmatch(letters(log)):
            yield from ((optimizer, step) for step in steps if step is not None)


def _in_every_turn(one: SourceLine, other: SourceLine) -> bool:
    """Whether a line runs in every turn of the loop in which another one does."""
    loop = loops_around(other.file, other.line)
    blocks, others = (
        blocks_around(line.file, line.line, *LOOPS, ast.If, ast.Try)
        for line in (one, other)
    )
    is_beside = loops_around(one.file, one.line) == loop and set(blocks) <= set(others)
    return bool(loop) and is_beside
