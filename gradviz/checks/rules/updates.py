"""Checks on who updates what, over a whole run: each is a look at the rows of leaves
and optimizers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

from gradviz.checks.context import CheckContext
from gradviz.checks.edit import Edit, behind, instead
from gradviz.checks.ops import kind, spread, users
from gradviz.checks.record import (
    LeafRow,
    OptimizerRow,
    RunRecord,
    calls_in,
    letters,
    parts,
)
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.roots import all_cut_words, mend_all
from gradviz.checks.words import (
    Names,
    as_code,
    code,
    first_names,
    line,
    listed,
    places,
    verb,
)
from gradviz.graph import Graph, SourceLine
from gradviz.source.code_line import parsed
from gradviz.source.cut import Cut
from gradviz.source.search import sets_item
from gradviz.wording import one_line, plural

ENOUGH = 2
"""Calls, or steps, from which something is a habit of the code."""


@check(
    "never-updated",
    "warning",
    "a parameter gets a gradient at every step, and nothing ever updates it",
    follows=("nonleaf-parameter",),
)
def never_updated(context: CheckContext) -> Diagnoses:
    """A parameter gets a gradient, no optimizer holds it, and it does not change from
    call to call.

    A new head that was never given to the optimizer, a target network whose output was
    not computed under `torch.no_grad()`, or a tensor with `requires_grad=True` that is
    an attribute of a module but no `nn.Parameter`, so that `parameters()` does not list
    it.

    How it is found: two calls of `backward()` reached it, an optimizer took a step in
    between, none holds it, and it did not change. Left alone are a network that is in
    `eval()` mode as a whole, and one beside an optimizer that holds no parameters, as
    when an image is optimized.

    What to do: give it to the optimizer, make it an `nn.Parameter`, or freeze it;
    compute targets under `torch.no_grad()`.

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
    record = context.record
    if not record.stepped or any(model.sharded for model in record.models):
        # the leaves of a sharded graph are not the tensors that the optimizer holds
        return
    still = [
        leaf
        for leaf in record.rows
        if leaf.moved is False and not leaf.holders and leaf.reached >= ENOUGH
    ]
    yield from _of_models(context, [leaf for leaf in still if leaf.parameter])
    yield from _of_no_model(context, [leaf for leaf in still if not leaf.parameter])


def _of_models(context: CheckContext, still: Sequence[LeafRow]) -> Diagnoses:
    """A finding for each model that has such parameters, where an optimizer holds
    others.
    """
    record = context.record
    if not any(leaf.parameter and leaf.holders for leaf in record.rows):
        return
    for name in dict.fromkeys(leaf.model for leaf in still):
        model = record.model(name)
        if model is None or model.held or model.training:
            yield _forgotten(
                context, name, [leaf for leaf in still if leaf.model == name]
            )


def _of_no_model(context: CheckContext, still: Sequence[LeafRow]) -> Diagnoses:
    """A finding for each attribute of a module that is no parameter, and for each
    number that nothing reads.
    """
    if any("BackwardBackward" in node.op for node in context.graph.nodes):
        return  # the inputs of an equation are leaves

    for leaf in still:
        single = (
            leaf.tensor.shape in ((), (1,))
            and leaf.names
            and not _is_read(context, leaf)
        )
        if (
            leaf.node not in context.homes
            and (leaf.module or single)
            and not _begins_a_sum(context.graph, leaf)
        ):
            yield _no_parameter(context.record, leaf)


def _begins_a_sum(graph: Graph, leaf: LeafRow) -> bool:
    """Whether all that is done with a number is to add it to the loss, as a sum of
    losses that begins with it.
    """
    if leaf.node not in graph.leaf_of or leaf.tensor.shape not in ((), (1,)):
        return False
    onward = [
        node for node in spread([leaf.node], partial(users, graph)) if node != leaf.node
    ]
    scaled = [
        node
        for node in onward
        if kind(graph, node) in ("Mul", "Div") and len(graph.inputs(node)) == 1
    ]
    return all(kind(graph, node) == "Add" for node in onward if node not in scaled)


