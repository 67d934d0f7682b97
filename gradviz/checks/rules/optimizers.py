"""Checks on what an optimizer changes, over a whole run: nothing, or what was meant to be
frozen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.edit import instead
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.mending import all_cut_words, mend_all
from gradviz.checks.run import (
    Event,
    Kind,
    OptimizerRow,
    TrainingRun,
    calls_in,
    letters,
    parts,
)
from gradviz.checks.words import Names, as_code, code, verb
from gradviz.source.search import sets_item
from gradviz.wording import one_line, plural

ENOUGH = 2
"""Calls, or steps, from which something is a habit of the code."""


class Idle(NamedTuple):
    """What an optimizer may be idle by. {steps}, {calls} are counted, {name} is what
    the code calls it, {cuts} and {mend} tell of cuts behind what it holds.
    """

    holds: Callable[[TrainingRun, OptimizerRow], object]
    summary: str
    why: str
    fix: str
    line: str = "made"
    follows: Names = ()


def _never_steps(record: TrainingRun, optimizer: OptimizerRow) -> bool:
    log = record.about(optimizer)
    resets = len(list(parts(log, "b[^b]*z")))
    reset = resets >= ENOUGH and "s" not in letters(log)
    signs = reset, not record.stepped, record.ended and record.calls >= ENOUGH
    by_hand = any(
        record.leaves[key].moved for key in record.leaves.keys() & optimizer.held
    )
    idle = not (optimizer.steps or record.scaler or by_hand)
    return idle and bool(optimizer.reached) and sum(signs) >= 2


_IDLE = (
    Idle(
        _never_steps,
        "took no step in {calls}",
        "backward() ran in {calls}, and step() was not called",
        "Call {name}.step() after backward().",
        "reset",
    ),
    Idle(
        lambda record, optimizer: optimizer.steps >= ENOUGH and not optimizer.held,
        "holds no tensor: its steps change nothing",
        "it took {steps} with nothing to update: an iterator such as model.parameters() can be gone through once only",
        "Call model.parameters() anew for the optimizer, or keep list(model.parameters()).",
    ),
    Idle(
        lambda record, optimizer: ENOUGH <= optimizer.steps == optimizer.idle_rates,
        "has a learning rate of 0: its steps change nothing",
        "in all of its {steps} the learning rate of every group was 0",
        "Give it a learning rate, such as lr=1e-3; a scheduler must not multiply it by 0.",
        "rate",
    ),
    Idle(
        lambda record, optimizer: (
            optimizer.steps >= ENOUGH
            and not (optimizer.fed or optimizer.reached or record.scaler)
        ),
        "updates nothing: what it holds never gets a gradient",
        "it took {steps}, and none of what it holds had a gradient in any of them, nor was in a graph that backward() ran "
        "through{cuts}",
        "{mend}",
        "cut",
        ("nonleaf-parameter", "no-graph"),
    ),
)
_GIVE = "Give it the parameters of the model whose output the loss is computed from, after that model is complete."


@check("idle-optimizer", "warning", "an optimizer changes nothing", whole_run=True)
def idle_optimizer(context: BackwardCall) -> Diagnoses:
    """An optimizer that never takes a step, whose learning rate is 0, or whose tensors
    never get a gradient.

    How it is found: no optimizer took a step while gradients were reset twice, or until
    the script ended, as where `step()` waits for more batches than there are; the
    learning rate of all groups, or of one of several, was 0 in all steps, two at least,
    since a warm-up may begin at 0; or none of the tensors that it holds had a gradient
    in any of its steps, as when it was given another model's parameters.

    What to do: call `step()` after `backward()`, give it a learning rate, or the
    parameters that the loss depends on.

    When to ignore it: when the gradients are all that you want, and nothing is to be
    trained.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for step in range(3):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    record = context.run
    for optimizer in record.optimizers:
        row = next((row for row in _IDLE if row.holds(record, optimizer)), None)
        if row is not None:
            yield _idle(context, optimizer, row)


