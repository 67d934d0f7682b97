"""The check that what should be trained is a leaf, which its module lists and its
optimizer holds.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.checks.call import BackwardCall, Home, Optimizer
from gradviz.checks.edit import Edit, instead, together
from gradviz.checks.ops import users
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.cuts import updates_below
from gradviz.checks.rules.mending import and_reset
from gradviz.checks.words import (
    as_leaf,
    code,
    first_names,
    line,
    listed,
    made_at,
    nodes_of,
    places,
    title_and_code,
    verb,
    where as place,
)
from gradviz.graph import Leaf, SourceLine
from gradviz.source.code_line import in_place, wrapped
from gradviz.wording import one_line, plural


@check(
    "nonleaf-parameter",
    "warning",
    "what should be trained is no leaf any more, or not what the optimizer holds",
)
def nonleaf_parameter(context: BackwardCall) -> Diagnoses:
    """The naive update `w = w - lr * w.grad`, or an optimizer that updates tensors
    which the graph does not use.

    The naive update runs while PyTorch records. The new `w` is the result of a
    subtraction and no leaf: it gets no `.grad`, and the graph of all earlier steps
    hangs on it. An optimizer keeps the tensors that it was given when it was made; a
    parameter that was replaced since, or a model that was copied, is not among them,
    and what the optimizer updates then is no part of the loss. Nor are parameters that
    no module lists: layers in a plain Python list, and parameters made in `forward()`.

    How it is found: Leaves of earlier graphs are compared with what their names hold
    now; tensors of the optimizers with those of the graph, the models and the
    variables.

    What to do: Update in place under `torch.no_grad()`, or with an optimizer. Make the
    optimizer after the model is complete. Keep layers in `torch.nn.ModuleList` or
    `ModuleDict` and tensors in `torch.nn.Parameter`, as attributes set in `__init__()`.

    When to ignore it: When the update is meant to be differentiated, as in an inner
    loop of meta-learning.

    ```python
    import torch

    w = torch.tensor(2.0, requires_grad=True)
    for step in range(3):
        loss = (w - 1) ** 2
        (slope,) = torch.autograd.grad(loss, w)
        w = w - 0.1 * slope
    ```
    """
    yield from _rebound(context)
    yield from _computed_from_leaves(context)
    if any(root.node is not None for root in context.graph.roots):
        for optimizer in context.at_work:
            yield from _stray(context, optimizer)
    yield from _unlisted(context)


def recorded_updates(context: BackwardCall) -> dict[str, int]:
    """The nodes of variables that were leaves of an earlier call's graph, or that sit
    on a leaf which nobody names any more, by name.
    """
    before = {name for earlier in context.earlier for name in earlier.leaves}
    updated = dict[str, int]()

    for tensor in context.named_tensors:
        node = tensor.node
        if node is None or tensor.leaf or node in context.graph.leaf_of:
            continue
        count, leaf = updates_below(context.graph, node)
        lost = leaf is not None and leaf.kind == "input" and not leaf.names
        known = [name for name in tensor.names if name in before]
        names = known or (tensor.names if count and lost else ())
        updated |= dict.fromkeys(names[:1], node)

    return updated


def _rebound(context: BackwardCall) -> Diagnoses:
    """The naive update."""
    graph, updated = context.graph, recorded_updates(context)
    if not updated:
        return

    names, nodes = tuple(updated), tuple(updated.values())
    was = "sits on a leaf without a name"
    if context.earlier:
        was = f"was a leaf at backward call {context.earlier[-1].call}"
    lines = {
        source: _updated(source) for source in (made_at(graph, node) for node in nodes)
    }
    update = f"{one_line(names[0])} -= lr * gradient"
    if all(lines.values()):
        update = "; ".join(lines.values())

    yield Diagnosis(
        f"{listed(names)} {verb(names, 'is the result', 'are results')} of a recorded update, not "
        f"{verb(names, 'a leaf', 'leaves')}",
        names,
        f"{one_line(names[0])} was made by {title_and_code(graph, nodes[0])}; it {was}. A result gets no .grad, and every step "
        "keeps all earlier ones",
        f"Update in place, without recording: with torch.no_grad(): {update}. Or use torch.optim.",
        nodes,
        edit=together(
            [
                instead(source, new and f"with torch.no_grad():\n    {new}")
                for source, new in lines.items()
            ]
        ),
    )


def _updated(source: SourceLine | None) -> str:
    """The line in place. It resets the gradient, where nothing else does."""
    name, changed = in_place(source)
    return f"{changed}{and_reset(source, name)}" if changed else ""


def _computed_from_leaves(context: BackwardCall) -> Diagnoses:
    """What a line computes of a leaf that it has made itself and nobody names:
    `torch.randn(3, requires_grad=True).double()`. That of an input counts where an
    earlier step made it.
    """
    graph = context.graph
    results = {
        tensor.node: tensor.names[0]
        for tensor in context.named_tensors
        if not tensor.retains_grad
    }
    lines = dict[SourceLine, str]()
    for leaf in graph.leaves:
        for user in users(graph, leaf.node) if not leaf.names else ():
            source = made_at(graph, user)
            old = (graph.nodes[user].sequence or 0) < context.since and user in results
            if source is not None and (leaf.kind == "parameter" or old):
                lines[source] = lines.get(source) or results.get(user, "")

    lines = {source: name for source, name in lines.items() if as_leaf(source)}
    if lines:
        names = tuple(dict.fromkeys(filter(None, lines.values())))
        first, what = next(iter(lines)), listed(names, 3) or "a tensor"
        yield Diagnosis(
            f"{what} {verb(names, 'is a result, and no leaf', 'are results, and no leaves')}: no optimizer can train "
            f"{verb(names, 'it', 'them')}",
            names,
            f"{code(first)} makes a leaf and then computes {what} of it: backward() fills the .grad of that leaf, which no "
            "variable holds and no module lists",
            f"Create the leaf last: {'; '.join(map(as_leaf, lines))}.",
            source=first,
            follows=("freed-graph",),
            edit=together([instead(source, as_leaf(source)) for source in lines]),
        )


def _stray(context: BackwardCall, optimizer: Optimizer) -> Diagnoses:
    """Tensors that only the optimizer knows: no model, no variable, no graph of this
    run has them.
    """
    stray = sum(one.node is None and not one.names for one in optimizer.tensors)
    used = [leaf for leaf in context.graph.leaves if leaf.kind == "parameter"]
    without = [leaf for leaf in used if leaf.node not in context.optimized]
    if not stray or (used and not without):
        return

    names, name = first_names(without), one_line(optimizer.name)
    source, total = optimizer.source, len(optimizer.tensors)
    uses = f"; the graph uses {listed(names)}, which no optimizer holds"
    yield Diagnosis(
        f"{name} holds {plural(stray, 'tensor')} that the output does not depend on",
        names or (optimizer.name,),
        f"{stray:,} of {total:,} tensors of {name} ({one_line(optimizer.type)}) are in no model, in no variable and not in this "
        f"graph{uses if names else ''}",
        f"Make the optimizer {f'of {line(source)} ' if source else ''}after the model is complete, or once more behind a copy or "
        "a replaced layer.",
        nodes_of(without),
        where=places(name, line(source)),
        source=source,
    )


def _unlisted(context: BackwardCall) -> Diagnoses:
    """Parameters of the graph that no module lists and no optimizer holds, while one
    updates others: where they are kept, or which forward() makes them anew.
    """
    graph = context.graph
    known = context.optimized.union(
        *((one.node, one.compiled) for one in context.parameters)
    )
    lost = [
        leaf
        for leaf in graph.leaves
        if leaf.kind == "parameter" and leaf.node not in known
    ]
    lost = [leaf for leaf in lost if not _is_computed_from(context, leaf)]
    if not context.optimized or not lost:
        return

    homes = list(
        dict.fromkeys(
            context.homes[leaf.node] for leaf in lost if leaf.node in context.homes
        )
    )
    made = next((home.line for home in homes if home.line is not None), None)
    users_of = [user for leaf in lost for user in users(graph, leaf.node)]
    used = f"used in {place(graph, users_of[0])}" if users_of else ""
    parameter = any(cut.kind == "parameter" for cut in context.cuts)
    told = Diagnosis(
        f"{plural(len(lost), 'parameter')} of this graph {verb(lost, 'is', 'are')} in no model's parameters() and in no optimizer",
        first_names(lost),
        f"backward() computes {verb(lost, 'its gradient', 'their gradients')}, and nothing updates {verb(lost, 'it', 'them')}: "
        "parameters() of a module lists neither layers in a plain Python list or dict nor parameters made in forward()",
        _listing(homes),
        edit=_listed_edit(homes),
        where=places(line(made), used),
        nodes=nodes_of(lost),
        source=made,
        follows=("unused-parameter",) if parameter else (),
    )
    yield told if homes else _made_anew(context, lost, told)


def _made_anew(
    context: BackwardCall, lost: Sequence[Leaf], told: Diagnosis
) -> Diagnosis:
    """The same where one line of a forward() made all of these, after the optimizer."""
    born, *others = {context.born.get(leaf.node) for leaf in lost}
    if others or born is None or born.function != "forward" or born.package:
        return told
    return told._replace(
        why=f"{code(born)} makes them anew each time that forward() runs: what is used next time is untrained",
        fix=f"Make what {line(born)} makes once, in __init__(), as an attribute, before the optimizer is made, and use that.",
        where=line(born),
        source=born,
    )


def _is_computed_from(context: BackwardCall, leaf: Leaf) -> bool:
    """Whether the line that uses a leaf without a name has made it."""
    graph = context.graph
    return not leaf.names and any(
        as_leaf(made_at(graph, user)) for user in users(graph, leaf.node)
    )


def _listed_edit(homes: Sequence[Home]) -> Edit | None:
    home = homes[0] if len(homes) == 1 else None
    if home is not None and home.container:
        return instead(home.line, wrapped(home.line, home.container))
    return None


def _listing(homes: Sequence[Home]) -> str:
    """How a module comes to list what it keeps there."""
    parts = [
        f"{f'In {line(home.line)}, make' if home.line is not None else 'Make'} it a {home.container}: "
        f"{wrapped(home.line, home.container) or f'{home.attribute} = {home.container}(...)'}. "
        for home in homes
        if home.container
    ]
    if parts:
        return f"{''.join(parts)}The optimizer has to be made after that."
    return (
        "Keep layers in torch.nn.ModuleList or ModuleDict, and make parameters as attributes in __init__(), before the optimizer "
        "is made. Or give them to the optimizer yourself."
    )
