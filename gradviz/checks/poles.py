"""Operations that make NaN or Inf of finite numbers, or of finite gradients: which do so in a graph, why, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from gradviz.graph import Graph, Node
from gradviz.walker.private import Node as LiveNode, without_subclasses
from gradviz.walker.values import tensor_in, why_unreadable

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
    "Softmax": "leave one element of each row unmasked, mask with torch.finfo(scores.dtype).min instead of float('-inf'), or set "
    "such rows to zero afterwards with torch.nan_to_num",
    **dict.fromkeys(
        ("LinalgSlogdet", "LinalgDet", "LinalgInv", "LinalgCholesky", "LinalgSolve"),
        "keep the matrix from being singular: add a small multiple of the identity, a + 1e-4 * torch.eye(n)",
    ),
    "Where": "torch.where does not protect the branch it leaves out: make both branches finite",
}


_BIRTHS = (
    *(op for op in POLES if op != "PowBackward"),
    "LinalgSlogdet",
    "LinalgDet",
    "LinalgInv",
    "Sqrt",
    "Rsqrt",
    "Acos",
    "Asin",
)


_UNLIKE = {"truediv": "Div", "div_": "Div", "norm": "LinalgVectorNorm", "linalg_norm": "LinalgVectorNorm"}


def function(record: Node) -> str:
    """The backward function that a node is; for a part of a compiled function, that of the call in eager code.

    >>> function(Node(0, "aten.div", attributes={"gradient of": "log_softmax"}))
    'LogSoftmaxBackward0'
    """
    called = str(record.attributes.get("gradient of", ""))
    if not called:
        return record.op
    return f"{_UNLIKE.get(called) or ''.join(part.capitalize() for part in called.split('_'))}Backward0"


def born(graph: Graph, node: int, finite: frozenset[int]) -> int:
    """The operation with a pole behind this one, through results that nobody holds any more; else the node itself."""
    waiting, seen = [node], {node}
    while waiting:
        at = waiting.pop(0)
        if function(graph.nodes[at]).startswith(_BIRTHS):
            return at
        behind = [edge.producer for edge in graph.inputs(at) if edge.producer not in finite]
        waiting += [
            producer for producer in dict.fromkeys(behind) if producer not in seen and producer not in graph.leaf_of
        ]
        seen.update(behind)
    return node


_STEEP = ("Sqrt", "LinalgVectorNorm", "Norm", "Std", "Acos", "Asin", "Pow", "Div", "Log", "Where")
"""Operations whose gradient can be NaN or infinite although their result is finite, the likeliest first."""


def suspect(graph: Graph) -> int | None:
    """The operation that is likeliest to have given a gradient that is not finite: a softmax of masked scores, or a steep one."""
    for node in graph.nodes:
        if function(node).startswith("Softmax") and any(
            function(graph.nodes[edge.producer]).startswith("MaskedFill") for edge in graph.inputs(node.id)
        ):
            return node.id
    return next((node.id for start in _STEEP for node in graph.nodes if function(node).startswith(start)), None)


_WHY = {
    "Sqrt": "the slope of a square root is infinite at 0",
    "Rsqrt": "it is infinite at 0",
    "Log": "the logarithm of 0 is minus infinity, and that of less is NaN",
    "Div": "its divisor has a zero",
    "Reciprocal": "it is infinite at 0",
    "Pow": "a power below 1 has an infinite slope at 0",
    "Exp": "it overflows: float32 ends at exp(88), float16 at exp(11)",
    "LinalgVectorNorm": "the slope of a norm is not defined at 0",
    "Norm": "the slope of a norm is not defined at 0",
    "Std": "its slope is infinite where all values are equal",
    "Acos": "its slope is infinite at -1 and 1",
    "Asin": "its slope is infinite at -1 and 1",
    "Softmax": "a row of which every element is masked with infinity has no largest element: 0 / 0",
    "LinalgSlogdet": "the determinant of a singular matrix is 0, and its logarithm minus infinity",
    **dict.fromkeys(
        ("LinalgDet", "LinalgInv", "LinalgCholesky", "LinalgSolve"),
        "a singular matrix has no inverse, and rounding decides what comes",
    ),
    "LinalgEigh": "the gradient of eigenvectors divides by the differences of eigenvalues, and two are equal",
    "LinalgSvd": "the gradient of singular vectors divides by the differences of singular values, and two are equal",
}


def reason(graph: Graph, node: int) -> str:
    """Why this operation gives NaN or Inf; "" where that is not known. A gradient that `where` has stopped is named."""
    why = next((text for start, text in _WHY.items() if function(graph.nodes[node]).startswith(start)), "")
    if left_out(graph, node):
        why += f"{'; ' if why else ''}torch.where gives the branch that it leaves out a gradient of 0, and 0 times infinity is NaN"
    return why


def left_out(graph: Graph, node: int) -> bool:
    """Whether `torch.where` chooses between the result of an operation and another; that inside of logdet is torch's own."""
    chosen = any(function(graph.nodes[edge.consumer]).startswith("Where") for edge in graph.consumers(node))
    return chosen and not function(graph.nodes[node]).startswith("LinalgSlogdet")


