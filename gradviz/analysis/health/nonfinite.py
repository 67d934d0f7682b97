"""The check for NaN and Inf: where they appear first, forward or backward. It reads numbers, and runs with `--values` only."""

from __future__ import annotations

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
    "Log": "keep its input above zero: clamp(min=1e-12), or use log_softmax, logsigmoid or xlogy",
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
    counts when it reaches an output or a gradient. Needs `--values`, because numbers are read and gradients are computed;
    nothing is written.

    ```python
    import torch

    x = torch.zeros(3, requires_grad=True)
    loss = torch.sqrt(x.square().sum())
    loss.backward()
    ```
    """
    graph = evidence.graph
    bad = _bad(evidence)
    if bad:
        yield _forward(evidence, bad)
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


def _forward(evidence: Evidence, bad: Sequence[Value]) -> Found:
    graph = evidence.graph
    rank = {node: i for i, node in enumerate(_inputs_first(graph))}
    first = min(bad, key=lambda one: rank.get(one.made_by if one.made_by is not None else one.node or 0, len(rank)))
    names = tuple(dict.fromkeys(name for one in bad for name in one.names))
    at = first.made_by if first.made_by is not None else first.node
    amount = f"{first.nonfinite:,} of {first.elements:,} elements are NaN or Inf"
    if at is None:
        return Found(
            f"{listed(names) or 'an output'} has NaN or Inf",
            names,
            "",
            amount,
            "Look at the data that it is made from.",
        )
    leaf = graph.leaf_of.get(at)
    if leaf is not None:
        who = listed(leaf.names) or f"an unnamed {leaf.kind}"
        fix = (
            "An earlier update made it so: look at the gradients of earlier steps, and at the learning rate."
            if leaf.kind == "parameter"
            else "Look at the data: NaN or Inf comes in with it."
        )
        return Found(f"the {leaf.kind} {who} has NaN or Inf", leaf.names or names, "", amount, fix, (at,))
    op = graph.nodes[at].op
    known = evidence.values.finite if evidence.values is not None else frozenset()
    inputs = [edge.producer for edge in graph.inputs(at)]
    finite = [i for i in inputs if i in known]
    made = first.made_by is not None
    why = (
        f"{title_and_code(graph, at)} {'made' if made else 'was given'} a tensor in which {amount}; no earlier value that is "
        "still held has any"
    )
    if inputs and len(finite) == len(inputs):
        why += f", and all that it was computed from is finite ({listed([_called(graph, i) for i in finite])})"
    elif made and inputs:
        why += "; what it was computed from is not all held, so it may have come in from there"
    return Found(
        f"{op} {'makes' if made else 'is given'} NaN or Inf in the forward pass",
        graph.nodes[at].names or names,
        place(graph, at),
        why,
        f"{_remedy(op)}.",
        (at,),
    )


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
        else "Look at the inputs of this operation for zeros and very large numbers"
    )
