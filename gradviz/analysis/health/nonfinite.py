"""The check for NaN and Inf: where they appear first, forward or backward.

It reads all numbers with `--values`, else those of a call whose loss is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gradviz.analysis.health.registry import Found, check
from gradviz.analysis.health.words import listed, title_and_code
from gradviz.analysis.health.words import where as place
from gradviz.analysis.held import forward_order
from gradviz.evidence import Evidence, Value
from gradviz.graph import Graph
from gradviz.wording import one_line, plural

_POLES = (
    "LogBackward",
    "Log2Backward",
    "Log10Backward",
    "Log1PBackward",
    "DivBackward",
    "ReciprocalBackward",
    "PowBackward",
)
"""Operations that make minus infinity out of finite numbers."""

_REMEDY = {
    "Sqrt": "add a small number under the root: torch.sqrt(x + 1e-12)",
    "Log": "keep its input above zero: torch.log(x + 1e-8), where clamp(min=1e-8) would leave such elements without a "
    "gradient; or use log_softmax, logsigmoid or xlogy",
    "Div": "keep the divisor away from zero",
    "Pow": "keep its base away from zero: a power below 1 has an infinite slope there",
    "Exp": "keep its input small: subtract the maximum first, or use logsumexp or softmax",
    "LinalgVectorNorm": "the slope of a norm at zero is not defined: add a small number, or square the norm instead",
    "Norm": "the slope of a norm at zero is not defined: add a small number, or square the norm instead",
    "Acos": "keep its input inside (-1, 1)",
    "Asin": "keep its input inside (-1, 1)",
    "Std": "the slope of a standard deviation is infinite where all values are equal: add a small number to the variance",
    "Where": "torch.where does not protect the branch it leaves out: make both branches finite",
}


@check("nonfinite", "error", "NaN or Inf in the forward values or in the gradients", needs_values=True)
def nonfinite(evidence: Evidence) -> Iterator[Found]:
    """NaN or Inf: where it appears first, in the forward pass or in backward.

    In the forward pass it is the earliest node whose result has NaN or Inf, as far as results are still held (saved tensors,
    leaves, outputs). In backward it is the first node whose incoming gradient is finite and whose outgoing one is not: the
    loss may look fine all the same. Minus infinity alone is how masks and sums of probabilities write the logarithm of zero: it
    counts when it reaches an output or a gradient. Where a parameter has NaN, the update before made it so: the likeliest operation
    of the call before is named. Without `--values`, only the loss is read, and all numbers of the first call whose loss is NaN or
    infinite. With it, the gradients are computed, too; nothing is written.

    How it is found: The loss is read at each call. When it is NaN or infinite, or with `--values`, all tensors that the graph
    holds are read, in the order of the forward pass, and with `--values` the gradients too.

    What to do: Mend the operation that is named: keep the input of a logarithm, a square root or a division away from zero,
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
    graph = evidence.graph
    if evidence.loss_before is not None and not math.isfinite(evidence.loss_before):
        return  # what follows from that
    bad = _bad(evidence)
    if bad:
        yield from _forward(evidence, bad)
        return  # gradients through such values tell nothing more
    gradients = evidence.gradients
    if gradients is None or not gradients.nonfinite:
        return
    first = gradients.nonfinite[0]
    leaves = [graph.leaf_of[one.node] for one in gradients.leaves if one.nonfinite and one.node in graph.leaf_of]
    names = tuple(name for leaf in leaves for name in leaf.names[:1])
    op = graph.nodes[first].op
    more = (
        f"; {plural(len(gradients.nonfinite) - 1, 'more node')} of backward begin to give NaN or Inf"
        if len(gradients.nonfinite) > 1
        else ""
    )
    yield Found(
        f"backward makes NaN or Inf in {op}" + (f", for {listed(names)}" if names else ""),
        names,
        place(graph, first),
        f"{title_and_code(graph, first)} gets a finite gradient and gives one that is not{more}; the values of the forward "
        "pass are finite",
        f"{_remedy(op)}.",
        (first, *(leaf.node for leaf in leaves)),
    )


def _bad(evidence: Evidence) -> Sequence[Value]:
    """The values that are wrong. Of those with minus infinity only, what began at a pole, and all when nothing else is wrong and
    they reached an output or a gradient."""
    values, graph = evidence.values, evidence.graph
    every = values.bad if values is not None else ()
    worse = [one for one in every if one.nonfinite > one.log_of_zero]
    if worse:
        return [one for one in every if one in worse or _at_a_pole(graph, one)]
    outputs = {root.name for root in graph.roots}
    gradients = evidence.gradients
    reached = any(one.node is None and outputs.intersection(one.names) for one in every) or (
        gradients is not None and (gradients.nonfinite or any(one.nonfinite for one in gradients.leaves))
    )
    return every if reached else ()


def _at_a_pole(graph: Graph, value: Value) -> bool:
    return value.made_by is not None and graph.nodes[value.made_by].op.startswith(_POLES)


