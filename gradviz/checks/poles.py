"""Operations that make NaN or Inf, of values or of gradients: at which numbers, why,
and what to do. And the operation that has done so in a graph.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import kind, kind_of, makers, spread, users
from gradviz.graph import Graph

Where = Literal["below", "zero", "infinite", "edge", "NaN", "equal"]


class Pole(NamedTuple):
    """What is known of an operation: of a tensor in the `slot` that it has saved, the
    elements that are `at` this are at the pole.
    """

    slot: str
    at: Where
    why: str
    fix: str


_INVERTIBLE = "Keep the matrix from being singular: add a small multiple of the identity, a + 1e-4 * torch.eye(n)."
_POSITIVE = (
    "where it falls far below zero, torch.nn.functional.softplus(x) keeps it above"
)
_LOG = Pole(
    "self",
    "below",
    "log of 0 is -inf, and log of a negative number is NaN: it is not defined below zero",
    "Keep its input above zero: torch.log(x + 1e-6) (1e-4 in float16), where clamp(min=1e-6) would leave such elements without a "
    f"gradient; or use log_softmax, logsigmoid or xlogy; {_POSITIVE}.",
)
_ROOT = Pole(
    "result",
    "below",
    "the derivative of sqrt is infinite at 0, and below it is not defined",
    f"Keep what is under the root above zero: torch.sqrt(x.clamp(min=1e-6)); {_POSITIVE}.",
)
_NORM = Pole(
    "result",
    "below",
    "the derivative of a norm is not defined at 0",
    "Add a small number, or square the norm instead.",
)
_ARCUS = Pole(
    "self",
    "edge",
    "its derivative is infinite at -1 and 1",
    "Keep its input inside (-1, 1).",
)
_QUOTIENT = Pole(
    "other", "zero", "its divisor has a zero", "Keep the divisor away from zero."
)
_EXP = Pole(
    "result",
    "infinite",
    "exp overflows: above 88 in float32, above 11 in float16",
    "Keep its input small: subtract the maximum first, or use logsumexp or softmax.",
)
_SOFTMAX = Pole(
    "result",
    "NaN",
    "a row whose elements are all masked with -inf gives 0 / 0",
    "Leave one element of each row unmasked, mask with torch.finfo(scores.dtype).min instead of float('-inf'), or set such rows "
    "to zero afterwards with torch.nan_to_num.",
)

POLES: dict[str, Pole] = {
    "Sqrt": _ROOT,
    "Rsqrt": _ROOT._replace(at="infinite"),
    "Norm": _NORM,
    "LinalgVectorNorm": _NORM,
    "Std": Pole(
        "result",
        "below",
        "the derivative of std is infinite where all values are equal",
        "Add a small number to the variance.",
    ),
    **dict.fromkeys(("Log", "Log2", "Log10"), _LOG),
    "Pow": Pole(
        "self",
        "below",
        "the derivative of a power below 1 is infinite at 0",
        "Keep its base away from zero.",
    ),
    **dict.fromkeys(("Acos", "Asin", "Atanh"), _ARCUS),
    "Div": _QUOTIENT,
    "Reciprocal": _QUOTIENT._replace(slot="result", at="infinite"),
    **dict.fromkeys(("Exp", "Expm1", "Logsumexp"), _EXP),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _SOFTMAX),
    "LinalgEigh": Pole(
        "eigenvalues",
        "equal",
        "the gradient of eigenvectors divides by the differences of eigenvalues, and two are equal",
        _INVERTIBLE,
    ),
    "LinalgSvd": Pole(
        "S",
        "equal",
        "the gradient of singular vectors divides by the differences of singular values, and two are equal",
        _INVERTIBLE,
    ),
}
"""By the kind of operation."""


def pole_of(op: str) -> Pole | None:
    """What is known of an operation."""
    return POLES.get(kind_of(op))


def not_finite_behind(context: BackwardCall, node: int) -> list[int]:
    """A node, and what lies behind it through results that are not known to be finite."""
    graph, values = context.graph, context.values
    finite = values.finite if values is not None else frozenset[int]()
    behind = spread(
        [node],
        lambda place: [maker for maker in makers(graph, place) if maker not in finite],
    )
    return list(behind)


def culprit(context: BackwardCall, node: int) -> int:
    """The operation at its pole behind a node; else the node itself."""
    behind = not_finite_behind(context, node)
    return next((place for place in behind if place in context.poles), node)


def explained(graph: Graph, node: int) -> tuple[str, str]:
    """Why an operation gives NaN or Inf, "" where that is not known, and what to do. A
    gradient that `where` has stopped is named.
    """
    pole = pole_of(graph.ops[node])
    why, fix = "", UNKNOWN
    if pole is not None:
        why, fix = pole.why, pole.fix
    takers = {kind(graph, user) for user in users(graph, node)}
    if "Where" not in takers:
        return why, fix
    return "; ".join(filter(None, (why, _LEFT_OUT))), _WHERE


_LEFT_OUT = "torch.where gives the branch that it leaves out a gradient of 0, and 0 times infinity is NaN"
_WHERE = (
    "Give the function a safe input where its result is not used, and choose twice: torch.where(keep, "
    "function(torch.where(keep, x, 1.0)), 0.0)."
)
UNKNOWN = (
    "Look at the inputs of this operation for zeros and very large numbers; if they grow from step to step, lower the learning "
    "rate, scale the inputs to about 1, or clip gradients. In float16, which ends at 65504, compute this part in float32, "
    "x.float()."
)
