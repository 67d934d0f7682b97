"""Checks on who updates what, over a whole run: each is a look at the rows of leaves
and optimizers.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.run import HABIT, LeafRow, TrainingRun
from gradviz.checks.telling.mending import mend_all, to_change
from gradviz.checks.words import all_names, as_code, first_names, line, listed, places
from gradviz.cuts.answers import Answer
from gradviz.wording import one_line, plural

_FORGOTTEN = Row(
    "{count} of {model} {has} a gradient, and nothing updates {them}",
    "backward() filled .grad at {calls}, nothing changed {them} in between, and no optimizer ({holders}) holds {them}",
    "Give {them} to the optimizer where it is made, after all parameters are there: {parameters}.parameters(). If not to be "
    "trained, compute the output inside `with torch.no_grad():`, or freeze {them}: requires_grad_(False).",
)

_LATE = Row(
    "{count} of {model} {is_} newer than the optimizer, which does not hold {them}",
    "backward() reaches {names} from call {first} on, and nothing changes {them}: the optimizer ({holders}) still holds what it "
    "was given in {code}",
    "Make a new optimizer where the model was replaced or copied: {kind}({parameters}.parameters(), ...)",
)

_THAWED = _LATE._replace(
    summary="{count} of {model} {has} thawed after the optimizer was made, which does not hold {them}",
    fix="Where requires_grad becomes True, give {them} to the optimizer: add_param_group({{'params': {parameters}.parameters()}}). "
    "Or make a new one there.",
)


@check(
    "never-updated",
    "warning",
    "a parameter gets a gradient at every step, and nothing ever updates it",
    repeats=("nonleaf-parameter",),
    whole_run=True,
)
def never_updated(context: BackwardCall) -> Diagnoses:
    """A parameter gets a gradient, no optimizer holds it, and it does not change from
    call to call.

    A new head that was never given to the optimizer, a layer that was replaced or a
    model that was copied after the optimizer was made, a target network whose output
    was not computed under `torch.no_grad()`.

    How it is found: two calls of `backward()` reached it, an optimizer took a step in
    between, none holds it, and it did not change. Left alone are a network that is in
    `eval()` mode as a whole, and one beside an optimizer that holds no parameters, as
    when an image is optimized.

    What to do: give it to the optimizer, or freeze it; compute targets under
    `torch.no_grad()`.

    When to ignore it: when you update it yourself, later than in the steps that were
    seen.

    ```python
    import torch

    body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
    for step in range(3):
        loss = head(body(torch.ones(2, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    stepping = [row for row in context.run.optimizers if row.steps]
    for name, leaves in _forgotten(context).items():
        modules, optimizer = {leaf.module for leaf in leaves}, stepping[-1]
        told = _row_of(context.run, leaves, optimizer.first_call).filled(
            first_names(leaves),
            optimizer.source,
            first=min(leaf.first for leaf in leaves),
            kind=optimizer.type,
            count=plural(len(leaves), "parameter"),
            model=name or "the model",
            calls=plural(leaves[0].reached, "call"),
            holders=listed(row.title for row in stepping),
            parameters=as_code(modules.pop() if len(modules) == 1 else name),
        )
        nodes = [leaf.node for leaf in leaves if leaf.call == context.call]
        where = places(name, line(optimizer.source))
        yield told._replace(nodes=tuple(nodes), where=where)


def _row_of(run: TrainingRun, leaves: Sequence[LeafRow], began: int) -> Row:
    """What is said of leaves that nobody updates, where steps began at this call."""
    if not all(leaf.first > began for leaf in leaves):
        return _FORGOTTEN
    first = [each for call in run.read[:1] for each in call.parameters]
    frozen = set(first_names(each for each in first if not each.requires_grad))
    return _THAWED if frozen.issuperset(first_names(leaves)) else _LATE


# -- never-reached -----------------------------------------------------------------------

LONG = 30
"""Steps from which what never had a gradient is taken to have none at all."""
_NEVER = Row(
    "{names} {is_} held by {optimizer}, and never gets a gradient",
    "in {steps} no backward() reached {them}{use}",
    "{mend}",
)


@check(
    "never-reached",
    "warning",
    "an optimizer holds a tensor that no backward() reaches",
    repeats=("unused-parameter", "nonleaf-parameter"),
    whole_run=True,
)
def never_reached(context: BackwardCall) -> Diagnoses:
    """An optimizer holds a tensor that belongs to no module, and no loss depends on it.

    A scale, a pose or a threshold that was made as a Parameter of its own, and that the
    loss does not use, or uses under `torch.no_grad()`. Of parameters in modules,
    `unused-parameter` says why.

    How it is found: the optimizer took steps, others of its tensors had gradients, and
    this one had none at any of them, to the end of the script or for thirty steps.

    What to do: compute the loss from it, with recording on; or leave it out of the
    optimizer.

    When to ignore it: when a later stage of the training uses it.

    ```python
    import torch

    model, shift = torch.nn.Linear(3, 1), torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([*model.parameters(), shift], lr=0.1)
    for step in range(3):
        with torch.no_grad():
            x = torch.ones(2, 3) + shift
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    ```
    """
    run = context.run
    listed = {*all_names(context.parameters)}
    for optimizer in run.optimizers:
        enough = optimizer.steps >= (HABIT if run.ended else LONG)
        if not (enough and optimizer.given):
            continue
        dry = optimizer.current - optimizer.given
        for name in run.named(dry - run.leaves.keys()):
            if name in listed:
                continue
            answer = _answer(run, name)
            cuts = [answer.cut] if answer is not None and answer.cut else []
            source = to_change(cuts[0]) if cuts else answer and answer.source
            title = one_line(optimizer.title)
            leave = f"Compute the loss from {name}, or leave it out of {title}."
            yield _NEVER.filled(
                (name,),
                source or optimizer.source,
                optimizer=title,
                steps=plural(optimizer.steps, "step"),
                use=f"; {answer.words}" if answer is not None else "",
                mend=mend_all(cuts) or leave,
                part=cuts[0].part if cuts else "",
            )


def _answer(run: TrainingRun, name: str) -> Answer | None:
    """Why a tensor gets no gradient, where a line says so."""
    answers = (call.answers.get(name) for call in run.read)
    told = (each for each in answers if each and each.kind in ("cut", "unread"))
    return next(told, None)


def _forgotten(context: BackwardCall) -> dict[str, list[LeafRow]]:
    """Parameters that no optimizer holds, by model, while others are stepped."""
    run, forgotten = context.run, dict[str, list[LeafRow]]()
    holding, asleep = run.holding, {m.name for m in context.models if not m.training}
    trained = {row.model for key, row in run.leaves.items() if key in holding} - {None}
    for key, row in run.leaves.items() if run.stepped and trained else ():
        still = row.moved is False and row.reached >= HABIT and key not in holding
        # one in eval() mode that no optimizer holds is looked at
        if still and row.model is not None and row.model not in asleep - trained:
            forgotten.setdefault(row.model, []).append(row)
    return forgotten
