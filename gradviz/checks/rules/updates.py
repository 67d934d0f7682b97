"""Checks on who updates what, over a whole run: each is a look at the rows of leaves
and optimizers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from gradviz.checks.call import BackwardCall
from gradviz.checks.edit import behind, instead
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.run import LeafRow, ModelState, OptimizerRow
from gradviz.checks.words import as_code, first_names, line, listed, places
from gradviz.graph import SourceLine
from gradviz.source.code_line import parsed
from gradviz.wording import one_line, plural

ENOUGH = 2
"""Calls, or steps, from which something is a habit of the code."""
_FORGOTTEN = Row(
    "{count} of {model} {has} a gradient, and nothing updates {them}",
    "backward() filled .grad at {calls}, nothing changed {them} in between, and {holders} does not hold {them}",
    "Give {them} to the optimizer, right after it is made: {added}. If not to be trained, compute the output inside `with "
    "torch.no_grad():`, or freeze {them}: requires_grad_(False).",
)
_LATE = _FORGOTTEN._replace(
    fix="Put {line} behind {born}, so that the optimizer is made when all is there; or run the model once, in front of {line}, so "
    "that its parameters are there."
)
_ASTRAY = _FORGOTTEN._replace(
    fix="In {line}, give {held} {parameters}: all that it holds now, another optimizer holds, too."
)
_ATTRIBUTE = Row(
    "{names} requires grad and gets a gradient, and nothing updates it",
    "no optimizer holds it, and it did not change between {calls}; parameters() of {type} does not list it, since it is no "
    "nn.Parameter",
    "Make it a parameter: {parameter}.",
)


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

    still = [leaf for leaf in record.rows if _is_still(leaf)]
    trained = any(leaf.parameter and leaf.holders for leaf in record.rows)
    forgotten = [leaf for leaf in still if leaf.parameter and trained]
    for name in dict.fromkeys(leaf.model for leaf in forgotten):
        if _is_trained(record.model(name)):
            leaves = [leaf for leaf in forgotten if leaf.model == name]
            yield _forgotten(context, name, leaves)

    yield from map(_attribute, _attributes(context, still))


def _attributes(context: BackwardCall, still: Sequence[LeafRow]) -> Iterator[LeafRow]:
    """Those that a module holds as plain attributes."""
    # the inputs of an equation are leaves, too
    equation = any("BackwardBackward" in op for op in context.graph.ops)
    for leaf in () if equation else still:
        if not leaf.parameter and leaf.module and leaf.node not in context.homes:
            yield leaf


def _is_still(leaf: LeafRow) -> bool:
    return leaf.moved is False and not leaf.holders and leaf.reached >= ENOUGH


def _is_trained(model: ModelState | None) -> bool:
    """One in eval() mode that no optimizer holds is looked at."""
    return model is None or model.training or bool(model.held)


def _forgotten(context: BackwardCall, name: str, leaves: list[LeafRow]) -> Diagnosis:
    """Parameters of one model that no optimizer holds, while others are stepped."""
    record = context.run
    rows, model = [row for row in record.optimizers if row.steps], record.model(name)
    held = bool(model and model.held)
    astray = None if held else _astray(rows)
    optimizer, born = astray or rows[0], [leaf.born for leaf in leaves if leaf.born]
    source, row, edit = optimizer.source, _FORGOTTEN, None

    called = optimizer.name or "optimizer"
    parameters, added = _added(called, name, leaves, held)
    if astray is not None:
        row = _ASTRAY
    elif born:
        row = _LATE
    # in a function, the line may know the model by another name
    elif source is not None and source.function == "<module>":
        edit = behind(source, added)
    return row.filled(
        first_names(leaves),
        source,
        count=plural(len(leaves), "parameter"),
        model=name or "the model",
        calls=plural(leaves[0].reached, "call"),
        holders=listed(row.title for row in rows),
        added=added,
        held=called,
        parameters=parameters,
        born=line(next(iter(born), None)),
    )._replace(
        nodes=tuple(leaf.node for leaf in leaves if leaf.call == context.call),
        where=places(name, line(source)),
        edit=edit,
        follows=("idle-optimizer",) if born else (),
    )


def _astray(rows: Sequence[OptimizerRow]) -> OptimizerRow | None:
    """The last one that holds nothing that another one does not hold."""
    for row in rows[::-1]:
        if any(row.held <= other.held for other in rows if other is not row):
            return row
    return None


def _added(
    optimizer: str, model: str, leaves: Sequence[LeafRow], held: bool
) -> tuple[str, str]:
    """The parameters that an optimizer lacks, and the call that gives it them."""
    modules = {leaf.module for leaf in leaves}
    owner = modules.pop() if len(modules) == 1 else model
    parameters = f"{as_code(owner)}.parameters()"
    # add_param_group() refuses a parameter that another group holds
    if modules and held:
        groups = f"for g in {optimizer}.param_groups for q in g['params']"
        parameters = f"[p for p in {parameters} if all(p is not q {groups})]"
    return parameters, f"{optimizer}.add_param_group({{'params': {parameters}}})"


def _attribute(leaf: LeafRow) -> Diagnosis:
    """A tensor that requires grad, and that a module holds as a plain attribute."""
    parameter = _as_parameter(leaf.source, leaf.names[0].rpartition(".")[2])
    return _ATTRIBUTE.filled(
        leaf.names[:1],
        leaf.source,
        calls=plural(leaf.reached, "call"),
        type=one_line(leaf.type),
        parameter=parameter,
    )._replace(edit=instead(leaf.source, parameter))


def _as_parameter(source: SourceLine | None, attribute: str) -> str:
    """The line as it should be: what makes the tensor, inside `torch.nn.Parameter`."""
    value = next(
        (getattr(statement, "value", None) for statement in parsed(source)), None
    )
    # a Parameter requires grad without being told
    if isinstance(value, ast.Call):
        value.keywords = [key for key in value.keywords if key.arg != "requires_grad"]
    tensor = ast.unparse(value) if value is not None else "..."
    return f"self.{attribute} = torch.nn.Parameter({tensor})"
