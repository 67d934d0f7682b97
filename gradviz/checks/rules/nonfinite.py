"""The check for NaN and Inf: where they appear first, forward or backward.

It judges the numbers of calls that were read because of them, or with `--values`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradviz.checks.call import BackwardCall, Gradients
from gradviz.checks.flow import (
    POLES,
    born,
    reason,
    remedy,
    remedy_of,
    suspect,
)
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.diverged import diverged, from_the_update
from gradviz.checks.words import (
    Names,
    all_names,
    first_names,
    line,
    listed,
    made_at,
    nodes_of,
    title_and_code,
    where as place,
)
from gradviz.gradients.values import Value
from gradviz.graph import Graph, Leaf, SourceLine
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import forward_name, own_line
from gradviz.source.search import lines_behind


@check(
    "nonfinite",
    "error",
    "NaN or Inf in the forward values or in the gradients",
    needs_values=True,
)
def nonfinite(context: BackwardCall) -> Diagnoses:
    """NaN or Inf: where it appears first, in the forward pass or in backward.

    In the forward pass it is the earliest node whose result has NaN or Inf, as far as
    results are still held (saved tensors, leaves, outputs). In backward it is the first
    node whose incoming gradient is finite and whose outgoing one is not: the loss may
    look fine all the same. Minus infinity alone is how masks and sums of probabilities
    write the logarithm of zero: it counts when it reaches an output or a gradient.
    Where a parameter has NaN, the updates before made it so: the steps are too large.
    Infinities that later operations take up, so that outputs and gradients are finite,
    are no finding.

    How it is found: The loss is read at each call, and the gradients that it leaves; so
    are the operations that have a pole (a logarithm, a root, a division, a softmax).
    Where one of these shows something, or with `--values`, all tensors that the graph
    holds are read, in the order of the forward pass, and the gradients are computed.
    Nothing is written.

    What to do: Fix the operation that is named: keep the input of a logarithm, a square
    root or a division away from zero, mask before the operation that cannot bear it,
    leave one element of each row unmasked. When an update did it, lower the learning
    rate or clip gradients.

    When to ignore it: When mixed precision scales the loss: `GradScaler` skips steps
    whose gradients overflow, and adapts.

    ```python
    import torch

    x = torch.zeros(3, requires_grad=True)
    loss = torch.sqrt(x.square().sum())
    loss.backward()
    ```
    """
    if _follows(context):
        return

    gradients = context.gradients
    # where outputs and gradients are finite, later operations have taken up what was
    # not; without gradients, nobody knows
    if _reached(context) or gradients is None or gradients.problem:
        bad = _bad(context)
        if bad:
            yield _forward(context, bad)
            return  # gradients through such values tell nothing more

    if gradients is not None and (
        gradients.nonfinite or (_broken_leaves(context) and not context.run.scaled)
    ):
        yield _backward(context, gradients)._replace(follows=("wrong-backward",))


def _follows(context: BackwardCall) -> bool:
    """Whether NaN and Inf here follow from those of an earlier call, which have come
    into the parameters.
    """
    previous = context.previous
    if previous is None:
        return False
    if previous.loss is not None and not math.isfinite(previous.loss):
        return True
    calls = context.run.read
    broken_before = any(call.is_broken for call in calls[: calls.index(context)])
    return broken_before and any(
        value.made_by in context.graph.leaf_of for value in _every(context)
    )


def _every(context: BackwardCall) -> Sequence[Value]:
    return context.values.bad if context.values is not None else ()


def _bad(context: BackwardCall) -> Sequence[Value]:
    """The values that are wrong. Of those with minus infinity only, what began at a
    pole, and all when nothing else is wrong.
    """
    every, nodes = _every(context), context.graph.nodes
    worse = [value for value in every if value.nonfinite > value.log_of_zero]
    if not worse:
        return every if context.gradients is None or _reached(context) else ()
    poles = [
        value
        for value in every
        if value.made_by is not None and nodes[value.made_by].op.startswith(POLES)
    ]
    return [value for value in every if value in worse or value in poles]


def _reached(context: BackwardCall) -> bool:
    outputs = {root.name for root in context.graph.roots}
    return any(
        value.node is None and outputs.intersection(value.names)
        for value in _every(context)
    )


# -- in backward -----------------------------------------------------------------------


def _broken_leaves(context: BackwardCall) -> list[Leaf]:
    """The leaves whose gradient has NaN or Inf."""
    leaf_of = context.graph.leaf_of
    return [
        leaf_of[leaf.node]
        for leaf in context.leaf_gradients
        if leaf.nonfinite and leaf.node in leaf_of
    ]


def _backward(context: BackwardCall, gradients: Gradients) -> Diagnosis:
    """The gradients are not finite, although the outputs are."""
    graph, leaves = context.graph, _broken_leaves(context)
    names, certain = first_names(leaves), bool(gradients.nonfinite)
    first = _cause(context, gradients.nonfinite[0]) if certain else suspect(graph)
    summary = f"the gradient of {listed(names) or 'a leaf'} becomes NaN or Inf"

    if first is None:
        why = "no operation of the graph has an infinite derivative: a number overflowed on the way, most likely"
        return Diagnosis(
            summary,
            names,
            why,
            f"{remedy('')}.",
            nodes_of(leaves),
            where=line(context.backward),
        )

    why = reason(graph, first)

    return Diagnosis(
        f"{summary} in {forward_name(graph.nodes[first])}{'' if certain else ', most likely'}",
        names,
        f"{title_and_code(graph, first)} receives a finite gradient and returns one that is not"
        f"{f': {why}' if why else ''}; the outputs are finite",
        f"{remedy_of(context, first)}.",
        (first, *nodes_of(leaves)),
        where=place(graph, first),
    )


def _cause(context: BackwardCall, node: int) -> int:
    """What backward stumbles over at a node: an operation before it, whose result it
    has saved and is not finite; or itself.
    """
    nodes, every = context.graph.nodes, _every(context)
    wrong = [value for value in every if value.nonfinite > value.log_of_zero]
    producers = [value.made_by for value in wrong if value.made_by is not None]
    # all that it saved is finite, so the NaN is its own work
    if all(value.node != node for value in wrong):
        return node
    return min(producers, key=lambda node: nodes[node].sequence or 0, default=node)


# -- in the forward pass ---------------------------------------------------------------


def _forward(context: BackwardCall, bad: Sequence[Value]) -> Diagnosis:
    """Values are not finite: what made the first of them so."""
    order = [*context.graph.leaf_of, *forward_order(context.graph)]
    rank = {node: i for i, node in enumerate(dict.fromkeys(order))}
    # given, then made
    ordered = sorted(bad, key=lambda value: value.made_by is not None)
    first = min(ordered, key=lambda value: rank.get(_holder(value) or 0, 0))
    names, leaf_of, holder = all_names(bad), context.graph.leaf_of, _holder(first)
    amount = f"{first.nonfinite:,} of {first.elements:,} elements are NaN or Inf"
    if holder is None or holder in leaf_of:
        leaf = leaf_of[holder] if holder is not None else None
        if (
            leaf is not None
            and leaf.kind == "parameter"
            # before the first update, the parameter came with the NaN
            and context.previous is not None
        ):
            leaves = [value for value in bad if value.made_by in leaf_of]
            return from_the_update(context, leaves)
        return _in_data(leaf, names, amount)

    finite = context.values.finite if context.values is not None else frozenset[int]()
    culprit = born(context.graph, holder, finite, context.poles)
    unexplained = (
        not reason(context.graph, culprit)
        and context.losses
        and first.made_by is not None
    )
    if diverged(context) or unexplained:
        return from_the_update(context, ())
    lines = _without_graph(context, holder, culprit)
    if lines:
        return _given(context.graph, holder, lines, amount, names)
    return _from_an_operation(context, first, (holder, culprit), amount, names)


def _in_data(leaf: Leaf | None, names: Names, amount: str) -> Diagnosis:
    """NaN or Inf is in a leaf, or in an output that nothing computed."""
    fix, whose = "Look at the data: NaN or Inf comes in with it.", listed(names)
    if leaf is not None:
        names, whose = leaf.names, f"the {leaf.kind} {listed(leaf.names)}"
        if leaf.kind == "parameter":
            fix = "An earlier update made it so: look at the gradients of earlier steps, and at the learning rate."
    nodes = (leaf.node,) if leaf is not None else ()
    return Diagnosis(f"{whose} has NaN or Inf", names, amount, fix, nodes)


def _holder(value: Value) -> int | None:
    """The node that made a value, or that was given it."""
    return value.made_by if value.made_by is not None else value.node


def _without_graph(
    context: BackwardCall,
    holder: int,
    culprit: int,
) -> list[SourceLine]:
    """The lines that compute, without a graph, what a node takes in that nothing in the
    graph explains.
    """
    graph = context.graph
    measured = culprit in context.poles
    explained = culprit != holder or reason(graph, culprit)

    if (
        measured
        or not graph.nodes[holder].none_inputs
        or (explained and not graph.nodes[culprit].op.startswith("Div"))
    ):
        return []

    recorded = {own_line(node) for node in graph.nodes}
    return [
        source
        for source in lines_behind(made_at(graph, holder))
        if source not in recorded
    ]


def _given(
    graph: Graph,
    holder: int,
    lines: Sequence[SourceLine],
    amount: str,
    names: Names,
) -> Diagnosis:
    """The numbers came in with data, or with what was computed of it."""
    source = lines[0]
    return Diagnosis(
        f"{graph.nodes[holder].op} is given NaN or Inf that comes in without a graph",
        graph.nodes[holder].names or names,
        f"in what {title_and_code(graph, holder)} computes, {amount}; no earlier value of the graph has any, so what came in "
        f"without a graph has them already: {listed(map(line, lines[:2]))}",
        f"In {line(source)}, keep a divisor, or the input of a logarithm or root, away from zero: add 1e-6, or "
        f"x.clamp(min=1e-6).{_OF_ONE if 'std(' in source.text else ''}",
        (holder,),
        source=source,
    )


_OF_ONE = " For a single element, pass correction=0 to std(), which is NaN otherwise."


def _from_an_operation(
    context: BackwardCall,
    first: Value,
    nodes: tuple[int, int],
    amount: str,
    names: Names,
) -> Diagnosis:
    """`nodes`: the one that holds the value, and the one before it that is to blame."""
    graph, (holder, culprit) = context.graph, nodes
    computed, below = first.made_by is not None, context.poles.get(culprit, False)
    why = f"{title_and_code(graph, holder)} {'made' if computed else 'was given'} a tensor in which {amount}; no earlier value "
    why += "still held has any"
    if culprit != holder:
        why += f". Behind it, {title_and_code(graph, culprit)} is what can make that of finite numbers"

    cause, fix = reason(graph, culprit, below), remedy_of(context, culprit)
    if below:
        fix = "Keep its input above zero, as torch.nn.functional.softplus(x) or x.square() do; a small number added helps at zero "
        fix += "alone"

    return Diagnosis(
        f"{graph.nodes[culprit].op} {'makes' if computed else 'is given'} NaN or Inf in the forward pass",
        graph.nodes[culprit].names or names,
        why + (f". {cause[:1].upper()}{cause[1:]}" if cause else ""),
        f"{fix}.",
        (culprit,),
        where=place(graph, culprit),
    )


# -- by the update ---------------------------------------------------------------------