def _forgotten(
    context: CheckContext, name: str, leaves: Sequence[LeafRow]
) -> Diagnosis:
    """Parameters of one model that no optimizer holds: what to do depends on which was
    there first, and on who holds what.
    """
    record, them = context.record, verb(leaves, "it", "them")
    model = record.model(name)
    whole = model is None or not model.held
    makers = [
        one
        for one in record.optimizers
        if one.steps and one.last_call >= min(leaf.first for leaf in leaves)
    ]
    in_time = [
        one
        for one in makers
        if all(one.number >= leaf.after for leaf in leaves if leaf.born)
    ]
    optimizer, fix, edit = _hand_over(
        context,
        name,
        leaves,
        makers,
        in_time,
        whole,
    )
    gets = f"{name or 'the model'} {verb(leaves, 'gets', 'get')}"
    calls, they = (
        plural(min(leaf.reached for leaf in leaves), "call"),
        verb(leaves, "it", "they"),
    )
    holds = f"{listed(one.title for one in makers)} {verb(makers, 'does', 'do')} not hold {them}"
    ran = _ran_in(context, name) if whole else ""

    return Diagnosis(
        f"{plural(len(leaves), 'parameter')} of {gets} a gradient, and nothing updates {them}",
        first_names(leaves),
        f"backward() filled .grad at {calls}, {they} did not change in between, and {holds}{ran}",
        fix,
        tuple(leaf.node for leaf in leaves if leaf.call == context.call),
        where=places(name, line(optimizer.source)),
        source=optimizer.source,
        edit=edit,
        follows=("idle-optimizer",) if whole and not in_time else (),
    )


def _ran_in(context: CheckContext, name: str) -> str:
    called = next(
        (one.called for one in context.models if one.name == name),
        None,
    )
    return f". It ran in {code(called)}" if called else ""


def _hand_over(
    context: CheckContext,
    name: str,
    leaves: Sequence[LeafRow],
    makers: Sequence[OptimizerRow],
    in_time: Sequence[OptimizerRow],
    whole: bool,
) -> tuple[OptimizerRow, str, Edit | None]:
    """The optimizer to change, how, and the edit that does it."""
    astray = next(
        (
            (one, other)
            for one, other in combinations(makers[::-1], 2)
            if one.held <= other.held
        ),
        None,
    )
    if whole and astray is not None:
        first, second = astray
        given = f"give {first.name} {as_code(name)}.parameters()"
        return (
            first,
            f"In {line(first.source)}, {given}: all that it holds now, {second.name} holds, too.",
            None,
        )

    optimizer = (in_time or makers)[0]
    if not in_time:
        made, born = line(optimizer.source), line(leaves[0].born)
        fix = f"Put {made} behind {born}, so that the optimizer is made when all is there; or run the model once, in "
        return (
            optimizer,
            f"{fix}front of {made}, so that its parameters are there.",
            None,
        )

    add = _adds(context, name, leaves, optimizer)
    them, are = verb(leaves, "it", "them"), verb(leaves, "it is", "they are")
    fix = f"Give {them} to the optimizer, right after it is made: {add}. If {are} not to be trained, compute the output "
    fix += f"inside `with torch.no_grad():`, or freeze {them}: requires_grad_(False)."
    at_top = optimizer.source is not None and optimizer.source.function == "<module>"
    return optimizer, fix, behind(optimizer.source, add) if at_top else None


def _adds(
    context: CheckContext, name: str, leaves: Sequence[LeafRow], optimizer: OptimizerRow
) -> str:
    """The call that gives an optimizer these parameters, and none that it holds."""
    called = optimizer.name or "optimizer"
    what = f"{as_code(leaves[0].module)}.parameters()"
    inside = [
        one
        for one in context.parameters
        if one.names[0].startswith(f"{leaves[0].module}.")
    ]
    if {one.names[0] for one in inside} != {*first_names(leaves)}:
        held = f"for g in {called}.param_groups for q in g['params']"
        what = f"[p for p in {as_code(name)}.parameters() if all(p is not q {held})]"
    return f"{called}.add_param_group({{'params': {what}}})"


def _no_parameter(record: RunRecord, leaf: LeafRow) -> Diagnosis:
    """A tensor that requires grad, and that a module holds as an attribute, or nobody."""
    name, optimizer = (
        one_line(leaf.names[0]),
        next(one for one in record.optimizers if one.steps),
    )
    why = f"no optimizer holds it, and it did not change between {plural(leaf.reached, 'call')}"
    fix = f"Give it to the optimizer: {optimizer.name or 'optimizer'}.add_param_group({{'params': [{leaf.names[0]}]}})."
    parameter = ""

    if leaf.module:
        parameter = _as_parameter(
            leaf.source,
            leaf.names[0].rpartition(".")[2],
        )
        why += f"; parameters() of {one_line(leaf.type)} does not list it, since it is no nn.Parameter"
        fix = f"Make it a parameter: {parameter}."

    return Diagnosis(
        f"{name} requires grad and gets a gradient, and nothing updates it",
        leaf.names,
        why,
        fix,
        source=leaf.source or optimizer.source,
        edit=instead(leaf.source, parameter),
        follows=() if leaf.module else ("idle-optimizer",),
    )


def _is_read(context: CheckContext, leaf: LeafRow) -> bool:
    """Whether the code reads its `.grad`, and does something with it."""
    return any(
        one.grad_read is not None and {*one.names} & {*leaf.names}
        for one in context.named_tensors
    )


