"""Checks on what an optimizer changes, over a whole run: nothing, or what was meant to be
frozen.
"""

from __future__ import annotations

import ast
from itertools import permutations, product

from gradviz.checks.call import BackwardCall
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.run import HABIT, Kind, OptimizerRow, TrainingRun, letters
from gradviz.checks.telling.mending import all_cut_words, mend_all
from gradviz.checks.words import code, line
from gradviz.graph import SourceLine
from gradviz.source.cut import Cut
from gradviz.source.search import matching
from gradviz.source.statements import blocks_around, covers, written_at
from gradviz.wording import clip, one_line, plural

_NO_STEP = Row(
    "{title} took no step in {calls}",
    "backward() ran in {calls}, and step() was not called",
    "Call {name}.step() after backward().",
)
_NEVER_RAN = Row(
    "{title} took no step in {calls}: {text} never ran",
    "backward() ran in {calls}, and {code} never{condition}",
    "{mend}",
)
_NO_RATE = Row(
    "{title} changes nothing from step {step} on: its learning rate is {rate}",
    "the learning rate was {before} and is {rate} or near it in {steps}, until the end{schedule}",
    "{mend}",
)
_NOTHING = Row(
    "{title} updates nothing: what it holds never gets a gradient",
    "it took {steps}, and none of what it holds had a gradient in any of them, nor was in a graph that backward() ran "
    "through{cuts}",
    "{mend}",
)
_STARVED = Row(
    "{names} takes steps with all that it holds frozen, after a backward() for nothing",
    "{code} runs while requires_grad is False of everything that {names} holds, and the backward() before it leads to nothing that "
    "an optimizer holds",
    "Call requires_grad_(True) of what it holds before the loss is computed that is to train it.",
)
_NEW = Row(
    "{names} is made anew for each step, so that it knows nothing of the steps before",
    "{code} ran {times}, for the same parameters, and each {type} took one step: its averages begin at 0 each time",
    "Move {code} in front of the loop.",
)
_OF_ANOTHER = Row(
    "the learning rate of {names} stays as it is: the schedule is that of an optimizer that was there before",
    "{code} sets the rate of what {made} made, which takes no step any more",
    "Make a new scheduler where {names} is made.",
)
_COPIED = (
    "The loss is computed from tensors that each step makes anew: compute it from what the optimizer holds, without deepcopy() "
    "and .detach(), as torch.func.functional_call() can; or hand the gradients of the copies over: parameter.grad = copy.grad."
)
_GIVE = "Give it the parameters of the model whose output the loss is computed from, after that model is complete."


@check("idle-optimizer", "warning", "an optimizer changes nothing", whole_run=True)
def idle_optimizer(context: BackwardCall) -> Diagnoses:
    """An optimizer that never takes a step, or whose tensors never get a gradient.

    How it is found: its learning rate became 0, or a millionth, early and stayed so; a
    scheduler goes on with one whose place another one has taken; it is made anew for
    each step; no optimizer took a step while gradients were reset
    twice, or until the script ended, as where `step()` waits for more batches than there
    are; or it steps what is frozen, after a `backward()` that leads to nothing of any
    optimizer; or none of the tensors that it holds had a gradient in any of its steps, as when
    it was given another model's parameters.

    What to do: call `step()` after `backward()`, or give it the parameters that the
    loss depends on.

    When to ignore it: when the gradients are all that you want, and nothing is to be
    trained.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        loss = model(torch.ones(2, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
    ```
    """
    run = context.run
    yield from _without_a_rate(context)
    yield from _made_anew(run)
    yield from _scheduled_in_vain(run)
    for optimizer in run.optimizers:
        if optimizer.starved >= HABIT and optimizer.given:
            yield _STARVED.filled(optimizer.subject, optimizer.starved_at)
        idle = optimizer.steps >= HABIT and not (optimizer.given or optimizer.reached)
        if idle and not run.scaled:
            yield _updates_nothing(context, optimizer)
        elif _never_steps(run, optimizer):
            yield _took_no_step(context, optimizer)


def _updates_nothing(context: BackwardCall, optimizer: OptimizerRow) -> Diagnosis:
    cuts = _cuts(context.run, optimizer)
    return _NOTHING.filled(
        optimizer.subject,
        cuts[0].source if cuts else optimizer.source,
        title=optimizer.title,
        steps=plural(optimizer.steps, "step"),
        mend=mend_all(cuts) or _other_model(context, optimizer) or _GIVE,
        cuts=f"; {all_cut_words(cuts)}" if cuts else "",
        follows=("nonleaf-parameter", "no-graph", "constant-term"),
    )


