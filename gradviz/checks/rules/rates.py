"""Checks on the pace of a training run: learning rates, their schedules, and the size of the steps that come of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import instead
from gradviz.checks.record import LoopCall, OptimizerRow, RunRecord, calls_in
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.words import code, line
from gradviz.graph import SourceLine
from gradviz.source.search import sets_item
from gradviz.wording import plural

LOW = 1e-6
"""A rate below this part of the largest one moves nothing."""
_RATES, _PART = 6, 0.2  # steps at least, and the part of them at a low rate


@check("rate-near-zero", "warning", "a learning rate is nearly zero for much of the run")
def rate_near_zero(context: CheckContext) -> Diagnoses:
    """The learning rate falls to less than a millionth of its largest value, and the training goes on: it learns nothing then.

    Mostly `scheduler.step()` is called after each batch where the schedule counts epochs; or the schedule is shorter than the
    training. Likewise where the function of a `LambdaLR` returns the rate itself, and not a factor: it is squared then.

    How it is found: the largest rate of each step is noted. Reported when it is below 1e-6 of the largest tenth of them for a fifth
    of the steps, of six at least.

    What to do: call `scheduler.step()` as often as the schedule expects, and let it last as long as the training.

    When to ignore it: when nothing is to change in the second part of a run.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.1)
    for step in range(20):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
    ```
    """
    for optimizer in context.record.optimizers:
        rates = optimizer.rates
        if optimizer.squares_rate and optimizer.factor is not None:
            yield Diagnosis(
                f"the learning rate of {optimizer.title} is multiplied by a learning rate",
                optimizer.subject,
                f"it was {max(rates):.3g} at most, the square of {optimizer.base:g}: LambdaLR multiplies the rate of the "
                "optimizer by what its function returns",
                f"In {line(optimizer.factor)}, and where else the function returns, return a factor: leave out the learning rate.",
                source=optimizer.factor,
            )
        if len(rates) < _RATES or not max(rates):
            continue
        usual = sorted(rates)[-len(rates) // 10]  # one step with a huge rate is no measure
        low = [i for i, rate in enumerate(rates) if rate <= LOW * usual]
        if len(low) >= _PART * len(rates):
            yield _low(context.record, optimizer, low)


_FACTOR = "let its function come to its end after {0} calls"
_LASTS = {
    **{
        "LambdaLR": _FACTOR,
        "MultiplicativeLR": _FACTOR,
        "LinearLR": "total_iters={0}",
        "PolynomialLR": "total_iters={0}",
    },
    **{"ExponentialLR": "a larger gamma", "StepLR": "a larger gamma or step_size", "CosineAnnealingLR": "T_max={0}"},
    **{"MultiStepLR": "a larger gamma or later milestones", "OneCycleLR": "total_steps={0}"},
}
"""What makes a schedule last, by its class."""


def _low(record: RunRecord, optimizer: OptimizerRow, low: Sequence[int]) -> Diagnosis:
    calls = _scheduled(record, optimizer)
    source = calls[0].source if calls else _set_by_hand(optimizer) or optimizer.source
    steps = len(optimizer.rates)
    how = _LASTS.get(optimizer.plan, "larger factors").format(steps)
    made = f", in {line(optimizer.schedule)}" if optimizer.schedule is not None else ""
    fix = f"Let the learning rate last for all {steps:,} steps{made}: {how}."
    often = len(optimizer.scheduled) > 0.9 * steps
    if often:
        text = source.text if source is not None else "scheduler.step()"
        fix = f"If the schedule counts epochs, move {text} out of the loop over the batches, so that it runs once in each. "
        fix += f"Else make it last for all {steps:,} steps{made}: {how}."
    rounded = optimizer.factor if optimizer.factor is not None and "//" in optimizer.factor.text else None
    if rounded is not None:
        fix = f"In {line(rounded)}, write / in place of //, which rounds a quotient down to 0: {rounded.text.replace('//', '/')}."
    return Diagnosis(
        f"the learning rate of {optimizer.title} is nearly zero in {len(low):,} of {steps:,} steps",
        optimizer.subject,
        f"it was {max(optimizer.rates):.3g} at most, and {optimizer.rates[low[0]]:.3g} at step {low[0] + 1}, less than a "
        "millionth of that"
        + (f"; {code(source)} ran {plural(len(optimizer.scheduled), 'time')}" if calls and not rounded else "")
        + (", after each step, and not once in each epoch" if often and not rounded else ""),
        fix,
        source=rounded or source,
        edit=instead(rounded, rounded.text.replace("//", "/") if rounded is not None else ""),
    )


def _set_by_hand(optimizer: OptimizerRow) -> SourceLine | None:
    """The line that assigns a learning rate to a group of an optimizer."""
    return sets_item(optimizer.source.file, "lr") if optimizer.source is not None else None


class _Fault(NamedTuple):
    """What is wrong with a schedule or a pace, in words of `_words`. `at` tells the line, by default the optimizer's."""

    holds: Callable[[RunRecord, OptimizerRow], bool]
    summary: str
    why: str
    fix: str
    at: Callable[[RunRecord, OptimizerRow], SourceLine | None] = lambda _, optimizer: optimizer.source


def _told(record: RunRecord, optimizer: OptimizerRow, faults: Sequence[_Fault]) -> Diagnoses:
    """The first of these faults that an optimizer shows."""
    fault = next((fault for fault in faults if fault.holds(record, optimizer)), None)
    if fault is not None:
        source = fault.at(record, optimizer) or optimizer.source
        yield Row(fault.summary, fault.why, fault.fix).told(optimizer.subject, source, **_words(record, optimizer))


def _words(record: RunRecord, optimizer: OptimizerRow) -> dict[str, object]:
    losses, paces, other = _losses(record) or [0.0], optimizer.paces, _successor(record, optimizer) or optimizer
    return {
        "optimizer": optimizer.title,
        "rate": f"{max(optimizer.rates, default=0.0):.3g}",
        "steps": plural(optimizer.steps, "step"),
        "idle": plural(optimizer.scheduled.count(len(optimizer.rates)), "time"),
        "other": other.title,
        "made": code(other.source),
        "period": optimizer.planned[0],
        "taken": f"{optimizer.planned[1]:,}",
        "end": optimizer.ends,
        "anew": len(optimizer.anew),
        "whole": optimizer.anew[-1][2] if optimizer.anew else 0,
        "turns": plural(len(optimizer.scheduled), "time"),
        "decay": f"{optimizer.decay:g}",
        "limit": f"{record.limit:.3g}",
        "first": f"{losses[0]:.3g}",
        "last": f"{losses[-1]:.3g}",
        "most": f"{max(_ratios(optimizer), default=0.0):.3g}",
        "before": f"{paces[0].weights:.3g}" if paces else "",
        "after": f"{paces[-1].weights:.3g}" if paces else "",
        "number": sum(row.source == optimizer.source for row in record.optimizers),
    }


# -- schedules -----------------------------------------------------------------------------------------------------------


def _successor(record: RunRecord, optimizer: OptimizerRow) -> OptimizerRow | None:
    """An optimizer that was made later for some of the same tensors, and took the steps since."""
    later = record.optimizers[optimizer.number + 1 :]
    return next((other for other in later if other.steps and not other.held.isdisjoint(optimizer.held)), None)


def _schedule_line(record: RunRecord, optimizer: OptimizerRow) -> SourceLine | None:
    """The line that calls step() of a scheduler."""
    return next((call.source for call in _scheduled(record, optimizer)), optimizer.schedule)


def _scheduled(record: RunRecord, optimizer: OptimizerRow) -> list[LoopCall]:
    return [call for call in calls_in(record.log, "l") if not optimizer.held.isdisjoint(call.tensors or ())]


_SCHEDULES = (
    _Fault(
        lambda record, optimizer: (
            optimizer.scheduled.count(len(optimizer.rates)) > 1 and _successor(record, optimizer) is not None
        ),
        "the scheduler moves the learning rate of {optimizer}, which takes no steps any more",
        "{code} ran {idle} after the last step of {optimizer}: {other} took the steps since, made in {made}, and no scheduler "
        "moves its rate",
        "Make a new scheduler for {other}, directly behind {made}.",
        _schedule_line,
    ),
    _Fault(
        lambda record, optimizer: (
            optimizer.schedule is not None
            and not optimizer.scheduled
            and optimizer.steps > max(2, optimizer.idle_rates)  # else idle-optimizer tells of it
            and record.ended
        ),
        "the scheduler of {optimizer} never takes a step: the learning rate stays as it is",
        "{code} makes it, {optimizer} took {steps}, and step() of the scheduler was not called",
        "Call its step() at the end of each epoch, or after each step of {optimizer}, as its numbers are meant.",
        lambda _, optimizer: optimizer.schedule,
    ),
    _Fault(
        lambda record, optimizer: optimizer.cycles and 0 < 2 * optimizer.planned[0] <= optimizer.planned[1],
        "the cosine of {optimizer} has passed its end: the learning rate goes up again",
        "{code} ran {taken} times, and the schedule ends at T_max={period}: behind it the rate rises and falls without end",
        "Give it as many steps as it is to last, T_max={taken}; or call {text} once in each epoch, if T_max counts epochs.",
        _schedule_line,
    ),
    _Fault(
        lambda record, optimizer: (
            0 < 8 * optimizer.ends <= len(optimizer.scheduled) <= optimizer.steps
            and any(len(call.loops) > 1 for call in _scheduled(record, optimizer))
        ),
        "the schedule of {optimizer} was over after {end} of {steps}: each batch moves it on",
        "{code} ran {turns}, in a loop inside of another one, and the last milestone is {end}: the learning rate stayed as it was "
        "from there on",
        "If milestones count epochs, call {text} once in each, behind the loop over the batches; else let them reach {steps}.",
        _schedule_line,
    ),
    _Fault(
        lambda _, optimizer: _begins_anew(optimizer),
        "the schedule of {optimizer} begins anew {anew} times: it never gets further than its first steps",
        "{code} makes a scheduler, and the next one takes its place before it has come to half of its {whole} steps",
        "Make it once, before the loop.",
        lambda _, optimizer: optimizer.anew[-1][0],
    ),
    _Fault(
        lambda record, optimizer: (
            record.ended
            and len(optimizer.scheduled) > 2
            and {*optimizer.scheduled} == {optimizer.steps} != {1}
            and _successor(record, optimizer) is None
        ),
        "only the first epoch trained: all {steps} of {optimizer} came before the first of its scheduler",
        "{code} ran {turns}, and no step of {optimizer} came after the first: the later epochs had no batches",
        "If the batches come from a generator, zip() or iter(loader), these are used up after one epoch: make them anew in each, "
        "or keep the batches in a list.",
        _schedule_line,
    ),
    _Fault(
        lambda record, optimizer: record.ended and _hardly_moves(optimizer),
        "the schedule of {optimizer} hardly moves: it is not over when the training ends",
        "{code} ran {turns} while {optimizer} took {steps}, and the learning rate was {rate} at most: the schedule counts steps of "
        "the optimizer",
        "Call {text} after each step of the optimizer, inside the loop over the batches; or make it of as many steps as there "
        "are epochs.",
        _schedule_line,
    ),
)  # fmt: skip


def _begins_anew(optimizer: OptimizerRow) -> bool:
    """Whether one line makes one scheduler after the other, none of which comes to half of its steps."""
    made = [one for one in optimizer.anew if one[0] == optimizer.anew[-1][0]]
    turns = [after[1] - before[1] for before, after in pairwise(made)]
    return len(turns) > 1 and min(turns) > 0 and 2 * max(turns) <= made[-1][2]


def _hardly_moves(optimizer: OptimizerRow) -> bool:
    """Whether a scheduler is called much less often than its optimizer, and is made for its steps, or warms up to the end."""
    turns, (planned, taken), rates = len(optimizer.scheduled), optimizer.planned, optimizer.rates
    warms_up = (
        not (optimizer.cycles or planned) and rates == sorted(rates) and 0 < max(rates, default=0) < optimizer.base / 2
    )
    counts = 2 * taken <= planned and 0.8 < planned / max(1, optimizer.steps) < 1.25
    return turns > 2 and 4 * turns <= optimizer.steps and (warms_up or counts)


@check("idle-schedule", "warning", "a learning rate schedule has no effect, or goes on behind its end")
def idle_schedule(context: CheckContext) -> Diagnoses:
    """A scheduler never takes a step, moves the rate of an optimizer that was replaced, or counts otherwise than its calls.

    How it is found: schedulers are noted when they are made and when they take a step. Reported when, to the end of the run, one of
    torch's own was never called; when one took two steps while not its optimizer but a later one with the same parameters was in
    use; when a `CosineAnnealingLR` is called twice as often as its `T_max`, or more; when the last
    milestone came in the first eighth of the steps, in a loop inside of another one; when one line makes one scheduler after the
    other, which do not come to half of their steps; and when no step of the optimizer came after the first of its scheduler.

    What to do: call `step()` of the scheduler as often as its numbers expect, and make a new one with each new optimizer.

    When to ignore it: when the rate is to swing; `CosineAnnealingWarmRestarts` says so.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    for step in range(10):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    for optimizer in context.record.optimizers:
        yield from _told(context.record, optimizer, _SCHEDULES)


# -- the size of steps ---------------------------------------------------------------------------------------------------

_RISE = 50  # a learning rate that has grown so many times by hand
_FEW = 5  # sampled steps, and losses, from which a run shows how it goes


def _losses(record: RunRecord) -> list[float]:
    return [loss for _, loss in record.losses]


def _ratios(optimizer: OptimizerRow) -> list[float]:
    """How large each sampled step is, as a part of the weights that it changes."""
    return [pace.change / pace.weights for pace in optimizer.paces if pace.weights]


def _learns(losses: Sequence[float], part: float = 0.9) -> bool:
    """Whether the loss has come down to less than this part of what it was."""
    quarter = max(2, len(losses) // 4)
    return median(losses[-quarter:]) < part * median(losses[:quarter])


def _grows(record: RunRecord, optimizer: OptimizerRow) -> bool:
    """Whether steps are as large as the weights, and the loss grows by them, or never gets below where it began."""
    ratios, losses, rates = _ratios(optimizer), _losses(record), optimizer.rates
    large = sum(part > 0.3 for part in ratios) > 1 or rates[-1] > _RISE * rates[0]
    diverges = max(losses) > 100 * losses[0] and not losses[-1] < 3 * losses[0]  # and does not come down again
    return (large and diverges) or (min(ratios[:3], default=0.0) > 1 and not _learns(losses))


def _creeps(record: RunRecord, optimizer: OptimizerRow) -> bool:
    """Whether no step changes a millionth of the weights, and the loss stays."""
    ratios = _ratios(optimizer)
    return len(ratios) >= _FEW and 0 < max(ratios) < 1e-6 and not _learns(_losses(record))


def _shrinks(record: RunRecord, optimizer: OptimizerRow) -> bool:
    """Whether weights lose most of their size under a decay that takes much of them in each step, and the loss stays."""
    paces, heavy = optimizer.paces, optimizer.decay * max(optimizer.rates, default=0.0) > 0.01
    return heavy and paces[-1].weights < 0.3 * paces[0].weights and not _learns(_losses(record), 0.3)


_PACES = (
    _Fault(
        lambda record, optimizer: record.limit < 0.01 and _creeps(record, optimizer),
        "gradients are clipped to {limit}: {optimizer} changes nothing",
        "{code} leaves a norm of {limit} at most, and no sampled step of {optimizer} changed the weights by more than {most} of "
        "their size; the loss went from {first} to {last}",
        "Clip to what is usual, such as 1.0, in place of {limit}.",
        lambda record, _: next((call.source for call in calls_in(record.log, "c")), None),
    ),
    _Fault(
        lambda record, optimizer: max(optimizer.rates, default=1.0) < 1e-4 and _creeps(record, optimizer),
        "the steps of {optimizer} are too small: a learning rate of {rate}",
        "no sampled step changed the weights by more than {most} of their size, and the loss went from {first} to {last}",
        "Raise the learning rate: 1e-3 is usual for Adam, 0.01 to 0.1 for SGD.",
    ),
    _Fault(
        _shrinks,
        "weight decay of {decay} pulls the weights of {optimizer} to zero",
        "the norm of what was looked at went from {before} to {after}, and the loss from {first} to {last}: with a learning rate "
        "of {rate}, each step takes {decay} times that of every weight",
        "Take less: weight_decay=1e-4 is usual for SGD, 0.01 for AdamW.",
    ),
    _Fault(
        _grows,
        "the steps of {optimizer} are too large: the loss went from {first} to {last}",
        "a sampled step changed the weights by up to {most} times their size, at a learning rate of up to {rate}",
        "Lower the learning rate by a factor of 10, and again, until the loss falls from the first steps on.",
        lambda _, optimizer: _set_by_hand(optimizer) if optimizer.rates[-1] > _RISE * optimizer.rates[0] else None,
    ),
)  # fmt: skip


_CAUSES = ("alias", "wrong-backward", "clip-order", "scaler-order", "accumulation", "gradient-not-reset")
"""Checks whose findings explain that steps are too large."""


@check(
    "step-size",
    "warning",
    "steps are so large that the loss grows, or so small that nothing is learned",
    follows=("no-effect",),
)
def step_size(context: CheckContext) -> Diagnoses:
    """The loss grows, or stays, and the size of the optimizer's steps says why.

    A learning rate that is a hundred times too large or too small, gradients that are clipped to nearly nothing, and weight decay
    that pulls all weights to zero look alike from outside: the loss does not fall.

    How it is found: at a few steps, how much up to 4,096 elements of each parameter change is compared with their size.
    Reported where one line calls backward, one optimizer takes the steps, and the loss has not come down to nine tenths: when
    each of the first steps is larger than the weights, or when all are below a millionth of them and the rate or the limit of the
    clipping is the reason. Further when the loss has grown a hundredfold, and steps were a third of the weights; and when weights
    have lost most of their size under a heavy decay.

    What to do: change the number that the finding names by a factor of 10, until the loss falls from the first steps on.

    When to ignore it: when the loss is not meant to fall.

    ```python
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=50.0)
    for step in range(8):
        loss = model(torch.randn(8, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    record, losses = context.record, _losses(context.record)
    lines = {call.source for call in calls_in(record.log, "b")}
    if len(lines) != 1 or len(losses) <= _FEW or min(losses) < 0:
        return
    stepping = [optimizer for optimizer in record.optimizers if optimizer.steps]
    if len({optimizer.source for optimizer in stepping}) == 1 and len(stepping[0].paces) > 1:
        yield from (one._replace(follows=_CAUSES) for one in _told(record, stepping[0], _PACES))
    if not stepping and not losses[-1] < 100 * losses[0]:
        changed = next((change.source for change in context.changes), context.backward)
        yield Diagnosis(
            f"the loss grows from step to step: from {losses[0]:.3g} to {losses[-1]:.3g}",
            (),
            f"no optimizer takes steps, and {code(changed)} changes what is trained",
            "Subtract the gradient, as in p -= rate * p.grad. If that is what it does, divide the rate by 10.",
            source=changed,
        )


# -- what an optimizer keeps ----------------------------------------------------------------------------------------------

_ANEW = (
    _Fault(
        lambda record, optimizer: len(_chain(optimizer)) > 2 and all(map(_once, _chain(optimizer))),
        "{optimizer} is made anew for each step: what it keeps from step to step is lost",
        "{code} has made {number} for the same parameters, and each took one step: momentum, averages of gradients and their "
        "correction begin at nothing each time",
        "Make it once, before the loop.",
    ),
)


def _chain(optimizer: OptimizerRow) -> list[OptimizerRow]:
    """The optimizers that one line has made for the same parameters, this one the last, and that took a step."""
    chain = [optimizer]
    while (before := chain[-1].before) is not None and before.source == optimizer.source:
        chain.append(before)
    return chain[not optimizer.steps :]


def _once(optimizer: OptimizerRow) -> bool:
    return optimizer.steps == 1 and optimizer.averages and optimizer.type != "LBFGS"


@check("lost-averages", "warning", "an optimizer is made anew for each step, and forgets what it averages")
def lost_averages(context: CheckContext) -> Diagnoses:
    """An optimizer with momentum or averages, such as Adam, is made inside the loop and takes one step.

    How it is found: optimizers are noted when they are made. Reported when a line has made three or more for the same
    parameters, each took one step, and each keeps something for the next one.

    What to do: make the optimizer once, before the loop.

    When to ignore it: when each step is to begin without a past.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    for step in range(4):
        optimizer = torch.optim.Adam(model.parameters())
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    if context.record.optimizers:
        yield from _told(context.record, context.record.optimizers[-1], _ANEW)