def _as_parameter(source: SourceLine | None, attribute: str) -> str:
    """The line as it should be: what makes the tensor, inside `torch.nn.Parameter`."""
    value = next(
        (getattr(statement, "value", None) for statement in parsed(source)), None
    )
    if isinstance(value, ast.Call):
        value.keywords = [
            keyword for keyword in value.keywords if keyword.arg != "requires_grad"
        ]
    return f"self.{attribute} = torch.nn.Parameter({ast.unparse(value) if value is not None else '...'})"


class Idle(NamedTuple):
    """What an optimizer may be idle by. {steps}, {calls} are counted, {name} is what
    the code calls it, {cuts} and {mend} tell of cuts behind what it holds.
    """

    holds: Callable[[CheckContext, OptimizerRow], bool]
    what: str
    why: str
    fix: str
    at: Callable[[CheckContext, OptimizerRow], SourceLine | None] = (
        lambda context, optimizer: None
    )
    follows: Names = ()


def _cuts(context: CheckContext, optimizer: OptimizerRow) -> list[Cut]:
    """The cuts behind what an optimizer holds, else all."""
    names = {*context.record.named(optimizer.held)}
    every = list({(cut.kind, cut.source): cut for cut in context.record.cuts}.values())
    return [cut for cut in every if names & {*cut.leaf, *cut.behind}] or every


def _never_steps(context: CheckContext, optimizer: OptimizerRow) -> bool:
    record, log = context.record, context.record.about(optimizer)
    reset = len(list(parts(log, "b[^b]*z"))) >= ENOUGH and "s" not in letters(log)
    signs = reset, not record.stepped, record.ended and record.calls >= ENOUGH
    by_hand = any(
        leaf.moved for key, leaf in record.leaves.items() if key in optimizer.held
    )
    return (
        not (optimizer.steps or record.scaler or by_hand)
        and bool(optimizer.reached)
        and sum(signs) >= 2
    )


def _reset(context: CheckContext, optimizer: OptimizerRow) -> SourceLine | None:
    resets = (
        call.source
        for call in calls_in(context.record.log, "z")
        if call.tensors == frozenset(optimizer.held)
    )
    return next(resets, None) if context.record.stepped else context.backward


def _sets_rate(context: CheckContext, optimizer: OptimizerRow) -> SourceLine | None:
    if optimizer.source is not None:
        return sets_item(optimizer.source.file, "lr")
    return None


_IDLE = (
    Idle(
        _never_steps,
        "took no step in {calls}",
        "backward() ran in {calls}, and step() was not called",
        "Call {name}.step() after backward().",
        _reset,
    ),
    Idle(
        lambda context, optimizer: optimizer.steps >= ENOUGH and not optimizer.held,
        "holds no tensor: its steps change nothing",
        "it took {steps} with nothing to update: an iterator such as model.parameters() can be gone through once only",
        "Call model.parameters() anew for the optimizer, or keep list(model.parameters()).",
    ),
    Idle(
        lambda context, optimizer: ENOUGH <= optimizer.steps == optimizer.idle_rates,
        "has a learning rate of 0: its steps change nothing",
        "in all of its {steps} the learning rate of every group was 0",
        "Give it a learning rate, such as lr=1e-3; a scheduler must not multiply it by 0.",
        _sets_rate,
    ),
    Idle(
        lambda context, optimizer: (
            optimizer.steps >= ENOUGH
            and not (optimizer.fed or optimizer.reached or context.record.scaler)
        ),
        "updates nothing: what it holds never gets a gradient",
        "it took {steps}, and none of what it holds had a gradient in any of them, nor was in a graph that backward() ran "
        "through{cuts}",
        "{mend}",
        lambda context, optimizer: next(
            (cut.source for cut in _cuts(context, optimizer)), None
        ),
        ("nonleaf-parameter", "no-graph"),
    ),
)
_GIVE = "Give it the parameters of the model whose output the loss is computed from, after that model is complete."


@check("idle-optimizer", "warning", "an optimizer changes nothing")
def idle_optimizer(context: CheckContext) -> Diagnoses:
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
    for optimizer in context.record.optimizers:
        row = next(
            (row for row in _IDLE if row.holds(context, optimizer)),
            None,
        )
        if row is not None:
            cuts, made = _cuts(context, optimizer), optimizer.source
            words = {
                "steps": plural(optimizer.steps, "step"),
                "calls": plural(context.record.calls, "backward call"),
            }
            words |= {
                "name": optimizer.name or "optimizer",
                "mend": mend_all(cuts) or _GIVE,
            }
            words["cuts"] = "".join(f"; {told}" for told in all_cut_words(cuts))
            what, why, fix = (text.format(**words) for text in row[1:4])
            why += f"; it was made in {code(made)}" if made is not None else ""
            at = row.at(context, optimizer) or made
            yield Diagnosis(
                f"{optimizer.title} {what}",
                optimizer.subject,
                why,
                fix,
                source=at,
                follows=row.follows,
            )
