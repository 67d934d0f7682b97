"""Checks on the order of calls in a training loop, as the log has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.run import HABIT, Event, Kind, OptimizerRow, TrainingRun, letters
from gradviz.checks.words import code
from gradviz.graph import SourceLine
from gradviz.source.search import grad_reads, uses_gradients
from gradviz.wording import one_line, plural

_TOO_EARLY = re.compile("b[^bzs]*(?P<reset>z)[^bs]*(?P<step>s)")
_ROW = Row(
    "{names} updates nothing: the gradients are reset before it takes its step",
    "{code} runs between backward() and step(): {times} a step found no gradient any more",
    "Call {names}.step() after backward(), and {names}.zero_grad() only after that, or before backward().",
)
_TOO_SOON = Row(
    "{names} updates nothing: step() runs before backward()",
    "{code} ran when no backward() had filled a gradient, and no step came after one",
    "Move {code} behind backward().",
)
_THROWN_AWAY = re.compile("(?P<reset>z)b(?:zb)+s")
_LOST = Row(
    "{names} steps with the gradient of the last of {calls} alone: the others are reset",
    "{code} runs before each backward(), and step() only after {calls}",
    "Call {names}.zero_grad() only where {names}.step() was called.",
)

_NO_STEP = re.compile("s(?P<calls>b+)(?P<reset>z)")
_DROPPED = Row(
    "{names} steps without the gradients of {lost} of {calls}: they are reset before any step",
    "{code} runs after backward() and without a step in between",
    "Call {names}.step() right before {names}.zero_grad(), under the same condition.",
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

    Mostly `zero_grad()` stands between `backward()` and `step()`, or the only step comes
    before `backward()`. Reported when this happened twice, or at the only step, and no
    tensor of the optimizer had a gradient at any step. Also reported where several
    batches are to be added up before a step, but the gradients are reset after each.
    Gradients that are reset with no step at all are no sign: code may look at them only,
    as attacks and saliency maps do.

    How it is found: For each optimizer that takes a step, it is noted whether the
    tensors it holds have a gradient at that moment, and whether gradients are reset that
    no step has used.

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
    run = context.run
    for optimizer in run.optimizers:
        if not optimizer.reached:
            continue
        log = run.about(optimizer)
        word = letters(log)
        early = list(_TOO_EARLY.finditer(word))
        # it may have taken a single step
        often = len(early) >= min(HABIT, word.count("s"))
        if early and often and not optimizer.given:
            reset = log[early[0].start("reset")].source
            times = plural(len(early), "time")
            yield _ROW.filled(optimizer.subject, reset, times=times)
        # each of its steps came before the first backward()
        soon = run.ended and optimizer.steps and not optimizer.last_call
        if soon and "s" in word and not optimizer.given:
            yield _TOO_SOON.filled(optimizer.subject, log[word.index("s")].source)
        yield from _lost(context, optimizer, log, word)


def _lost(
    context: BackwardCall, optimizer: OptimizerRow, log: Sequence[Event], word: str
) -> Diagnoses:
    """Gradients that are reset, though a step was to use them."""
    # one line alone: an attack resets what its own line computed
    lines = {event.source for event in log if event.kind is Kind.BACKWARD}
    if len(lines) != 1 or context.run.scaled or uses_gradients(context.body.file):
        return
    thrown = list(_THROWN_AWAY.finditer(word))
    # now and then a step is left out, as for a batch that raises
    if len(thrown) >= max(HABIT, word.count("s") / 2):
        calls = plural(thrown[0].group().count("b"), "call")
        reset = log[thrown[0].start("reset")].source
        yield _LOST.filled(optimizer.subject, reset, calls=calls)

    dropped = list(_NO_STEP.finditer(word))
    lost, every = sum(len(one["calls"]) for one in dropped), word.count("b")
    # at the end of an epoch, a few are left over; of two losses, one may be meant
    if optimizer.given and len(dropped) >= HABIT and 2 * lost > every:
        reset = log[dropped[0].start("reset")].source
        calls = plural(every, "backward call")
        yield _DROPPED.filled(optimizer.subject, reset, lost=lost, calls=calls)


# -- other-gradient ----------------------------------------------------------------------

_OTHERS = Row(
    "{names} also takes the gradient of another loss, which {other} has used",
    "backward() in {first} fills .grad of what {names} holds, too; {other} steps after it, and {names} takes its step after "
    "{code}, with both gradients in .grad",
    "Call {names}.zero_grad() before {code}; or use .detach() on what the first loss takes from the part that {names} trains.",
)
_LEFT = Row(
    "{names} also steps along the gradients that {code} leaves behind",
    "it is there for the gradient of {name}, and fills .grad of what {names} holds, too, which nothing resets before the step",
    "Call {names}.zero_grad() right before the backward() of the loss; or use torch.autograd.grad(..., {name}) in {code}.",
)


@check(
    "other-gradient",
    "warning",
    "the gradient of another optimizer's loss is still in .grad at a step",
    whole_run=True,
)
def other_gradient(context: BackwardCall) -> Diagnoses:
    """Two optimizers take turns, and one steps with the gradient of the other one's loss
    still in `.grad`.

    As in a GAN whose discriminator loss is computed from images that are not detached:
    its `backward()` also fills the generator, which then takes a step along both. Or a
    sampler or an attack calls `backward()` for the gradient of its input, which also fills
    the parameters, and nothing resets these before the step.

    How it is found: a backward call reaches what two optimizers hold, one of them takes
    its step, another line calls backward, and the second one steps without a reset in
    between, twice.

    What to do: call `zero_grad()` of an optimizer directly before the backward call that
    it is to follow; or detach what the other loss takes over.

    When to ignore it: when a shared part is to be trained by both losses.

    ```python
    import torch

    maker, judge = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
    makers = torch.optim.SGD(maker.parameters(), lr=0.1)
    judges = torch.optim.SGD(judge.parameters(), lr=0.1)
    for step in range(4):
        makers.zero_grad()
        judges.zero_grad()
        made = maker(torch.randn(8, 2))
        (judge(made) - judge(torch.randn(8, 2))).mean().backward()
        judges.step()
        (-judge(maker(torch.randn(8, 2)))).mean().backward()
        makers.step()
    ```
    """
    run = context.run
    yield from _left_behind(run)
    if len(run.optimizers) < 2 or uses_gradients(context.body.file):
        return
    for optimizer in run.optimizers:
        found = list(_with_others(run, optimizer))
        if len(found) >= HABIT:
            first, last, other = found[0]
            yield _OTHERS.filled(
                optimizer.subject,
                last.source,
                first=code(first.source),
                other=one_line(other.name or other.type),
                follows=("gradient-not-reset",),
            )


def _left_behind(run: TrainingRun) -> Diagnoses:
    """Gradients of a call for that of an input alone, which an optimizer uses with those
    of another call.
    """
    inputs = dict(_inputs_asked(run))
    for optimizer in run.optimizers if inputs else ():
        calls: list[Event] = []
        found: list[Event] = []
        for event in run.about(optimizer):
            if event.kind is Kind.BACKWARD:
                calls.append(event)
            elif event.kind in (Kind.ZERO, Kind.STEP):
                left = [call for call in calls if call.source in inputs]
                # in one function, both are learned from
                others = {_function(call) for call in calls if call not in left}
                is_apart = others.isdisjoint(map(_function, left))
                if event.kind is Kind.STEP and left and others and is_apart:
                    found.append(left[0])
                calls.clear()
        if len(found) >= HABIT:
            source = found[0].source
            yield _LEFT.filled(optimizer.subject, source, name=inputs[source])


def _inputs_asked(run: TrainingRun) -> Iterator[tuple[SourceLine | None, str]]:
    """The backward calls of whose inputs the code reads a gradient, and which input."""
    for call in run.read:
        read = grad_reads(call.body)
        for leaf in call.graph.leaves:
            if leaf.kind == "input" and leaf.names and leaf.names[0] in read:
                yield call.backward, leaf.names[0]


def _function(event: Event) -> tuple[str, str]:
    """The function that an event happened in, with its file."""
    source = event.source
    return (source.file, source.function) if source is not None else ("", "")


def _with_others(
    run: TrainingRun, optimizer: OptimizerRow
) -> Iterator[tuple[Event, Event, OptimizerRow]]:
    """The steps that an optimizer takes after a backward call that another one has
    followed, and a call of another line: both calls, and the other optimizer.
    """
    used: dict[Event, OptimizerRow | None] = {}  # calls, and who has followed them
    mixed: list[tuple[Event, Event, OptimizerRow]] = []
    for event in run.log:
        if event.kind is Kind.BACKWARD and event.tensors is None:
            return  # nobody knows whom it reaches
        if not event.concerns(optimizer):
            _follow(run, event, used)
        elif event.kind is Kind.BACKWARD:
            mixed += _mixed_by(event, optimizer, used)
            used[event] = None
        elif event.kind in (Kind.ZERO, Kind.STEP):
            yield from mixed[:1] if event.kind is Kind.STEP else ()
            used.clear()
            mixed.clear()


def _follow(
    run: TrainingRun, event: Event, used: dict[Event, OptimizerRow | None]
) -> None:
    """Another optimizer takes its step: it has followed the calls that reach it."""
    others = [row for row in run.optimizers if event.concerns(row)]
    for call in used if event.kind is Kind.STEP and others else ():
        if call.concerns(others[0]):
            used[call] = others[0]


def _mixed_by(
    event: Event, optimizer: OptimizerRow, used: dict[Event, OptimizerRow | None]
) -> Iterator[tuple[Event, Event, OptimizerRow]]:
    """The calls to whose gradient a call adds its own, though others have used it."""
    for call, other in used.items():
        if other is None or call.source == event.source:
            continue
        # what waits for the losses of several parts is to have them all
        if optimizer.held | other.held >= (event.tensors or set()):
            yield call, event, other
