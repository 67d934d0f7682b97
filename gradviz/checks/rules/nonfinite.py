"""The check for NaN and Inf: where they appear first, forward or backward.

It judges the numbers of calls that were read because of them, or with `--values`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from gradviz.checks.call import BackwardCall, Gradients
from gradviz.checks.ops import kind_of
from gradviz.checks.poles import POLES, UNKNOWN, culprit, explained, not_finite_behind
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.telling.diverged import diverged, from_the_update
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
from gradviz.source.feeding import lines_behind


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
    Where a parameter has NaN, an update before made it so.
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
        yield _backward(context, gradients)


def _follows(context: BackwardCall) -> bool:
    """Whether NaN and Inf here follow from those of an earlier call, which have come
    into the parameters.
    """
    in_leaves = any(value.made_by in context.graph.leaf_of for value in _every(context))
    return any(
        not math.isfinite(call.loss or 0.0) or (call.is_broken and in_leaves)
        for call in context.earlier
    )


def _every(context: BackwardCall) -> Sequence[Value]:
    return context.values.bad if context.values is not None else ()


def _bad(context: BackwardCall) -> Sequence[Value]:
    """The values that are wrong. Of those with minus infinity only, what began at a
    pole, and all when nothing else is wrong.
    """
    every = _every(context)
    worse = [value for value in every if value.nonfinite > value.log_of_zero]
    if not worse:
        return every if context.gradients is None or _reached(context) else ()
    return [
        value for value in every if value in worse or value.made_by in context.poles
    ]


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
    names, nodes = first_names(leaves), nodes_of(leaves)
    summary = f"the gradient of {listed(names) or 'a leaf'} becomes NaN or Inf"
    where, fix = line(context.backward), _READ if context.values is None else UNKNOWN
    why = "the loss is finite, and no operation was seen at a pole"

    if gradients.nonfinite:
        first = culprit(context, gradients.nonfinite[0])
        nodes, where = (first, *nodes), place(graph, first)
        summary += f" in {forward_name(graph.nodes[first])}"
        why = f"{title_and_code(graph, first)} receives a finite gradient and returns one that is not; the outputs are finite"
        reason, fix = explained(graph, first)
        for value in _every(context):
            if value.node == first and value.made_by != first:
                amount = f"{value.nonfinite:,} of {value.elements:,} elements"
                reason, fix = f"{amount} of its input are NaN or Inf already", _CHOOSE
        why = _because(why, reason)
    elif context.ran and (likely := _steepest(graph)) is not None:
        # what it saved is freed, so nobody can look whether it was at its pole
        nodes, where = (likely, *nodes), place(graph, likely)
        summary += f" in {forward_name(graph.nodes[likely])}, most likely"
        reason, fix = explained(graph, likely)
        why = _because(f"{title_and_code(graph, likely)} may do so", reason)

    return Diagnosis(
        summary, names, why, fix, nodes, where=where, follows=("wrong-backward",)
    )


def _steepest(graph: Graph) -> int | None:
    """The operation that is likeliest to have given a gradient that is not finite: the
    first kind in the table that the graph has; None without one.
    """
    place_of = {kind_of(node.op): node.id for node in graph.nodes}
    return next((place_of[kind] for kind in POLES if kind in place_of), None)


_READ = "Run it again with --values (in Python values=True), which names the operation."
_CHOOSE = (
    "Choose the elements that count before this operation, as in prediction[known] - target[known]. A mask after it hides "
    "the others from the loss, not from the gradient: 0 times NaN is NaN."
)


def _because(what: str, why: str) -> str:
    return f"{what}. {why[:1].upper()}{why[1:]}" if why else what


# -- in the forward pass ---------------------------------------------------------------


def _forward(context: BackwardCall, bad: Sequence[Value]) -> Diagnosis:
    """Values are not finite: what made the first of them so."""
    graph = context.graph
    order = [*graph.leaf_of, *forward_order(graph)]
    rank = {node: i for i, node in enumerate(dict.fromkeys(order))}
    # given, then made
    ordered = sorted(bad, key=lambda value: value.made_by is not None)
    first = min(ordered, key=lambda value: rank.get(_holder(value) or 0, 0))

    holder, names = _holder(first), all_names(bad)
    amount = f"{first.nonfinite:,} of {first.elements:,} elements are NaN or Inf"
    if holder is not None and holder not in graph.leaf_of:
        return _computed(context, first, holder, amount, names)

    # before the first update, a parameter came with the NaN
    if holder is not None and context.previous is not None:
        leaves = [value for value in bad if value.made_by in graph.leaf_of]
        if graph.leaf_of[holder].kind == "parameter":
            return from_the_update(context, leaves)

    nodes = (holder,) if holder is not None else ()
    return Diagnosis(f"{listed(names)} has NaN or Inf", names, amount, _DATA, nodes)


_DATA = "Look at the data: NaN or Inf comes in with it. A parameter may have it from an earlier update."


def _computed(
    context: BackwardCall, first: Value, holder: int, amount: str, names: Names
) -> Diagnosis:
    """An operation has made the value, or was given it."""
    graph, made = context.graph, first.made_by is not None
    blamed = culprit(context, holder)
    divides = _divides(context, holder)
    why, fix = explained(graph, blamed)
    if diverged(context) or (made and context.losses and not (why or divides)):
        return from_the_update(context, ())
    # what nothing in the graph explains
    if blamed not in context.poles and graph.nodes[holder].none_inputs:
        lines = _without_graph(graph, holder)
        given = [data.text for data in graph.data if holder in data.nodes]
        if lines or any(given):
            return _given(graph, holder, lines, given, amount)

    does = "makes" if made else "is given"
    what = f"{title_and_code(graph, holder)} {does} a tensor in which {amount}; no earlier value still held has any"
    if blamed != holder:
        what += f". Behind it, {title_and_code(graph, blamed)} is what can make that of finite numbers"
    return Diagnosis(
        f"{graph.ops[blamed]} {does} NaN or Inf in the forward pass",
        graph.nodes[blamed].names or names,
        _because(what, why),
        fix,
        (blamed,),
        where=place(graph, blamed),
    )


def _holder(value: Value) -> int | None:
    """The node that made a value, or that was given it."""
    return value.made_by if value.made_by is not None else value.node


def _divides(context: BackwardCall, node: int) -> bool:
    """Whether a quotient lies behind a node: what is divided without a graph by the
    same means may be NaN.
    """
    behind = not_finite_behind(context, node)
    return "Div" in {kind_of(context.graph.ops[place]) for place in behind}


_DIVIDING = re.compile(r"/|div|log|sqrt|std|var|norm|nan|inf|reciprocal|pow|\*\*")


def _without_graph(graph: Graph, holder: int) -> list[SourceLine]:
    """The lines that may make NaN, without a graph, of what a node takes in."""
    recorded = {own_line(node) for node in graph.nodes}
    lines = lines_behind(made_at(graph, holder))
    may = [source for source in lines if _DIVIDING.search(source.text or "")]
    return [source for source in may if source not in recorded]


def _given(
    graph: Graph,
    holder: int,
    lines: Sequence[SourceLine],
    given: Sequence[str],
    amount: str,
) -> Diagnosis:
    """The numbers came in with data, or with what was computed of it."""
    source = lines[0] if lines else made_at(graph, holder)
    begins = listed(map(line, lines[:2])) if lines else listed(given)
    where = f"In {line(source)}" if lines else f"Where {begins} is computed"
    return Diagnosis(
        f"{graph.ops[holder]} is given NaN or Inf that comes in without a graph",
        graph.nodes[holder].names,
        f"in what {title_and_code(graph, holder)} computes, {amount}; no earlier value of the graph has any, so what came in "
        f"without a graph has them already: {begins}",
        f"{where}, keep a divisor, or the input of a logarithm or root, away from zero: add 1e-6, or x.clamp(min=1e-6). "
        "For a single element, pass correction=0 to std(), which is NaN otherwise.",
        (holder,),
        source=source,
    )
