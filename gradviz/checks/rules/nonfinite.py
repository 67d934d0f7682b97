"""The check for NaN and Inf: where they appear first, forward or backward.

It judges the numbers of calls that were read because of them, or with `--values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from gradviz.checks.context import CheckContext, Gradients
from gradviz.checks.flow import POLES, born, left_out, reason, remedy, suspect, too_few
from gradviz.checks.ops import kind, maker, makers
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import (
    Names,
    all_names,
    code,
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
from gradviz.source.search import lines_behind, passes
from gradviz.wording import one_line, plural


@check("nonfinite", "error", "NaN or Inf in the forward values or in the gradients", needs_values=True)
def nonfinite(context: CheckContext) -> Diagnoses:
    """NaN or Inf: where it appears first, in the forward pass or in backward.

    In the forward pass it is the earliest node whose result has NaN or Inf, as far as results are still held (saved tensors,
    leaves, outputs). In backward it is the first node whose incoming gradient is finite and whose outgoing one is not: the
    loss may look fine all the same. Minus infinity alone is how masks and sums of probabilities write the logarithm of zero: it
    counts when it reaches an output or a gradient. Where a parameter has NaN, the updates before made it so: the steps are too
    large. Infinities that later operations take up, so that outputs and gradients are finite, are no finding.

    How it is found: The loss is read at each call, and the gradients that it leaves; so are the operations that have a pole (a
    logarithm, a root, a division, a softmax). Where one of these shows something, or with `--values`, all tensors that the graph
    holds are read, in the order of the forward pass, and the gradients are computed. Nothing is written.

    What to do: Fix the operation that is named: keep the input of a logarithm, a square root or a division away from zero,
    mask before the operation that cannot bear it, leave one element of each row unmasked. When an update did it, lower the
    learning rate or clip gradients.

    When to ignore it: When mixed precision scales the loss: `GradScaler` skips steps whose gradients overflow, and adapts.

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
    # where outputs and gradients are finite, later operations have taken up what was not; without gradients, nobody knows
    if _reached(context) or gradients is None or gradients.problem:
        bad = _bad(context)
        if bad:
            yield _forward(context, bad)
            return  # gradients through such values tell nothing more
    if gradients is not None and (gradients.nonfinite or (_broken_leaves(context) and not context.scaled)):
        yield _backward(context, gradients)._replace(follows=("wrong-backward",))


_OVERFLOWS = ("Exp", "Logsumexp", "Softmax", "LogSoftmax")


def _follows(context: CheckContext) -> bool:
    """Whether NaN and Inf here follow from those of an earlier call, which have come into the parameters."""
    if context.loss_before is not None and not math.isfinite(context.loss_before):
        return True
    return context.broken_before and any(value.made_by in context.graph.leaf_of for value in _every(context))


def _every(context: CheckContext) -> Sequence[Value]:
    return context.values.bad if context.values is not None else ()


def _broken_leaves(context: CheckContext) -> list[Leaf]:
    """The leaves whose gradient has NaN or Inf."""
    leaf_of = context.graph.leaf_of
    return [leaf_of[leaf.node] for leaf in context.leaf_gradients if leaf.nonfinite and leaf.node in leaf_of]


def _backward(context: CheckContext, gradients: Gradients) -> Diagnosis:
    """The gradients are not finite, although the outputs are."""
    graph, leaves = context.graph, _broken_leaves(context)
    names, certain = first_names(leaves), bool(gradients.nonfinite)
    first = _cause(context, gradients.nonfinite[0]) if certain else suspect(graph)
    summary = f"the gradient of {listed(names) or 'a leaf'} becomes NaN or Inf"
    if first is None:
        why = "no operation of the graph has an infinite derivative: a number overflowed on the way, most likely"
        return Diagnosis(summary, names, why, f"{remedy('')}.", nodes_of(leaves), where=line(context.backward))
    why = reason(graph, first)
    return Diagnosis(
        f"{summary} in {forward_name(graph.nodes[first])}{'' if certain else ', most likely'}",
        names,
        f"{title_and_code(graph, first)} {'receives' if certain else 'can receive'} a finite gradient and "
        f"{'returns' if certain else 'return'} one that is not{f': {why}' if why else ''}; the outputs are finite",
        f"{_remedy(context, first)}.",
        (first, *(leaf.node for leaf in leaves)),
        where=place(graph, first),
    )


