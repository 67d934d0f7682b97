"""Where NaN and Inf are born: the operations that make them of finite numbers, and what to do about each.

Knows graphs and names of operations only; which values are wrong is found elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnosis
from gradviz.checks.words import as_code, line, listed
from gradviz.graph import Graph, Node
from gradviz.source.search import lines_behind
from gradviz.walker.values import Value
from gradviz.wording import plural

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

GROWN = 1e3
"""A loss that ends at more than this multiple of its least value did not fall, but diverge."""

LARGE = 10.0
"""Inputs above this are called large: layers are initialised for inputs of about 1."""


def diverged(context: CheckContext) -> bool:
    """Whether the losses before this call grew from step to step."""
    losses = [abs(value) for _, value in context.losses if math.isfinite(value)]
    return len(losses) > 1 and losses[-1] > GROWN * max(min(losses), 1e-30) and losses[-1] > losses[0]


def from_the_update(context: CheckContext, bad: Sequence[Value]) -> Diagnosis:
    """Updates have made parameters NaN or infinite, or so large that the loss is: the steps are too large."""
    names = tuple(dict.fromkeys(name for value in bad for name in value.names[:1]))
    have = "has" if len(names) == 1 else "have"
    why = (
        f"{listed(names)} {have} NaN or Inf since the update before this call"
        if names
        else "the parameters have grown too large"
    )
    losses = [loss for loss in context.losses if math.isfinite(loss[1])]
    if len(losses) > 1:
        (first, begin), (last, end) = losses[0], losses[-1]
        why += f"; the loss was {begin:.4g} at call {first} and {end:.4g} at call {last}, before it was {context.loss}"
    else:
        why += "; the gradient of that step overflowed, or the step was too large"
    maker = next((optimizer.source for optimizer in context.optimizers if optimizer.source is not None), None)
    # `maker` is the line with the learning rate
    source = context.backward if maker is None or _largest(context) > LARGE else maker
    what = f"an update has made {plural(len(names), 'parameter')} NaN or infinite" if names else "the loss diverges"
    return Diagnosis(
        f"{what}: the steps are too large",
        names or tuple(name for leaf in context.graph.leaves if leaf.kind == "parameter" for name in leaf.names[:1]),
        line(source),
        why,
        _fix(context),
        tuple(value.made_by for value in bad if value.made_by is not None),
        source=source,
    )


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
    if largest > LARGE:
        return (
            f"Scale the inputs to about 1{_input(context)}: the largest number among them is {largest:.4g}. "
            "Else lower the learning rate, tenfold at a time."
        )
    return (
        "Lower the learning rate, tenfold at a time, until the loss falls; torch.nn.utils.clip_grad_norm_(parameters, 1.0) before "
        "step() bounds single steps that are too large."
    )
