"""How gradients flow through a graph: which nodes they come to, which path is the main
one, and which operations make NaN or Inf.

A side branch, such as the queries and keys of an attention or the inside of a residual
block, may have a small gradient: nothing hangs on it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import maker, makers, spread
from gradviz.graph import Graph, Node


def behind(graph: Graph, start: Iterable[int | None]) -> Iterator[int]:
    """The nodes that these lead to, they themselves among them."""
    nodes = (node for node in start if node is not None)
    return spread(nodes, lambda node: makers(graph, node))


# -- operations that make NaN or Inf ---------------------------------------------------

POLES = (
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
    "Sqrt": "keep what is under the root above zero: torch.sqrt(x.clamp(min=1e-12))",
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
    "Softmax": "leave one element of each row unmasked, mask with torch.finfo(scores.dtype).min instead of float('-inf'), or set "
    "such rows to zero afterwards with torch.nan_to_num",
    **dict.fromkeys(
        ("LinalgSlogdet", "LinalgDet", "LinalgInv", "LinalgCholesky", "LinalgSolve"),
        "keep the matrix from being singular: add a small multiple of the identity, a + 1e-4 * torch.eye(n)",
    ),
    "Where": "give the function a safe input where its result is not used, and choose twice: torch.where(keep, "
    "function(torch.where(keep, x, 1.0)), 0.0)",
}


# not every power
_BIRTHS = (
    *POLES[:-1],
    "LinalgSlogdet",
    "LinalgDet",
    "LinalgInv",
    "Sqrt",
    "Rsqrt",
    "Acos",
    "Asin",
)


def born(
    graph: Graph,
    node: int,
    finite: frozenset[int],
    poles: Collection[int] = (),
) -> int:
    """The operation with a pole behind this one, through results that nobody holds any
    more; else the node itself.

    `poles` are those that were given a number at which they have their pole, as far as
    that can be read: they come first.
    """
    likely = node

    def unread(place: int) -> list[int]:
        return [
            maker
            for maker in makers(graph, place)
            if maker not in finite and maker not in graph.leaf_of
        ]

    for place in spread([node], unread):
        if place in poles:
            return place
        record = graph.nodes[place]
        births = record.op.startswith(_BIRTHS) and not _by_a_number(record)
        if likely == node and births:
            likely = place
    return likely


def _by_a_number(record: Node) -> bool:
    """Whether a division is by a Python number, which is not zero: torch keeps it as a
    float64 beside a smaller type.
    """
    divisor = next(
        (saved.tensor for saved in record.saved if saved.slot == "other"), None
    )
    result = next(
        (output for output in record.outputs if output is not None),
        None,
    )
    is_number = (
        divisor is not None
        and result is not None
        and divisor.shape == ()
        and divisor.dtype != result.dtype
    )

    return record.op.startswith("Div") and is_number


_STEEP = (
    "Sqrt",
    "LinalgVectorNorm",
    "Norm",
    "Std",
    "Acos",
    "Asin",
    "Pow",
    "Div",
    "Log",
    "Where",
)
"""Operations whose gradient can be NaN or infinite although their result is finite, the
likeliest first.
"""


def suspect(graph: Graph) -> int | None:
    """The operation that is likeliest to have given a gradient that is not finite: a
    softmax of masked scores, or a steep one.
    """
    for node in graph.nodes:
        if node.op.startswith("Softmax") and any(
            graph.nodes[edge.producer].op.startswith("MaskedFill")
            for edge in graph.inputs(node.id)
        ):
            return node.id

    return next(
        (
            node.id
            for start in _STEEP
            for node in graph.nodes
            if node.op.startswith(start)
        ),
        None,
    )


_WHY = {
    "Sqrt": "the derivative of sqrt is infinite at 0 and NaN below it",
    "Rsqrt": "it is infinite at 0",
    "Log": "log of 0 is -inf, and log of a negative number is NaN",
    "Div": "its divisor has a zero",
    "Reciprocal": "it is infinite at 0",
    "Pow": "the derivative of a power below 1 is infinite at 0",
    "Exp": "exp overflows: above 88 in float32, above 11 in float16",
    "LinalgVectorNorm": "the derivative of a norm is not defined at 0",
    "Norm": "the derivative of a norm is not defined at 0",
    "Std": "the derivative of std is infinite where all values are equal",
    "Acos": "the derivative of acos is infinite at -1 and 1",
    "Asin": "the derivative of asin is infinite at -1 and 1",
    "Softmax": "a row whose elements are all masked with -inf gives 0 / 0",
    "LinalgSlogdet": "the determinant of a singular matrix is 0, and its logarithm minus infinity",
    **dict.fromkeys(
        ("LinalgDet", "LinalgInv", "LinalgCholesky", "LinalgSolve"),
        "a singular matrix has no inverse, and rounding decides the result",
    ),
    "LinalgEigh": "the gradient of eigenvectors divides by the differences of eigenvalues, and two are equal",
    "LinalgSvd": "the gradient of singular vectors divides by the differences of singular values, and two are equal",
}


def reason(
    graph: Graph,
    node: int,
    below: bool = False,
) -> str:
    """Why this operation gives NaN or Inf; "" where that is not known. A gradient that
    `where` has stopped is named.

    `below`: it was given numbers below zero, where it is not defined.
    """
    if below:
        return "it is not defined below zero, and was given such numbers"

    why = next(
        (
            text
            for start, text in _WHY.items()
            if graph.nodes[node].op.startswith(start)
        ),
        "",
    )
    if left_out(graph, node):
        why += f"{'; ' if why else ''}torch.where gives the branch that it leaves out a gradient of 0, and 0 times infinity is NaN"

    return why


def left_out(graph: Graph, node: int) -> bool:
    """Whether `torch.where` chooses between the result of an operation and another;
    that inside of logdet is torch's own.
    """
    chosen = any(
        graph.nodes[edge.consumer].op.startswith("Where")
        for edge in graph.consumers(node)
    )
    return chosen and not graph.nodes[node].op.startswith("LinalgSlogdet")


def remedy(
    op: str,
    half: bool = False,
    pole: bool = False,
) -> str:
    """What to do about an operation that gives NaN or Inf. `half`: in float16, which
    ends at 65504, and at 6e-8 at a `pole`.
    """
    if half and not pole:
        return (
            "Compute this part in float32, x.float(), or use torch.bfloat16 in place of torch.float16, with a torch.amp.GradScaler "
            "for the loss"
        )

    fix = next(
        (text for start, text in _REMEDY.items() if op.startswith(start)),
        "",
    )
    fix = re.sub(r"1e-\d+", "1e-4", fix) if half else fix
    if fix:
        return fix[:1].upper() + fix[1:]

    return (
        "Look at the inputs of this operation for zeros and very large numbers; if they grow from step to step, lower the "
        "learning rate, scale the inputs to about 1, or clip gradients"
    )


_OVERFLOWS = ("Exp", "Logsumexp", "Softmax", "LogSoftmax")


def remedy_of(context: BackwardCall, node: int) -> str:
    """What to do about an operation."""
    graph = context.graph
    source = maker(graph, node, ("ToCopy",))
    op, half = graph.nodes[node].op, _is_half(graph, node)
    small = source is not None and _is_half(graph, source)
    pole = not half or (node in context.poles and not op.startswith(_OVERFLOWS))
    chosen = pole and left_out(graph, node)
    return remedy("Where" if chosen else op, half or small, pole)


def _is_half(graph: Graph, node: int) -> bool:
    return any(
        output.dtype == "float16" for output in graph.nodes[node].outputs if output
    )
