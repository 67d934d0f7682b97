"""The check that what should be trained is a leaf, which its module lists and its
optimizer holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from gradviz.checks.call import BackwardCall, Home, Optimizer
from gradviz.checks.ops import spread, users
from gradviz.checks.registry import Diagnoses, Row, check
from gradviz.checks.words import (
    all_names,
    first_names,
    listed,
    made_at,
    nodes_of,
    title_and_code,
)
from gradviz.graph import Graph, Leaf, SourceLine
from gradviz.source.code_line import as_leaf
from gradviz.source.search import grad_reads, matching
from gradviz.source.statements import body_around, loops_around
from gradviz.wording import one_line, plural

_REBOUND = Row(
    "{names} {is_} the result of a recorded update, not a leaf",
    "{name} was made by {maker}. A result gets no .grad, and every step keeps all earlier ones",
    "Update in place, without recording: with torch.no_grad(): {name} -= lr * gradient, and reset its .grad after that. Or use "
    "torch.optim.",
)
_COMPUTED = Row(
    "{what} {is_} a result, and no leaf: no optimizer can train it",
    "{code} makes a leaf and then computes {what} of it: backward() fills the .grad of that leaf, which no variable holds and no "
    "module lists",
    "Create the leaf last: {leaves}.",
)
_STRAY = Row(
    "{name} holds {stray} that the output does not depend on",
    "{stray} of {total} of {name} ({type}) are in no model, in no variable and not in this graph; of those that the graph uses, "
    "{without} are in no optimizer",
    "Make the optimizer of {line} after the model is complete, or once more behind a copy or a replaced layer.",
)
_ANEW = Row(
    "{name} holds {stray} that the output does not depend on",
    "{name} ({type}) holds another tensor than {without}, which this graph is computed from: {without} was assigned anew after "
    "{line}, and what the optimizer updates is gone",
    "Change {without} in place, without recording, instead of assigning it: with torch.no_grad(): {without}.copy_(...).",
)
_UNLISTED = Row(
    "{count} of this graph {is_} in no model's parameters() and in no optimizer",
    "backward() computes a gradient, and nothing updates {them}: parameters() of a module lists neither layers in a plain Python "
    "list or dict nor parameters made in forward()",
    "Keep layers in torch.nn.ModuleList or ModuleDict, and make parameters as attributes in __init__(), before the optimizer is "
    "made. Or give them to the optimizer yourself.",
)
_PLAIN = Row(
    "{names} {is_} no Parameter, so parameters() does not list {them}",
    "{code} makes a plain tensor that requires grad: backward() fills its .grad at every call, no optimizer holds it, and it "
    "never changes",
    "In {line}, make {attribute} a {container}(...), and make the optimizer after that.",
)
_UNHELD = Row(
    "{names} {is_} in no optimizer, though backward() computes a gradient",
    "{code} makes a tensor that requires grad: backward() fills its .grad at every call, no optimizer holds it, and it never "
    "changes",
    "Give it to the optimizer, too: optimizer.add_param_group({{'params': [{names}]}}).",
)
_HIDDEN = _UNLISTED._replace(fix=_PLAIN.fix)


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
    no module lists: layers in a plain Python list, and parameters made in `forward()`; and a
    tensor with `requires_grad=True` that is an attribute of a module is no Parameter.

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
    # without a graph, every tensor that an optimizer holds would be stray
    if any(root.node is not None for root in context.graph.roots):
        for optimizer in context.at_work:
            yield from _stray(context, optimizer)
    yield from _unlisted(context)
    yield from _plain(context)


def _plain(context: BackwardCall) -> Diagnoses:
    """Tensors that require grad, which modules keep and nobody trains."""
    run, reads = context.run, grad_reads(context.body)
    if not run.stepped or not context.is_last:
        return
    # of an input, the code asks for the gradient
    others = run.holding | run.differentiated_by
    for key, row in run.leaves.items():
        home = context.homes.get(row.node)
        if home is None or row.call != context.call or key in others:
            continue
        kind = context.graph.leaf_of[row.node].kind
        still = row.moved is False and row.names[0] not in reads
        if not (still and kind == "input" and home.line):
            continue
        if home.attribute or not _is_given(context.graph, row.node):
            diagnosis = (_PLAIN if home.attribute else _UNHELD).filled(
                row.names[:1],
                home.line,
                attribute=home.attribute,
                container=home.container or "torch.nn.Parameter",
            )
            yield diagnosis._replace(nodes=(row.node,))


def _is_given(graph: Graph, leaf: int) -> bool:
    """Whether modules compute with a leaf, or with what is computed from it: it is data."""
    after = spread([leaf], lambda node: users(graph, node))
    return any(graph.nodes[node].scope is not None for node in after)


def recorded_updates(context: BackwardCall) -> dict[str, int]:
    """The nodes of variables that were leaves of an earlier call's graph, by name."""
    graph = context.graph
    steps = [call for call in context.earlier if not call.create_graph]
    inputs = (leaf for call in steps for leaf in call.graph.leaves)
    before = {*all_names(leaf for leaf in inputs if leaf.kind == "input")}
    before -= _made_again(context.run.read)
    updated = dict[str, int]()
    for tensor in context.named_tensors:
        node = tensor.node
        if node is not None and node not in graph.leaf_of:
            names = [name for name in tensor.names if name in before]
            updated |= dict.fromkeys(names[:1], node)
    return updated


