"""Checks on who updates what, over a whole run: each is a look at the rows of leaves
and optimizers.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial
from itertools import combinations

from gradviz.checks.call import BackwardCall
from gradviz.checks.edit import Edit, behind, instead
from gradviz.checks.ops import kind, spread, users
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.run import (
    LeafRow,
    OptimizerRow,
    TrainingRun,
)
from gradviz.checks.words import (
    all_names,
    as_code,
    first_names,
    line,
    listed,
    places,
    verb,
)
from gradviz.graph import Graph, SourceLine
from gradviz.source.code_line import parsed
from gradviz.wording import one_line, plural

ENOUGH = 2
"""Calls, or steps, from which something is a habit of the code."""


@check(
    "never-updated",
    "warning",
    "a parameter gets a gradient at every step, and nothing ever updates it",
    follows=("nonleaf-parameter",),
    whole_run=True,
)
def never_updated(context: BackwardCall) -> Diagnoses:
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
    record = context.run
    # the leaves of a sharded graph are not the tensors that the optimizer holds
    if not record.stepped or any(model.sharded for model in record.models):
        return

    still = [
        leaf
        for leaf in record.rows
        if leaf.moved is False and not leaf.holders and leaf.reached >= ENOUGH
    ]
    yield from _of_models(context, [leaf for leaf in still if leaf.parameter])
    # the inputs of an equation are leaves
    if not any("BackwardBackward" in node.op for node in context.graph.nodes):
        for leaf in still:
            if not leaf.parameter and _is_lost(context, leaf):
                yield _no_parameter(record, leaf)


def _of_models(context: BackwardCall, still: Sequence[LeafRow]) -> Diagnoses:
    """A finding for each model that has such parameters, where an optimizer holds
    others.
    """
    record = context.run
    trained = any(leaf.parameter and leaf.holders for leaf in record.rows)
    for name in dict.fromkeys(leaf.model for leaf in still if trained):
        model = record.model(name)
        if model is None or model.held or model.training:
            members = [leaf for leaf in still if leaf.model == name]
            yield _forgotten(context, name, members)


def _is_lost(context: BackwardCall, leaf: LeafRow) -> bool:
    """Whether a module holds a leaf as a plain attribute; or it is a single number that
    scales something, and whose `.grad` nothing reads.
    """
    read = [one for one in context.named_tensors if one.grad_read is not None]
    number = leaf.tensor.shape in ((), (1,))
    sums = number and _begins_a_sum(context.graph, leaf.node)
    if leaf.node in context.homes or sums:
        return False
    alone = bool(leaf.names) and {*all_names(read)}.isdisjoint(leaf.names)
    return bool(leaf.module) or (number and alone)


def _begins_a_sum(graph: Graph, leaf: int) -> bool:
    """Whether all that is done with a number is to add it to the loss, as a sum of
    losses that begins with it, which may be scaled.
    """
    if leaf not in graph.leaf_of:
        return False
    onward = [node for node in spread([leaf], partial(users, graph)) if node != leaf]
    kinds = {
        kind(graph, node)
        for node in onward
        if kind(graph, node) not in ("Mul", "Div") or len(graph.inputs(node)) > 1
    }
    return kinds <= {"Add"}


def _forgotten(
    context: BackwardCall, name: str, leaves: Sequence[LeafRow]
) -> Diagnosis:
    """Parameters of one model that no optimizer holds."""
    record, them = context.run, verb(leaves, "it", "them")
    first = min(leaf.first for leaf in leaves)
    makers = [row for row in record.optimizers if row.steps and row.last_call >= first]
    optimizer, fix, edit, late = _handed_over(context, name, leaves, makers)
    calls, they = min(leaf.reached for leaf in leaves), verb(leaves, "it", "they")

    return Diagnosis(
        f"{plural(len(leaves), 'parameter')} of {name or 'the model'} {verb(leaves, 'gets', 'get')} a gradient, and nothing "
        f"updates {them}",
        first_names(leaves),
        f"backward() filled .grad at {plural(calls, 'call')}, {they} did not change in between, and "
        f"{listed(row.title for row in makers)} {verb(makers, 'does', 'do')} not hold {them}",
        fix,
        tuple(leaf.node for leaf in leaves if leaf.call == context.call),
        where=places(name, line(optimizer.source)),
        source=optimizer.source,
        edit=edit,
        follows=("idle-optimizer",) if late else (),
    )


def _handed_over(
    context: BackwardCall,
    name: str,
    leaves: Sequence[LeafRow],
    makers: Sequence[OptimizerRow],
) -> tuple[OptimizerRow, str, Edit | None, bool]:
    """The optimizer to change, how, the edit that does it, and whether it was made too
    early: that depends on which was there first, and on who holds what.
    """
    born = [leaf for leaf in leaves if leaf.born]
    in_time = [row for row in makers if all(row.number >= one.after for one in born)]
    optimizer, model = (in_time or makers)[0], context.run.model(name)
    pairs = combinations(makers[::-1], 2)
    astray = next(((one, two) for one, two in pairs if one.held <= two.held), None)
    if astray is not None and not (model and model.held):
        optimizer, other = astray
        fix = f"In {line(optimizer.source)}, give {optimizer.name} {as_code(name)}.parameters(): all that it holds now, "
        return optimizer, f"{fix}{other.name} holds, too.", None, False

    made = line(optimizer.source)
    if not in_time:
        fix = f"Put {made} behind {line(born[0].born)}, so that the optimizer is made when all is there; or run the model once, in "
        fix += f"front of {made}, so that its parameters are there."
        return optimizer, fix, None, True

    add, them = _adds(context, name, leaves, optimizer), verb(leaves, "it", "them")
    fix = f"Give {them} to the optimizer, right after it is made: {add}. If {verb(leaves, 'it is', 'they are')} not to be trained, "
    fix += f"compute the output inside `with torch.no_grad():`, or freeze {them}: requires_grad_(False)."
    at_top = optimizer.source is not None and optimizer.source.function == "<module>"
    return optimizer, fix, behind(optimizer.source, add) if at_top else None, False


def _adds(
    context: BackwardCall, name: str, leaves: Sequence[LeafRow], optimizer: OptimizerRow
) -> str:
    """The call that gives an optimizer these parameters, and none that it holds."""
    called, module = optimizer.name or "optimizer", leaves[0].module
    params = f"{as_code(module)}.parameters()"
    names = (one.names[0] for one in context.parameters)
    inside = {name for name in names if name.startswith(f"{module}.")}
    if inside != {*first_names(leaves)}:
        held = f"for g in {called}.param_groups for q in g['params']"
        params = f"[p for p in {as_code(name)}.parameters() if all(p is not q {held})]"
    return f"{called}.add_param_group({{'params': {params}}})"


def _no_parameter(record: TrainingRun, leaf: LeafRow) -> Diagnosis:
    """A tensor that requires grad, and that a module holds as an attribute, or nobody."""
    name = one_line(leaf.names[0])
    optimizer = next(row for row in record.optimizers if row.steps)
    why = f"no optimizer holds it, and it did not change between {plural(leaf.reached, 'call')}"
    fix = f"Give it to the optimizer: {optimizer.name or 'optimizer'}.add_param_group({{'params': [{leaf.names[0]}]}})."
    parameter = ""

    if leaf.module:
        parameter = _as_parameter(leaf.source, leaf.names[0].rpartition(".")[2])
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


def _as_parameter(source: SourceLine | None, attribute: str) -> str:
    """The line as it should be: what makes the tensor, inside `torch.nn.Parameter`."""
    statement = next(iter(parsed(source)), None)
    value = getattr(statement, "value", None)
    if isinstance(value, ast.Call):
        value.keywords = [
            word for word in value.keywords if word.arg != "requires_grad"
        ]
    made = ast.unparse(value) if value is not None else "..."
    return f"self.{attribute} = torch.nn.Parameter({made})"