def _forward(evidence: Evidence, bad: Sequence[Value]) -> Iterator[Found]:
    graph = evidence.graph
    rank = {node: i for i, node in enumerate(_inputs_first(graph))}
    first = min(bad, key=lambda one: rank.get(one.made_by if one.made_by is not None else one.node or 0, len(rank)))
    names = tuple(dict.fromkeys(name for one in bad for name in one.names))
    at = first.made_by if first.made_by is not None else first.node
    amount = f"{first.nonfinite:,} of {first.elements:,} elements are NaN or Inf"
    if at is None:
        yield Found(
            f"{listed(names) or 'an output'} has NaN or Inf",
            names,
            "",
            amount,
            "Look at the data that it is made from.",
        )
        return
    leaf = graph.leaf_of.get(at)
    if leaf is not None:
        who = listed(leaf.names) or f"an unnamed {leaf.kind}"
        if leaf.kind == "parameter" and evidence.before is not None:
            yield from _from_the_update(evidence, evidence.before, [one for one in bad if one.made_by in graph.leaf_of])
            return
        fix = (
            "An earlier update made it so: look at the gradients of earlier steps, and at the learning rate."
            if leaf.kind == "parameter"
            else "Look at the data: NaN or Inf comes in with it."
        )
        yield Found(f"the {leaf.kind} {who} has NaN or Inf", leaf.names or names, "", amount, fix, (at,))
        return
    known = evidence.values.finite if evidence.values is not None else frozenset()
    held, at = at, _born(graph, at, known)
    op = graph.nodes[at].op
    inputs = [edge.producer for edge in graph.inputs(at)]
    finite = [i for i in inputs if i in known]
    made = first.made_by is not None
    why = (
        f"{title_and_code(graph, held)} {'made' if made else 'was given'} a tensor in which {amount}; no earlier value that is "
        "still held has any"
    )
    if at != held:
        why += f". Behind it, {title_and_code(graph, at)} is what can make that of finite numbers; its own result is not held"
    elif inputs and len(finite) == len(inputs):
        why += f", and all that it was computed from is finite ({listed([_called(graph, i) for i in finite])})"
    elif made and inputs:
        why += "; what it was computed from is not all held, so it may have come in from there"
    yield Found(
        f"{op} {'makes' if made else 'is given'} NaN or Inf in the forward pass",
        graph.nodes[at].names or names,
        place(graph, at),
        why,
        f"{_remedy(op)}.",
        (at,),
    )


_BIRTHS = (*(op for op in _POLES if op != "PowBackward"), "Sqrt", "Rsqrt", "Acos", "Asin")


def _born(graph: Graph, node: int, finite: frozenset[int]) -> int:
    """The operation with a pole behind this one, through results that nobody holds any more; else the node itself."""
    waiting, seen = [node], {node}
    while waiting:
        at = waiting.pop(0)
        if graph.nodes[at].op.startswith(_BIRTHS):
            return at
        behind = [edge.producer for edge in graph.inputs(at) if edge.producer not in finite]
        waiting += [one for one in dict.fromkeys(behind) if one not in seen and one not in graph.leaf_of]
        seen.update(behind)
    return node


_STEEP = ("Sqrt", "LinalgVectorNorm", "Norm", "Std", "Acos", "Asin", "Pow", "Div", "Log", "Where")
"""Operations whose gradient can be NaN or infinite although their result is finite, the likeliest first."""


def _from_the_update(evidence: Evidence, before: Graph, bad: Sequence[Value]) -> Iterator[Found]:
    """Parameters that an update has made NaN or infinite: the gradient of the call before was so, or the step was too large."""
    names = tuple(dict.fromkeys(name for one in bad for name in one.names[:1]))
    suspect = _suspect(before)
    loss = f", whose loss was {evidence.loss_before:.4g}" if evidence.loss_before is not None else ""
    have = "has" if len(names) == 1 else "have"
    why = f"{listed(names)} {have} NaN or Inf since the update that followed the backward call before{loss}"
    if suspect is None:
        yield Found(
            f"an update has made {plural(len(names), 'parameter')} NaN or infinite",
            names,
            "",
            f"{why}; no operation of that call has a gradient that is infinite somewhere, so the step was too large, or the "
            "gradient overflowed",
            "Lower the learning rate, scale the inputs to about 1, or clip gradients with torch.nn.utils.clip_grad_norm_.",
            tuple(one.made_by for one in bad if one.made_by is not None),
        )
        return
    op = before.nodes[suspect].op
    masked = op.startswith("Softmax")
    yield Found(
        f"backward has made NaN or Inf, most likely in {op}",
        names,
        place(before, suspect),
        f"{why}; in that call {title_and_code(before, suspect)} "
        + (
            "had scores that were masked with infinity: a row that is masked completely gives NaN"
            if masked
            else "can give a gradient that is not finite from finite values; gradviz check --values computes it and is certain"
        ),
        "Leave one element of each row unmasked, mask with torch.finfo(scores.dtype).min instead of float('-inf'), or set such "
        "rows to zero afterwards with torch.nan_to_num."
        if masked
        else f"{_remedy(op)}.",
    )


def _suspect(graph: Graph) -> int | None:
    """The operation that is likeliest to have given a gradient that is not finite: a softmax of masked scores, or a steep one."""
    for node in graph.nodes:
        if node.op.startswith("Softmax") and any(
            graph.nodes[edge.producer].op.startswith("MaskedFill") for edge in graph.inputs(node.id)
        ):
            return node.id
    return next((node.id for start in _STEEP for node in graph.nodes if node.op.startswith(start)), None)


def _inputs_first(graph: Graph) -> list[int]:
    """Leaves, then everything else in the order it ran."""
    return [*graph.leaf_of, *(i for i in forward_order(graph) if i not in graph.leaf_of)]


def _called(graph: Graph, node: int) -> str:
    leaf = graph.leaf_of.get(node)
    return (
        listed(leaf.names[:1]) if leaf is not None else one_line(" = ".join(graph.nodes[node].names))
    ) or graph.nodes[node].op


def _remedy(op: str) -> str:
    known = next((text for start, text in _REMEDY.items() if op.startswith(start)), "")
    return (
        known[:1].upper() + known[1:]
        if known
        else "Look at the inputs of this operation for zeros and very large numbers; if they grow from step to step, lower the "
        "learning rate, scale the inputs to about 1, or clip gradients"
    )