def remedy(op: str, half: bool = False) -> str:
    """What to do about an operation that gives NaN or Inf. `half`: its result is a float16, which ends at 65504."""
    if half:
        return (
            "Compute this part in float32, x.float(), or use torch.bfloat16 in place of torch.float16, with a torch.amp.GradScaler "
            "for the loss"
        )
    known = next((text for start, text in _REMEDY.items() if op.startswith(start)), "")
    return (
        known[:1].upper() + known[1:]
        if known
        else "Look at the inputs of this operation for zeros and very large numbers; if they grow from step to step, lower the "
        "learning rate, scale the inputs to about 1, or clip gradients"
    )


# Losses and parameters that grow from step to step until they overflow: the steps are too large. Knows the losses of
# the run, and no operation.


_Test = Callable[[torch.Tensor], Any]


def _zero(x: torch.Tensor) -> Any:
    return (x == 0).any()


def _not_positive(x: torch.Tensor) -> Any:
    return (x <= 0).any()


def _at_one(x: torch.Tensor) -> Any:
    return (x.abs() >= 1).any()


def _not_finite(x: torch.Tensor) -> Any:
    return ~torch.isfinite(x).all()


def _nan(x: torch.Tensor) -> Any:
    return torch.isnan(x).any()


def _equal(x: torch.Tensor) -> Any:
    return (x.diff(dim=-1) == 0).any()


_POLES: dict[str, tuple[str, _Test]] = {
    "SqrtBackward": ("result", _zero),
    "RsqrtBackward": ("result", _not_finite),
    "LogBackward": ("self", _not_positive),
    "Log2Backward": ("self", _not_positive),
    "Log10Backward": ("self", _not_positive),
    "Log1PBackward": ("self", lambda x: (x <= -1).any()),
    "DivBackward": ("other", _zero),
    "ReciprocalBackward": ("result", _not_finite),
    "ExpBackward": ("result", _not_finite),
    "Expm1Backward": ("result", _not_finite),
    "AcosBackward": ("self", _at_one),
    "AsinBackward": ("self", _at_one),
    "AtanhBackward": ("self", _at_one),
    "AcoshBackward": ("self", lambda x: (x <= 1).any()),
    "Atan2Backward": ("self", _zero),
    "StdBackward": ("result", _zero),
    "NormBackward": ("result", _zero),
    "LinalgVectorNormBackward": ("result", _zero),
    "SoftmaxBackward": ("result", _nan),
    "LogSoftmaxBackward": ("result", _nan),
    "LogsumexpBackward": ("result", _not_finite),
    "LinalgEighBackward": ("eigenvalues", _equal),
    "LinalgSvdBackward": ("S", _equal),
    "XlogyBackward": ("other", _zero),
}
"""By the name of the operation: what it has saved, and when that is a pole."""


def at_a_pole(nodes: Iterable[LiveNode]) -> bool:
    """Whether one of these nodes stands where its gradient may not be finite, although the values are."""
    with without_subclasses(), torch.no_grad():
        return any(_is_at_a_pole(node) for node in nodes)


def _is_at_a_pole(node: LiveNode) -> bool:
    name = type(node).__name__.rstrip("0123456789").lstrip("_")
    slot, test = ("self", _not_positive) if name == "PowBackward" else _POLES.get(name, ("", _zero))
    if not slot or (name == "PowBackward" and not _steep_power(node)):
        return False
    try:
        tensor = tensor_in(node, slot)
        if tensor is None or not tensor.dtype.is_floating_point or tensor.is_nested or why_unreadable(tensor):
            return False
        return bool(test(tensor.detach()))
    except Exception:  # freed meanwhile, or a class of tensors that refuses
        return False


def _steep_power(node: LiveNode) -> bool:
    exponent = getattr(node, "_saved_exponent", None)
    return not isinstance(exponent, (int, float)) or exponent < 1