def _made_anew(run: TrainingRun) -> Diagnoses:
    """Optimizers of one line for the same tensors, each for a single step."""
    rows = [row for row in run.optimizers if row.steps == 1 and row.remembers]
    first = rows[0] if len(rows) >= LONG else OptimizerRow("")
    alike = [r for r in rows if (r.source, r.held) == (first.source, first.held)]
    # another tensor may have the identity of one that is gone
    leaves = [row.reached for key, row in run.leaves.items() if key in first.held]
    if len(alike) >= LONG and min(leaves, default=0) >= HABIT:
        yield _NEW.filled(
            first.subject,
            first.source,
            type=first.type,
            times=plural(len(alike), "time"),
        )


def _scheduled_in_vain(run: TrainingRun) -> Diagnoses:
    """Schedules that go on where another optimizer has taken over."""
    for before, after in permutations(run.optimizers, 2):
        own = before.current != after.current and before.held & after.held
        if not own or not before.steps or after.first_call <= before.last_call:
            continue
        late = [
            event.source
            for event in run.events(Kind.SCHEDULE)
            if event.tensors == frozenset(before.current)
            and event.call > after.first_call
        ]
        if len(late) >= HABIT and before.source is not None:
            made = code(before.source)
            yield _OF_ANOTHER.filled(after.subject, late[0], made=made)


def _other_model(context: BackwardCall, optimizer: OptimizerRow) -> str:
    """Whose parameters to give it, where the loss comes from one model."""
    rows = [row for row in context.run.leaves.values() if row.call == context.call]
    if rows and context.earlier and all(row.first == row.call for row in rows):
        return _COPIED
    names = [name for leaf in context.graph.leaves for name in leaf.names[:1]]
    model, *others = {name.partition(".")[0] for name in names if "." in name} or [""]
    source = optimizer.source
    # it may have been given the parameters that this model had then
    if not model or others or source is None or model in written_at(source):
        return ""
    return f"In {line(source)}, give it {model}.parameters(): the loss is computed from that model."


def _took_no_step(context: BackwardCall, optimizer: OptimizerRow) -> Diagnosis:
    run, call = context.run, _step_of(context, optimizer)
    if call is not None and not run.stepped:
        return _never_ran(context, optimizer, call)
    return _NO_STEP.filled(
        optimizer.subject,
        # no step() at all: it belongs after backward()
        optimizer.source if run.stepped else context.backward,
        title=optimizer.title,
        calls=plural(run.calls, "backward call"),
        name=optimizer.name or "optimizer",
        follows=("no-effect",),
    )


# -- a step that never ran, or without a rate --------------------------------------------

LONG = 5
"""Steps without a learning rate, and a part of all steps, from which it is not the end
of a schedule or its beginning."""