def _cause(context: CheckContext, node: int) -> int:
    """What backward stumbles over at a node: an operation before it, whose result it has saved and is not finite; or itself."""
    wrong = [value for value in _every(context) if value.nonfinite > value.log_of_zero and value.made_by is not None]
    if not any(value.node == node for value in wrong):
        return node
    return min((value.made_by for value in wrong if value.made_by is not None), key=_place_in_order(context.graph))


def _remedy(context: CheckContext, node: int) -> str:
    """What to do about an operation, and the other lines of the same function that do the same and have the same to fear."""
    graph = context.graph
    record, here, given = graph.nodes[node], made_at(graph, node), maker(graph, node, ("ToCopy",))
    half, small = _is_half(graph, node), given is not None and _is_half(graph, given)
    pole = not half or (node in context.poles and not record.op.startswith(_OVERFLOWS))
    advice = remedy("Where" if pole and left_out(graph, node) else record.op, half or small, pole)
    if too_few(record) is not None:
        advice = (
            "A last batch that is smaller than the others is left out by drop_last=True of the DataLoader; of a single "
        )
        advice += "element, x.std(0, correction=0) is 0"
    alike = (other for other in graph.nodes if other.op == record.op.startswith(("Log", "Sqrt")) * record.op)
    every = [at for at in map(own_line, alike) if at and here and (at.file, at.function) == (here.file, here.function)]
    masks = (graph.nodes[maker] for maker in makers(graph, node) if kind(graph, maker) == "MaskedFill")
    every += filter(None, map(own_line, masks))
    lines = list(dict.fromkeys(map(line, [here, *every])))
    return f"{advice} (in {listed(lines)})" if len(lines) > 1 else advice


def _is_half(graph: Graph, node: int) -> bool:
    return any(output.dtype == "float16" for output in graph.nodes[node].outputs if output)


def _bad(context: CheckContext) -> Sequence[Value]:
    """The values that are wrong. Of those with minus infinity only, what began at a pole, and all when nothing else is wrong."""
    every = _every(context)
    worse = [value for value in every if value.nonfinite > value.log_of_zero]
    if worse:
        made = ((value, context.graph.nodes[value.made_by] if value.made_by is not None else None) for value in every)
        return [value for value, by in made if value in worse or (by is not None and by.op.startswith(POLES))]
    return every if context.gradients is None or _reached(context) else ()


def _reached(context: CheckContext) -> bool:
    outputs = {root.name for root in context.graph.roots}
    return any(value.node is None and outputs.intersection(value.names) for value in _every(context))


def _forward(context: CheckContext, bad: Sequence[Value]) -> Diagnosis:
    """Values are not finite: what made the first of them so."""
    rank = _place_in_order(context.graph)
    first = min(bad, key=lambda value: (rank(_holder(value) or 0), value.made_by is not None))  # given, then made
    names, leaf_of, holder = all_names(bad), context.graph.leaf_of, _holder(first)
    amount = f"{first.nonfinite:,} of {first.elements:,} elements are NaN or Inf"
    if holder is None:
        return Diagnosis(
            f"{listed(names) or 'an output'} has NaN or Inf", names, amount, "Look at the data that it is made from."
        )
    if holder in leaf_of:
        return _in_a_leaf(context, leaf_of[holder], bad, amount)
    finite = context.values.finite if context.values is not None else frozenset[int]()
    at = born(context.graph, holder, finite, context.poles)
    unexplained, diverged = not reason(context.graph, at), _diverged(context)
    few = [one.source for one in context.record.misuses if "degrees of freedom" in "".join(one.words)]
    if few and not (_measured(context, at) or diverged):
        return _of_too_few(context.graph, few[0], at, amount, names)
    if diverged or (unexplained and context.losses and first.made_by is not None):
        return _from_the_update(context, ())
    return _from_an_operation(context, first, (holder, at), amount, names)


