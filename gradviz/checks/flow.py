"""How gradients flow through a graph: which nodes they come to, which path is the main
one, and which operations make NaN or Inf.

A side branch, such as the queries and keys of an attention or the inside of a residual
block, may have a small gradient: nothing hangs on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from gradviz.checks.ops import makers, spread
from gradviz.gradients.values import tensor_in, why_unreadable
from gradviz.graph import Graph, Node
from gradviz.graph.amounts import known_elements
from gradviz.walker.isolation import unrecorded
from gradviz.walker.private import Node as LiveNode
from gradviz.walker.tensors import answers_itself, is_plain
from gradviz.wording import plural


def behind(
    graph: Graph,
    start: Iterable[int | None],
    without: Collection[int] = (),
) -> Iterator[int]:
    """The nodes that these lead to, they themselves among them. Ways end at nodes that
    are to be left `without`.
    """
    known = (node for node in start if node is not None)
    return spread(
        known, lambda node: makers(graph, node) if node not in without else ()
    )


def from_outputs(
    graph: Graph,
    without: Collection[int] = (),
) -> Collection[int]:
    """The nodes that backward comes to, where it ends at some: those that a gradient
    other than zero may reach.
    """
    return dict.fromkeys(behind(graph, (root.node for root in graph.roots), without))


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

    def unknown(at: int) -> list[int]:
        return [
            maker
            for maker in makers(graph, at)
            if maker not in finite and maker not in graph.leaf_of
        ]

    for at in spread([node], unknown):
        if at in poles:
            return at
        if (
            likely == node
            and graph.nodes[at].op.startswith(_BIRTHS)
            and not _by_a_number(graph.nodes[at])
        ):
            likely = at
    return likely


def _by_a_number(record: Node) -> bool:
    """Whether a division is by a Python number, which is not zero: torch keeps it as a
    float64 beside a smaller type.
    """
    divisor = next(
        (saved.tensor for saved in record.saved if saved.slot == "other"), None
    )
    made = next(
        (output for output in record.outputs if output is not None),
        None,
    )
    known = (
        divisor is not None
        and made is not None
        and divisor.shape == ()
        and divisor.dtype != made.dtype
    )

    return record.op.startswith("Div") and known


def too_few(record: Node) -> int | None:
    """How many numbers a standard deviation or variance was taken of, where it divides
    by zero or less for that; else None.
    """
    given = next(
        (saved.tensor for saved in record.saved if saved.slot == "self"),
        None,
    )
    if given is None or given.shape is None or not record.op.startswith(("Std", "Var")):
        return None

    dimensions = record.attributes.get("dim")
    if isinstance(dimensions, tuple):
        given = given._replace(
            shape=tuple(given.shape[dimension] for dimension in dimensions)
        )

    count = known_elements(given)
    return count if count <= correction_of(record) else None


def correction_of(record: Node) -> float:
    """What a standard deviation or variance takes off the count that it divides by: 1
    unless something else was asked for.
    """
    correction = record.attributes.get("correction")
    return float(correction) if isinstance(correction, (int, float)) else 1


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
    few = too_few(graph.nodes[node])
    if few is not None:
        return f"over {plural(few, 'element')} it is 0 / 0: it divides by the count less {correction_of(graph.nodes[node]):g}"
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

    known = next(
        (text for start, text in _REMEDY.items() if op.startswith(start)),
        "",
    )
    known = re.sub(r"1e-\d+", "1e-4", known) if half else known
    if known:
        return known[:1].upper() + known[1:]

    return (
        "Look at the inputs of this operation for zeros and very large numbers; if they grow from step to step, lower the "
        "learning rate, scale the inputs to about 1, or clip gradients"
    )


_Test = tuple[str, Callable[[torch.Tensor], Any]]
_TESTS: dict[tuple[str, ...], _Test] = {
    ("Sqrt", "Std", "Norm", "LinalgVectorNorm"): ("result", lambda x: (x == 0).any()),
    ("Rsqrt", "Reciprocal", "Exp", "Expm1", "Logsumexp"): (
        "result",
        lambda x: ~torch.isfinite(x).all(),
    ),
    ("Softmax", "LogSoftmax"): ("result", lambda x: torch.isnan(x).any()),
    ("Log", "Log2", "Log10", "Pow"): ("self", lambda x: (x <= 0).any()),
    ("Log1P",): ("self", lambda x: (x <= -1).any()),
    ("Acosh",): ("self", lambda x: (x <= 1).any()),
    ("Acos", "Asin", "Atanh"): ("self", lambda x: (x.abs() >= 1).any()),
    ("Atan2",): ("self", lambda x: (x == 0).any()),
    ("Div", "Xlogy"): ("other", lambda x: (x == 0).any()),
    ("LinalgEigh",): ("eigenvalues", lambda x: (x.diff(dim=-1) == 0).any()),
    ("LinalgSvd",): ("S", lambda x: (x.diff(dim=-1) == 0).any()),
}
"""What operations have saved when that is a pole, by the operations."""
_SAVED_AT = {
    f"{name}Backward": test for names, test in _TESTS.items() for name in names
}
_BELOW_ZERO: dict[str, _Test] = {
    **dict.fromkeys(
        ("LogBackward", "Log2Backward", "Log10Backward"),
        ("self", lambda x: (x < 0).any()),
    ),
    **dict.fromkeys(
        ("SqrtBackward", "RsqrtBackward"), ("result", lambda x: torch.isnan(x).any())
    ),
}
"""The same for operations that are not defined below zero, when they were given such
numbers.
"""


def at_a_pole(nodes: Iterable[LiveNode]) -> bool:
    """Whether one of these nodes stands where its gradient may not be finite, although
    the values are.
    """
    with unrecorded():
        return any(_is_at_a_pole(node) for node in nodes)


def _only_zeros(y: torch.Tensor) -> bool:
    # of most tensors, the first few say that they are not
    return not y.flatten()[:64].any() and not y.any()


def all_zero(
    leaves: Mapping[int, torch.Tensor],
) -> tuple[int, ...]:
    """The keys of the matrices whose elements are all zero."""
    with unrecorded():
        matrices = {
            key: leaf.detach()
            for key, leaf in leaves.items()
            if is_plain(leaf) and leaf.dim() > 1
        }
        return tuple(
            key
            for key, leaf in matrices.items()
            if not why_unreadable(leaf) and _only_zeros(leaf)
        )


def all_at_a_pole(nodes: Sequence[LiveNode]) -> dict[int, bool]:
    """The places of all such nodes in a row of them, and whether they were given
    numbers below zero, where they are not defined.
    """
    with unrecorded():
        below = [i for i, node in enumerate(nodes) if _has_saved(node, _BELOW_ZERO)]
        poles = [i for i, node in enumerate(nodes) if _is_at_a_pole(node)]
    return {
        **dict.fromkeys(poles, False),
        **dict.fromkeys(below, True),
    }


def _is_at_a_pole(node: LiveNode) -> bool:
    if "PowBackward" in type(node).__name__:
        exponent = getattr(node, "_saved_exponent", None)
    else:
        exponent = None
    return not (isinstance(exponent, (int, float)) and exponent >= 1) and _has_saved(
        node, _SAVED_AT
    )


def _has_saved(node: LiveNode, tests: Mapping[str, _Test]) -> bool:
    """Whether what a node has saved passes the test for its kind."""
    slot, test = tests.get(
        type(node).__name__.rstrip("0123456789").lstrip("_"), ("", None)
    )
    if test is None:
        return False

    try:
        tensor = tensor_in(node, slot)
        if tensor is None or tensor.is_nested:
            return False
        if answers_itself(tensor) or why_unreadable(tensor):
            return False
        return bool(test(tensor.detach()))
    except Exception:  # freed meanwhile, or a class of tensors that refuses
        return False