def _without_a_rate(context: BackwardCall) -> Diagnoses:
    """The learning rate has become 0 and stays so."""
    for optimizer in context.run.optimizers:
        steps = optimizer.steps - optimizer.rated
        if steps < max(LONG, optimizer.steps // 4):
            continue
        log = context.run.about(optimizer)
        scheduled = [event.source for event in log if event.kind is Kind.SCHEDULE]
        source = scheduled[-1] if scheduled else None
        yield _NO_RATE.filled(
            optimizer.subject,
            source or optimizer.source,
            title=optimizer.title,
            step=optimizer.rated + 1,
            rate=f"{optimizer.lr:.3g}",
            before=f"{optimizer.usual:.3g}",
            steps=plural(steps, "step"),
            schedule=f"; {code(source)} sets it" if source else "",
            mend="Give the schedule a factor (gamma) nearer to 1, or call its step() once an epoch instead of once a batch."
            if source
            else "Give the optimizer a learning rate above 0.",
        )


def _step_of(context: BackwardCall, optimizer: OptimizerRow) -> SourceLine | None:
    """The line of the code that would take a step of an optimizer."""
    last = optimizer.name.rpartition(".")[2]
    for source, match in matching(context.body.file, r"([\w.]+)\.step\("):
        if last and match[1].rpartition(".")[2] == last:
            return source
    return None


def _never_ran(
    context: BackwardCall, optimizer: OptimizerRow, call: SourceLine
) -> Diagnosis:
    """The code has a step, and it never ran."""
    blocks = blocks_around(call.file, call.line, ast.If)
    conditions = [block for block in blocks if isinstance(block, ast.If)]
    backward, condition, source = context.backward, "", call
    mend = f"Have {code(call)} run after backward()."
    # backward() ran in the same function, and outside of this condition
    if conditions and backward and not covers(conditions[-1], backward.line):
        test = ast.unparse(conditions[-1].test)
        number = conditions[-1].lineno
        source = context.body.line(number)
        condition = f", for the condition of line {number} never held"
        mend = f"In line {number}, correct the condition {clip(test, 60)}."
    return _NEVER_RAN.filled(
        optimizer.subject,
        call,
        title=optimizer.title,
        calls=plural(context.run.calls, "backward call"),
        condition=condition,
        mend=mend,
    )._replace(source=source)


def _cuts(run: TrainingRun, optimizer: OptimizerRow) -> list[Cut]:
    """What cuts off the tensors that it holds, in the calls in front of its steps: where
    another optimizer steps, that may be meant.
    """
    cuts, own = dict[Cut, None](), run.calls_of(optimizer)
    calls = [call for call in run.read if call.call in own] or run.read
    for call, name in product(calls, run.named(optimizer.held)):
        answer = call.answers.get(name)
        if answer is not None and answer.cut is not None:
            cuts[answer.cut] = None
    return list(cuts)


def _never_steps(run: TrainingRun, optimizer: OptimizerRow) -> bool:
    word = letters(run.about(optimizer))
    reset = word.count("z") > HABIT and "s" not in word
    signs = reset, not run.stepped, run.ended and run.calls >= HABIT
    # `w -= lr * w.grad` updates, too, and no hook tells of it
    by_hand = any(row.moved for key, row in run.leaves.items() if key in optimizer.held)
    idle = not (optimizer.steps or run.scaled or by_hand)
    # each sign alone has innocent reasons, such as gradients that are only printed
    return idle and bool(optimizer.reached) and sum(signs) >= 2


_FROZEN = Row(
    "{count} {is_} still updated by {optimizer}",
    "requires_grad is False, but a gradient from before is still in .grad, and {optimizer} takes it for its step each time (with "
    "momentum and weight decay)",
    "Empty it when you freeze: parameter.requires_grad_(False); parameter.grad = None. Or give {optimizer} only what is trained.",
)
_NO_SWITCH = Row(
    "requires_grad = False of a module freezes nothing: {names} still requires grad",
    "{code}: this only gives it an attribute that nobody reads",
    "Call the method of the module, which goes through all its parameters: module.requires_grad_(False), with an underscore.",
)

_AVERAGED = Row(
    "{0} is an average of {1}, and an optimizer trains it as well",
    "{code} averages it in each turn; in between, its own gradient changes it: a loss was computed with it while gradients were on",
    "Call it inside `with torch.no_grad():`, and freeze it: {0}.requires_grad_(False).",
)


@check(
    "not-frozen", "warning", "what was meant to be frozen is trained", whole_run=True
)
def not_frozen(context: BackwardCall) -> Diagnoses:
    """Parameters that the code means to freeze and that are updated all the same.

    How it is found: an attribute that freezes nothing (`module.requires_grad = False`: a
    module has only `requires_grad_()`); or a parameter with `requires_grad=False` in
    which its optimizer still finds an old gradient, and goes on; or a network that a loop
    makes an average of itself and another one, and that has gradients of its own.

    What to do: set `requires_grad` of the parameters, call `requires_grad_(False)` of
    the module, and set `.grad` to None.

    When to ignore it: when these parameters are to be trained.

    ```python
    import torch

    body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
    body.requires_grad = False
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    for step in range(3):
        loss = head(body(torch.ones(2, 3))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ```
    """
    run = context.run
    for event in run.events(Kind.AVERAGED):
        yield _AVERAGED.of(event, context.backward)
    for event in run.events(Kind.NO_SWITCH):
        yield _NO_SWITCH.filled(event.about, event.source)

    for optimizer in run.optimizers:
        frozen = run.named(optimizer.frozen)
        if frozen:
            yield _FROZEN.filled(
                frozen,
                optimizer.source,
                count=plural(len(frozen), "frozen parameter"),
                optimizer=one_line(optimizer.title),
            )