def _in_a_leaf(context: CheckContext, leaf: Leaf, bad: Sequence[Value], amount: str) -> Diagnosis:
    """The first is a leaf: an update or the data made it so."""
    fix = "An earlier update made it so: look at the gradients of earlier steps, and at the learning rate."
    if leaf.kind != "parameter":
        fix = "Look at the data: NaN or Inf comes in with it."
    elif context.before is not None:
        return _from_the_update(context, [value for value in bad if value.made_by in context.graph.leaf_of])
    summary = f"the {leaf.kind} {listed(leaf.names) or 'an unnamed one'} has NaN or Inf"
    return Diagnosis(summary, leaf.names, amount, fix, (leaf.node,))


def _holder(value: Value) -> int | None:
    """The node that made a value, or that was given it."""
    return value.made_by if value.made_by is not None else value.node


def _from_an_operation(
    context: CheckContext, first: Value, nodes: tuple[int, int], amount: str, names: Names
) -> Diagnosis:
    """`nodes`: the one that holds the value, and the one before it that is to blame."""
    graph, (holder, at) = context.graph, nodes
    made, below = first.made_by is not None, context.poles.get(at, False)
    why = f"{title_and_code(graph, holder)} {'made' if made else 'was given'} a tensor in which {amount}; no earlier value that is "
    why += "still held has any"
    if at != holder:
        why += f". Behind it, {title_and_code(graph, at)} is what can make that of finite numbers"
    cause, fix = reason(graph, at, below), _remedy(context, at)
    if below:
        fix = "Keep its input above zero, as torch.nn.functional.softplus(x) or x.square() do; a small number added helps at zero "
        fix += "alone"
    elif graph.nodes[at].op.startswith("Div") and not _measured(context, at):
        cause = "its divisor has no zero: what came in without a graph has them already"
        fix = "Look where that is computed"
    elif not made and not cause and at == holder and graph.nodes[at].none_inputs:
        before = [line(source) for source in lines_behind(made_at(graph, at))]
        cause = "what came in without a graph has them already"
        fix = f"Look where that is computed{f': {listed(before[:2])}' if before else ''}. A divisor, or the input of a "
        fix += "logarithm or root, that may be 0 is kept away from it by x.clamp(min=1e-6)"
    return Diagnosis(
        f"{graph.nodes[at].op} {'makes' if made else 'is given'} NaN or Inf in the forward pass",
        graph.nodes[at].names or names,
        why + (f". {cause[:1].upper()}{cause[1:]}" if cause else ""),
        f"{fix}.",
        (at,),
        where=place(graph, at),
    )


def _measured(context: CheckContext, node: int) -> bool:
    """Whether an operation is known to have been given a number at which it has a pole, or too few of them."""
    return node in context.poles or too_few(context.graph.nodes[node]) is not None


def _place_in_order(graph: Graph) -> Callable[[int], int]:
    """Tells which node comes first: leaves, then everything else in the order it ran."""
    inputs_first = dict.fromkeys([*graph.leaf_of, *forward_order(graph)])
    rank = {node: i for i, node in enumerate(inputs_first)}
    return lambda node: rank.get(node, len(rank))


def _of_too_few(graph: Graph, source: SourceLine, at: int, amount: str, names: Names) -> Diagnosis:
    """What the operation was given has no graph, and torch has warned of the line that took a deviation of too few elements."""
    return Diagnosis(
        f"{line(source)} makes NaN or Inf of finite data",
        names,
        f"{code(source)} takes std() of too few elements: it divides by their number less one, which is 0; "
        f"{title_and_code(graph, at)} is the first of the graph that was given such a tensor: {amount}",
        f"In {line(source)}, pass correction=0 to std(), which is 0 for a single element; or leave one element as it is.",
        (at,),
        source=source,
    )


GROWN = 1e3
"""A loss that ends at more than this multiple of its least value did not fall, but diverge."""
LARGE, _DIVERGED = 10.0, 1e6
"""Inputs above the first are called large: layers are initialised for inputs of about 1. Above the second, they may diverge."""
MANY = 64
"""Elements from which on a loss that adds them up is named where it diverges."""
_CAUSES = ("gradient-not-reset", "clip-order", "scaler-order", "wrong-backward", "loss-input")
"""Checks: what they find makes updates too large, so that the run diverges because of it."""
_SUM = 2  # what torch calls the reduction "sum"
_LEAST_HALF = 2.0**-25  # what is below rounds to 0 in float16