def _idle(context: BackwardCall, optimizer: OptimizerRow, row: Idle) -> Diagnosis:
    record, made = context.run, optimizer.source
    names = {*record.named(optimizer.held)}
    cuts = [cut for cut in record.cuts if names & {*cut.leaf, *cut.behind}]
    cuts = cuts or list(record.cuts)
    resets = [call for call in calls_in(record.log, "z") if record.stepped]
    mine = (one.source for one in resets if one.tensors == frozenset(optimizer.held))
    lines = {
        "made": made,
        "reset": next(mine, None) if record.stepped else context.backward,
        "rate": sets_item(made.file, "lr") if made is not None else None,
        "cut": cuts[0].source if cuts else None,
    }
    words = {
        "steps": plural(optimizer.steps, "step"),
        "calls": plural(record.calls, "backward call"),
        "name": optimizer.name or "optimizer",
        "mend": mend_all(cuts) or _GIVE,
        "cuts": "".join(f"; {told}" for told in all_cut_words(cuts)),
    }
    was = f"; it was made in {code(made)}" if made is not None else ""
    return Diagnosis(
        f"{optimizer.title} {row.summary.format(**words)}",
        optimizer.subject,
        row.why.format(**words) + was,
        row.fix.format(**words),
        source=lines[row.line] or made,
        follows=row.follows,
    )


@check(
    "not-frozen", "warning", "what was meant to be frozen is trained", whole_run=True
)
def not_frozen(context: BackwardCall) -> Diagnoses:
    """Parameters that the code means to freeze and that are updated all the same.

    How it is found: an attribute that freezes nothing
    (`parameter.require_grad = False`, `module.requires_grad = False`: a module has only
    `requires_grad_()`); or a parameter with `requires_grad=False` in which its
    optimizer still finds an old gradient, and goes on.

    What to do: set `requires_grad` of the parameters, call `requires_grad_(False)` of
    the module, and set `.grad` to None.

    When to ignore it: when these parameters are to be trained.

    ```python
    import torch

    body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    for parameter in body.parameters():
        parameter.require_grad = False
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    for step in range(3):
        loss = head(body(torch.ones(2, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    record = context.run
    yield from map(_mistyped, record.events(Kind.MISTYPED, Kind.MISTYPED_MODULE))

    for optimizer in record.optimizers:
        frozen, name = record.named(optimizer.frozen), one_line(optimizer.title)
        if frozen:
            yield Diagnosis(
                f"{plural(len(frozen), 'frozen parameter')} {verb(frozen, 'is', 'are')} still updated by {name}",
                frozen,
                f"{verb(frozen, 'it has', 'they have')} requires_grad=False, but a gradient from before is still in .grad, and "
                f"{name} takes it for its step each time (with momentum and weight decay)",
                f"Empty it when you freeze: parameter.requires_grad_(False); parameter.grad = None. Or give {name} only what is "
                "trained.",
                source=optimizer.source,
            )


def _mistyped(mistyped: Event) -> Diagnosis:
    attribute, *named = mistyped.about
    names, source = tuple(map(one_line, named)), mistyped.source
    summary, fix = f".{attribute} = False", "Write parameter.requires_grad = False."
    new = source.text.replace(attribute, "requires_grad") if source else ""
    why = f"a tensor's switch is requires_grad: this only gives it an attribute named {attribute} that nobody reads"

    if mistyped.kind is Kind.MISTYPED_MODULE:
        owner = new.partition(".requires_grad ")[0] or as_code(names[0])
        summary = f"{names[0] if len(names) == 1 else ''}{summary}{'' if len(names) == 1 else ' on modules'}"
        why = "a module has no such switch: this only gives it an attribute that nobody reads"
        new = f"{owner}.requires_grad_(False)"
        fix = f"Write {new}: the method, with an underscore, goes through all its parameters."

    return Diagnosis(
        f"{summary} freezes nothing: {verb(names, 'it still requires', 'they still require')} grad",
        names,
        f"{code(source)}: {why}" if source is not None else why,
        fix,
        source=source,
        edit=instead(source, new),
    )