def _made_again(calls: Sequence[BackwardCall]) -> set[str]:
    """The names that hold a new leaf in each step, and once something computed of it."""
    computed, again = set[str](), set[str]()
    for call in calls:
        leaves = [t for t in call.named_tensors if t.node in call.graph.leaf_of]
        again |= computed.intersection(all_names(leaves))
        computed |= {*all_names(call.named_tensors)}.difference(all_names(leaves))
    return again


def _rebound(context: BackwardCall) -> Diagnoses:
    """The naive update."""
    graph, updated = context.graph, recorded_updates(context)
    for name, node in [*updated.items()][:1]:
        # while an optimizer trains, what autograd.grad is asked for may be a chain of samples
        by_hand = context.after or not context.run.stepped
        if not by_hand and _ends(made_at(graph, node), name):
            continue
        yield _REBOUND.filled(
            tuple(updated),
            made_at(graph, node),
            name=one_line(name),
            maker=title_and_code(graph, node),
            nodes=tuple(updated.values()),
        )


def _ends(source: SourceLine | None, name: str) -> bool:
    """Whether the function of a line goes on with a variable without its graph, as where
    a chain of samples ends.
    """
    if source is None:
        return False
    detached = rf"^(?:return|[\w.]+ =) {re.escape(name)}\.(?:detach\(\)|data)"
    return any(matching(source.file, detached, body_around(source.file, source.line)))


def _computed_from_leaves(context: BackwardCall) -> Diagnoses:
    """What a line computes of a leaf that it has made itself and nobody names:
    `torch.randn(3, requires_grad=True).double()`. That of an input counts where an
    earlier step made it.
    """
    named = dict[int | None, str]()
    for tensor in context.named_tensors:
        if not tensor.retains_grad:
            named[tensor.node] = tensor.names[0]

    lines = dict[SourceLine, str]()
    for leaf in context.graph.leaves:
        for user, source in () if leaf.names else _makes_and_uses(context, leaf):
            if leaf.kind == "parameter" or user in named:
                lines[source] = named.get(user, "a tensor")
    if lines:
        yield _COMPUTED.filled(
            tuple(name for name in lines.values() if name in named.values()),
            next(iter(lines)),
            what=listed(dict.fromkeys(lines.values())),
            leaves="; ".join(map(as_leaf, lines)),
            follows=("freed-graph",),
        )


def _makes_and_uses(
    context: BackwardCall, leaf: Leaf
) -> Iterator[tuple[int, SourceLine]]:
    """What computes something of a leaf in the line that has made it, in an earlier step:
    what each step makes anew is no leaf that anything could train.
    """
    for user in users(context.graph, leaf.node):
        source = made_at(context.graph, user)
        if source is None or not as_leaf(source):
            continue
        is_old = (context.graph.nodes[user].sequence or 0) < context.since
        again = source.function == "forward" or loops_around(source.file, source.line)
        is_new = context.ends or (again and source.function != "__init__")
        # of an input, a first call does not show that it is to be trained
        if is_old or (leaf.kind == "parameter" and not is_new):
            yield user, source


def _stray(context: BackwardCall, optimizer: Optimizer) -> Diagnoses:
    """Tensors that only the optimizer knows: no model, no variable, no graph of this
    run has them.
    """
    stray = sum(
        tensor.node is None and not tensor.names for tensor in optimizer.tensors
    )
    used = [leaf for leaf in context.graph.leaves if leaf.kind == "parameter"]
    row = _STRAY if used else _ANEW
    leaves = used or [leaf for leaf in context.graph.leaves if leaf.names]
    without = [leaf for leaf in leaves if leaf.node not in context.optimized]

    # an optimizer may hold parameters of a part that this graph does not use
    if stray and without:
        yield row.filled(
            first_names(without) or (optimizer.name,),
            optimizer.row.source,
            name=one_line(optimizer.name),
            type=one_line(optimizer.row.type),
            stray=plural(stray, "tensor"),
            total=len(optimizer.tensors),
            without=listed(first_names(without)),
            nodes=nodes_of(without),
        )


def _unlisted(context: BackwardCall) -> Diagnoses:
    """Parameters of the graph that no module lists and no optimizer holds, while one
    updates others: where they are kept, or else used.
    """
    graph, homes = context.graph, context.homes
    known = context.optimized.union(nodes_of(context.parameters))
    lost = [leaf for leaf in graph.leaves if _is_unlisted(context, leaf, known)]
    if not context.optimized or not lost:
        return

    kept = [homes[leaf.node] for leaf in lost if leaf.node in homes]
    home = next(iter(kept), Home("", "", None))
    user = made_at(graph, next(iter(users(graph, lost[0].node)), None))
    wraps = any(cut.kind == "parameter" for cut in context.cuts)
    yield (
        (_HIDDEN if home.container and home.line else _UNLISTED).filled(
            first_names(lost),
            home.line or user,
            count=plural(len(lost), "parameter"),
            attribute=home.attribute,
            container=home.container,
            nodes=nodes_of(lost),
            follows=("unused-parameter",) if wraps else (),
        )
    )


def _is_unlisted(
    context: BackwardCall, leaf: Leaf, known: Collection[int | None]
) -> bool:
    """Whether a leaf is a parameter that is none of those known, and the line that uses
    it has not made it.
    """
    if leaf.kind != "parameter" or leaf.node in known:
        return False
    return bool(leaf.names) or not any(_makes_and_uses(context, leaf))