def _diverged(context: CheckContext) -> bool:
    """Whether the losses before this call grew from step to step."""
    losses = [abs(value) for _, value in context.losses if math.isfinite(value)]
    return len(losses) > 1 and losses[-1] > GROWN * max(min(losses), 1e-30) and losses[-1] > losses[0]


def _from_the_update(context: CheckContext, bad: Sequence[Value]) -> Diagnosis:
    """Updates have made parameters NaN or infinite, or so large that the loss is."""
    names = tuple(dict.fromkeys(first_names(bad)))
    why = (
        f"since the update before this call, NaN or Inf is in {listed(names)}"
        if names
        else "the loss is not finite after an update"
    )
    losses = [loss for loss in context.losses if math.isfinite(loss[1])]
    if len(losses) > 1:
        (first, begin), (last, end) = losses[0], losses[-1]
        why += f"; the loss was {begin:.4g} at call {first} and {end:.4g} at call {last}, before it was {context.loss}"
    seen, fix, source = next(_looks(context))
    return Diagnosis(
        f"an update has made {plural(len(names), 'parameter')} NaN or infinite" if names else "the loss diverges",
        names or first_names(leaf for leaf in context.graph.leaves if leaf.kind == "parameter"),
        f"{why}{f'; {seen}' if seen else ''}",
        fix,
        tuple(value.made_by for value in bad if value.made_by is not None),
        source=source,
        follows=_CAUSES,
    )


def _looks(context: CheckContext) -> Iterator[tuple[str, str, SourceLine | None]]:
    """What a run that diverges may come from, the most certain first: what was seen, what to do, and where."""
    halves = {node for node, leaf in context.graph.leaf_of.items() if leaf.tensor.dtype == "float16"}
    for one in context.optimizers:
        if (one.eps or 1) < _LEAST_HALF and any(held.node in halves for held in one.tensors):
            seen = f"{one.type} adds eps={one.eps:g} to its divisor, which is 0 in float16"
            fix = "Keep the parameters in float32 and run the forward pass under torch.autocast; or give the optimizer eps=1e-4."
            yield seen, fix, one.source
    count, asked = _summed(context)
    if count >= MANY:
        seen = f"the loss is a sum over {count:,} elements, and its gradient that many times the gradient of a mean"
        fix = f"In {line(asked)}, take the mean: reduction='mean', or .mean() in place of .sum(); or divide the learning rate by "
        yield seen, f"{fix}{count:,}.", asked
    values = context.values
    if values is not None and LARGE < values.largest_input < _DIVERGED and values.largest_name:
        name = one_line(values.largest_name)
        made = lines_behind(context.backward, name) if name.isidentifier() else []
        there = f" behind {line(made[0])}" if made else ""
        fix = f"Scale {name} to about 1{there}: {name} = ({name} - {name}.mean(0)) / {name}.std(0). Else lower the learning rate."
        yield f"{name} has numbers up to {values.largest_input:.4g}", fix, context.backward
    fix = "Lower the learning rate, tenfold at a time, until the loss falls; torch.nn.utils.clip_grad_norm_(parameters, 1.0) "
    rates = (one.source for one in context.optimizers if one.source is not None)
    yield (
        "",
        f"{fix}before step() bounds single steps that are too large.",
        next(rates, context.backward),
    )  # the line with the rate


def _summed(context: CheckContext) -> tuple[int, SourceLine | None]:
    """Over how many elements the loss is a sum and nothing else, and the line that asks for it; 0 where it is none."""
    root = context.graph.roots[0].node if len(context.graph.roots) == 1 else None
    if root is None:
        return 0, None
    record, here = context.graph.nodes[root], made_at(context.graph, root)
    shape = record.attributes.get("self_sym_sizes") if record.op.startswith("SumBackward") else None
    if record.attributes.get("reduction") == _SUM:
        shape = next((saved.tensor.shape for saved in record.saved if saved.slot == "target" and saved.tensor), None)
    asked = passes(here.file, "reduction", "'sum'") if here is not None else []
    return math.prod(shape) if shape else 0, asked[0] if len(asked) == 1 else here
