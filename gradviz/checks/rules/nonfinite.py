"""The check for NaN and Inf: where they appear first, forward or backward.

It judges the numbers of calls that were read because of them, or with `--values`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gradviz.checks.context import CheckContext, Gradients, Optimizer
from gradviz.checks.flow import POLES, born, function, left_out, reason, remedy, suspect, too_few
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.words import (
    all_names,
    as_code,
    code,
    first_names,
    forward_op,
    line,
    listed,
    nodes_of,
    op,
    title_and_code,
    where as place,
)
from gradviz.gradients.values import Value
from gradviz.graph import Graph, Leaf, SourceLine
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import own_line
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
            yield from _forward(context, bad)
            return  # gradients through such values tell nothing more
    if gradients is not None and (gradients.nonfinite or (_broken_leaves(context) and not context.scaled)):
        yield _backward(context, gradients)


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
    names = first_names(leaves)
    first = _cause(context, gradients.nonfinite[0]) if gradients.nonfinite else suspect(graph)
    if first is None:
        return Diagnosis(
            f"the gradient of {listed(names) or 'a leaf'} becomes NaN or Inf",
            names,
            "no operation of the graph has an infinite derivative: a number overflowed on the way, most likely",
            f"{remedy('')}.",
            nodes_of(leaves),
            where=line(context.backward),
        )
    others = len(gradients.nonfinite) - 1
    more = f"; {plural(others, 'more node')} of backward return NaN or Inf first" if others > 0 else ""
    what, why = forward_op(graph.nodes[first]), reason(graph, first)
    certain = bool(gradients.nonfinite)
    return Diagnosis(
        f"the gradient of {listed(names) or 'a leaf'} becomes NaN or Inf in {what}{'' if certain else ', most likely'}",
        names,
        f"{title_and_code(graph, first)} {'receives' if certain else 'can receive'} a finite gradient and "
        f"{'returns' if certain else 'return'} one that is not{f': {why}' if why else ''}{more}; the outputs are finite",
        f"{_remedy(graph, first)}.",
        (first, *(leaf.node for leaf in leaves)),
        where=place(graph, first),
    )


def _cause(context: CheckContext, node: int) -> int:
    """What backward stumbles over at a node: an operation before it, whose result it has saved and is not finite; or itself."""
    wrong = [value for value in _every(context) if value.nonfinite > value.log_of_zero and value.made_by is not None]
    if not any(value.node == node for value in wrong):
        return node
    return min((value.made_by for value in wrong if value.made_by is not None), key=_place_in_order(context.graph))


def _remedy(graph: Graph, node: int, others: Sequence[int] = ()) -> str:
    """What to do, with the lines where it is to be done: those of the node and of others of its kind, or of the mask before it."""
    kind = graph.nodes[node].op
    masks = [edge.producer for edge in graph.inputs(node) if graph.nodes[edge.producer].op.startswith("MaskedFill")]
    here = own_line(graph.nodes[node])
    alike = [own_line(graph.nodes[other]) for other in others if graph.nodes[other].op == kind]
    if kind.startswith(("Log", "Sqrt")) and here is not None:  # of one function, all have the same to fear
        made = (own_line(record) for record in graph.nodes if record.op == kind)
        alike += [at for at in made if at is not None and (at.file, at.function) == (here.file, here.function)]
    source = own_line(graph.nodes[masks[0]]) if kind.startswith("Softmax") and masks else here
    also = [written for written in dict.fromkeys(map(line, alike)) if written not in ("", line(source))]
    there = f" (in {listed([line(source), *also])})" if source is not None and (also or masks) else ""
    return _how(graph, node) + there


def _how(graph: Graph, node: int) -> str:
    made = next((output for output in graph.nodes[node].outputs if output is not None), None)
    half = made is not None and made.dtype == "float16"
    if too_few(graph.nodes[node]) is not None:
        return (
            "A last batch that is smaller than the others is left out by drop_last=True of the DataLoader; of a "
            "single element, x.std(0, correction=0) is 0"
        )
    if not half and left_out(graph, node):
        return remedy("Where")
    return remedy(function(graph.nodes[node]), half)


def _bad(context: CheckContext) -> Sequence[Value]:
    """The values that are wrong. Of those with minus infinity only, what began at a pole, and all when nothing else is wrong."""
    every = _every(context)
    worse = [value for value in every if value.nonfinite > value.log_of_zero]
    if worse:
        made = ((value, context.graph.nodes[value.made_by] if value.made_by is not None else None) for value in every)
        return [value for value, by in made if value in worse or (by is not None and function(by).startswith(POLES))]
    return every if context.gradients is None or _reached(context) else ()


def _reached(context: CheckContext) -> bool:
    outputs = {root.name for root in context.graph.roots}
    return any(value.node is None and outputs.intersection(value.names) for value in _every(context))


def _forward(context: CheckContext, bad: Sequence[Value]) -> Diagnoses:
    graph = context.graph
    rank = _place_in_order(graph)
    first = min(bad, key=lambda value: rank(value.made_by if value.made_by is not None else value.node or 0))
    names = all_names(bad)
    at = first.made_by if first.made_by is not None else first.node
    amount = f"{first.nonfinite:,} of {first.elements:,} elements are NaN or Inf"
    if at is None:
        yield Diagnosis(
            f"{listed(names) or 'an output'} has NaN or Inf", names, amount, "Look at the data that it is made from."
        )
        return
    leaf = graph.leaf_of.get(at)
    if leaf is not None:
        who = listed(leaf.names) or f"an unnamed {leaf.kind}"
        if leaf.kind == "parameter" and context.before is not None:
            yield from_the_update(context, [value for value in bad if value.made_by in graph.leaf_of])
            return
        fix = (
            "An earlier update made it so: look at the gradients of earlier steps, and at the learning rate."
            if leaf.kind == "parameter"
            else "Look at the data: NaN or Inf comes in with it."
        )
        yield Diagnosis(f"the {leaf.kind} {who} has NaN or Inf", leaf.names or names, amount, fix, (at,))
        return
    known = context.values.finite if context.values is not None else frozenset()
    holder, at = at, born(graph, at, known, context.poles)
    unexplained = not reason(graph, at)
    if context.broken_data and unexplained and not diverged(context):
        yield _from_data(context, at, amount, names)
        return
    if diverged(context) or (first.made_by is not None and context.losses and unexplained):
        yield from_the_update(context, ())
        return
    below = context.poles.get(at, False)
    inputs = [edge.producer for edge in graph.inputs(at)]
    finite = [i for i in inputs if i in known]
    made = first.made_by is not None
    why = (
        f"{title_and_code(graph, holder)} {'made' if made else 'was given'} a tensor in which {amount}; no earlier "
        "value that is still held has any"
    )
    if at != holder:
        why += f". Behind it, {title_and_code(graph, at)} is what can make that of finite numbers; its own result is not held"
    elif inputs and len(finite) == len(inputs):
        why += f", and all that it was computed from is finite ({listed([_called(graph, i) for i in finite])})"
    elif made and inputs:
        why += "; what it was computed from is not all held, so it may have come in from there"
    cause = reason(graph, at, below)
    why += f". {cause[:1].upper()}{cause[1:]}" if cause else ""
    yield Diagnosis(
        f"{op(graph.nodes[at])} {'makes' if made else 'is given'} NaN or Inf in the forward pass",
        graph.nodes[at].names or names,
        why,
        f"{_above_zero(graph, at) if below else _remedy(graph, at, [v.made_by for v in bad if v.made_by is not None])}.",
        (at,),
        where=place(graph, at),
    )


def _place_in_order(graph: Graph) -> Callable[[int], int]:
    """Tells which node comes first: leaves, then everything else in the order it ran."""
    inputs_first = dict.fromkeys([*graph.leaf_of, *forward_order(graph)])
    rank = {node: i for i, node in enumerate(inputs_first)}
    return lambda node: rank.get(node, len(rank))


def _above_zero(graph: Graph, node: int) -> str:
    """What to do about a logarithm or root of numbers below zero, where a small number more does not help."""
    behind = node
    while behind not in graph.leaf_of and len(graph.inputs(behind)) == 1:
        behind = graph.inputs(behind)[0].producer
    leaf = graph.leaf_of.get(behind)
    what, name = ("logarithm", "log") if function(graph.nodes[node]).startswith("Log") else ("root", "sqrt")
    if leaf is None or not leaf.names:
        return (
            f"Keep its input above zero, as torch.nn.functional.softplus(x) or x.square() do; torch.{name}(x + 1e-8) "
            f"helps at zero alone. In {line(own_line(graph.nodes[node]))}, x.clamp(min=1e-8) does where only rounding "
            "makes it negative"
        )
    return (
        f"{listed(leaf.names[:1])} was trained below zero, and adding a small number does not help: train its "
        f"logarithm in its place (exp() of that is never negative), or take the {what} of "
        f"torch.nn.functional.softplus({as_code(leaf.names[0])})"
    )


def _from_data(context: CheckContext, at: int, amount: str, names: tuple[str, ...]) -> Diagnosis:
    """What the operation was given has no graph, and the line that made NaN or Inf of finite data is known."""
    graph, source = context.graph, context.broken_data[0]
    return Diagnosis(
        "NaN or Inf comes in with the data",
        names,
        f"{code(source)} makes NaN or Inf of finite numbers, in a tensor without a graph; {title_and_code(graph, at)} "
        f"is the first of the graph that was given such a tensor: {amount}",
        f"In {line(source)}, keep the input away from where the function is infinite or not defined, "
        "x.clamp(min=1e-6) (and max=1 - 1e-6 where the logarithm of 1 - x is taken), or set such elements to 0 "
        "afterwards: y = torch.where(y.isfinite(), y, 0).",
        (at,),
        source=source,
    )


def _called(graph: Graph, node: int) -> str:
    leaf = graph.leaf_of.get(node)
    return (listed(leaf.names[:1]) if leaf is not None else one_line(" = ".join(graph.nodes[node].names))) or op(
        graph.nodes[node]
    )


GROWN = 1e3
"""A loss that ends at more than this multiple of its least value did not fall, but diverge."""


LARGE = 10.0
"""Inputs above this are called large: layers are initialised for inputs of about 1."""


_LEAST_HALF = 2.0**-25
"""What is below rounds to 0 in float16."""
_SUM = 2  # what torch calls the reduction "sum"
_MANY = 64
"""Elements from which on a loss that adds them up is named where it diverges."""


def diverged(context: CheckContext) -> bool:
    """Whether the losses before this call grew from step to step."""
    losses = [abs(value) for _, value in context.losses if math.isfinite(value)]
    return len(losses) > 1 and losses[-1] > GROWN * max(min(losses), 1e-30) and losses[-1] > losses[0]


def from_the_update(context: CheckContext, bad: Sequence[Value]) -> Diagnosis:
    """Updates have made parameters NaN or infinite, or so large that the loss is: the steps are too large."""
    names = tuple(dict.fromkeys(first_names(bad)))
    have = "has" if len(names) == 1 else "have"
    why = (
        f"{listed(names)} {have} NaN or Inf since the update before this call"
        if names
        else "the loss is not finite after an update"
    )
    losses = [loss for loss in context.losses if math.isfinite(loss[1])]
    lost = _without_eps(context)
    if lost is not None:
        return _lost_eps(lost, names, why)
    if len(losses) > 1:
        (first, begin), (last, end) = losses[0], losses[-1]
        why += f"; the loss was {begin:.4g} at call {first} and {end:.4g} at call {last}, before it was {context.loss}"
    else:
        why += "; the gradient of that step overflowed, or the step was too large"
    maker = next((optimizer.source for optimizer in context.optimizers if optimizer.source is not None), None)
    # `maker` is the line with the learning rate
    source = context.backward if maker is None or _largest(context) > LARGE else maker
    what = f"an update has made {plural(len(names), 'parameter')} NaN or infinite" if names else "the loss diverges"
    summed = _summed(context)
    if summed is not None:
        source = summed[1]
        why += (
            f"; the loss is a sum over {summed[0]:,} elements, and its gradient that many times the gradient of a mean"
        )
    return Diagnosis(
        what,
        names or first_names(leaf for leaf in context.graph.leaves if leaf.kind == "parameter"),
        why,
        _fix(context),
        tuple(value.made_by for value in bad if value.made_by is not None),
        source=source,
        follows=("gradient-not-reset",),
    )


def _without_eps(context: CheckContext) -> Optimizer | None:
    """An optimizer of float16 parameters whose eps is zero in their type."""
    small = (optimizer for optimizer in context.optimizers if (optimizer.eps or 1) < _LEAST_HALF)
    halves = {node for node, leaf in context.graph.leaf_of.items() if leaf.tensor.dtype == "float16"}
    return next((optimizer for optimizer in small if any(held.node in halves for held in optimizer.tensors)), None)


def _lost_eps(optimizer: Optimizer, names: tuple[str, ...], why: str) -> Diagnosis:
    return Diagnosis(
        f"an update has made {plural(len(names), 'parameter')} NaN or infinite: {optimizer.type} divides by zero in "
        "float16",
        names,
        f"{why}; {optimizer.type} adds eps={optimizer.eps:g} to its divisor, which is 0 in float16, so that a "
        "gradient of 0 is divided by 0",
        "Keep the parameters in float32 and run the forward pass under torch.autocast, with a GradScaler; or give the "
        "optimizer eps=1e-4.",
        source=optimizer.source,
    )


def _summed(context: CheckContext) -> tuple[int, SourceLine | None] | None:
    """Over how many elements the loss is a sum, and the line that asks for it, where that is many and it is nothing else."""
    root = context.graph.roots[0].node if len(context.graph.roots) == 1 else None
    if root is None:
        return None
    record = context.graph.nodes[root]
    shape = record.attributes.get("self_sym_sizes") if record.op.startswith("SumBackward") else None
    if record.attributes.get("reduction") == _SUM:
        shape = next((saved.tensor.shape for saved in record.saved if saved.slot == "target" and saved.tensor), None)
    count = math.prod(shape) if shape else 0
    here = own_line(record)
    asked = passes(here.file, "reduction", "'sum'") if here is not None else []
    return (count, asked[0] if len(asked) == 1 else here) if count >= _MANY else None


def _input(context: CheckContext) -> str:
    """Where the large input comes from, and the line that scales it."""
    name = as_code(context.values.largest_name) if context.values is not None else ""
    if not name.isidentifier():
        return ", as in x = (x - x.mean(0)) / x.std(0)"
    made = next(iter(lines_behind(context.backward, name)), None) if context.backward is not None else None
    behind = f", behind {line(made)}" if made is not None else ""
    return f"{behind}: {name} = ({name} - {name}.mean(0)) / {name}.std(0)"


def _largest(context: CheckContext) -> float:
    return context.values.largest_input if context.values is not None else 0.0


def _fix(context: CheckContext) -> str:
    largest = _largest(context)
    summed = _summed(context)
    if summed is not None:
        return (
            f"In {line(summed[1])}, take the mean: reduction='mean', or .mean() in place of .sum(); or divide the "
            f"learning rate by {summed[0]:,}."
        )
    if largest > LARGE:
        return (
            f"Scale the inputs to about 1{_input(context)}: the largest number among them is {largest:.4g}. "
            "Else lower the learning rate, tenfold at a time."
        )
    return (
        "Lower the learning rate, tenfold at a time, until the loss falls; torch.nn.utils.clip_grad_norm_(parameters, "
        "1.0) before step() bounds single steps that are too large."
    )
