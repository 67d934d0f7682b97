"""The formulas: one row for each backward function, in one notation
(`gradviz.formulas.notation`).

`g` is the gradient that arrives, `out` the result of the forward op. Where an input was
broadcast, its gradient is summed over the dimensions in which it was repeated; no row
repeats that. Every row is checked against torch, number by number, in `tests/formulas`.
Derivatives: https://docs.pytorch.org/docs/stable/notes/autograd.html.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Dims = Literal["each", "dim", "all", "rows", "shape"]
"""Which elements of an input one element of the result is computed from."""
MIXES: dict[Dims, str] = {
    "each": "each element of the result is computed from the elements at the same place",
    "dim": "mixes elements along dim; other dimensions stay independent",
    "all": "all elements are combined into one number",
    "rows": "each output row is one input row times the matrix",
    "shape": "elements are moved, repeated or left out; none is changed",
}


class Formula(NamedTuple):
    """One op. `gradients` has an expression for each input that may receive a gradient,
    in the order of the op's inputs.

    `code` is what a user writes, `terms` are abbreviations that the gradients use,
    `note` is what the notation cannot say.
    """

    op: str
    code: str
    result: str
    gradients: Mapping[str, str]
    dims: Dims = "each"
    terms: Mapping[str, str] = {}
    note: str = ""


def _one(
    op: str, code: str, result: str, gradient: str, dims: Dims = "each", note: str = ""
) -> Formula:
    return Formula(op, code, result, {"x": gradient}, dims, note=note)


_BACK = "like(g, x)"  # in the shape of x
_PLACED = "placed(g, x)"  # zeros in the shape of x, with g where the elements came from
_INDEXED = "placed(g, x, index)"  # the same, where a tensor says the places
_REPEATED = "repeated(g, x)"
_HAT = {"h": "(x - m) * r"}
_NORM_NOTE = "m and r are the mean of x and 1 / sqrt(variance + eps)"
_NORMED = {"w": "sum_to(g * h, w)", "b": "sum_to(g, b)"}

FORMULAS: tuple[Formula, ...] = (
    Formula("AddBackward0", "x + y", "x + y", {"x": "g", "y": "g"}),
    Formula("SubBackward0", "x - y", "x - y", {"x": "g", "y": "-g"}),
    Formula("MulBackward0", "x * y", "x * y", {"x": "g * y", "y": "g * x"}),
    Formula("DivBackward0", "x / y", "x / y", {"x": "g / y", "y": "-g * x / y**2"}),
    _one("NegBackward0", "-x", "-x", "-g"),
    _one("PowBackward0", "x ** p", "x**p", "g * p * x**(p - 1)"),
    Formula(
        "PowBackward1",
        "x ** y",
        "x**y",
        {"x": "g * y * x**(y - 1)", "y": "g * out * log(x)"},
    ),
    _one("ExpBackward0", "x.exp()", "exp(x)", "g * out"),
    _one("LogBackward0", "x.log()", "log(x)", "g / x"),
    _one("Log1PBackward0", "torch.log1p(x)", "log(1 + x)", "g / (1 + x)"),
    _one("SqrtBackward0", "x.sqrt()", "sqrt(x)", "g / (2 * out)"),
    _one("RsqrtBackward0", "x.rsqrt()", "1 / sqrt(x)", "-g * out**3 / 2"),
    _one("ReciprocalBackward0", "1 / x", "1 / x", "-g * out**2"),
    _one("SinBackward0", "x.sin()", "sin(x)", "g * cos(x)"),
    _one("CosBackward0", "x.cos()", "cos(x)", "-g * sin(x)"),
    _one("AbsBackward0", "x.abs()", "abs(x)", "g * sign(x)"),
    _one("TanhBackward0", "x.tanh()", "tanh(x)", "g * (1 - out**2)"),
    _one("SigmoidBackward0", "x.sigmoid()", "sigmoid(x)", "g * out * (1 - out)"),
    _one("ErfBackward0", "torch.erf(x)", "erf(x)", "g * 2 / sqrt(pi) * exp(-x**2)"),
    _one("ReluBackward0", "F.relu(x)", "max(x, 0)", "g * (out > 0)"),
    _one(
        "LeakyReluBackward0",
        "F.leaky_relu(x, slope)",
        "where(x > 0, x, slope * x)",
        "where(x > 0, g, slope * g)",
    ),
    _one(
        "EluBackward0",
        "F.elu(x)",
        "where(x > 0, x, exp(x) - 1)",
        "where(x > 0, g, g * exp(x))",
    ),
    _one(
        "SiluBackward0",
        "F.silu(x)",
        "x * sigmoid(x)",
        "g * sigmoid(x) * (1 + x * (1 - sigmoid(x)))",
    ),
    Formula(
        "GeluBackward0",
        "F.gelu(x)",
        "x * P",
        {"x": "g * (P + x * exp(-x**2 / 2) / sqrt(2 * pi))"},
        terms={"P": "(1 + erf(x / sqrt(2))) / 2"},
    ),
    _one("SoftplusBackward0", "F.softplus(x)", "log(1 + exp(x))", "g * sigmoid(x)"),
    _one(
        "LogSigmoidBackward0", "F.logsigmoid(x)", "-log(1 + exp(-x))", "g * sigmoid(-x)"
    ),
    _one(
        "ClampBackward1",
        "x.clamp(low, high)",
        "min(max(x, low), high)",
        "where((low <= x) & (x <= high), g, 0)",
    ),
    Formula(
        "MaximumBackward0",
        "torch.maximum(x, y)",
        "max(x, y)",
        {"x": "g * (x > y)", "y": "g * (y > x)"},
        note="where both are equal, each receives half",
    ),
    Formula(
        "MinimumBackward0",
        "torch.minimum(x, y)",
        "min(x, y)",
        {"x": "g * (x < y)", "y": "g * (y < x)"},
        note="where both are equal, each receives half",
    ),
    Formula(
        "WhereBackward0",
        "torch.where(c, x, y)",
        "where(c, x, y)",
        {"x": "where(c, g, 0)", "y": "where(c, 0, g)"},
    ),
    _one(
        "MaskedFillBackward0",
        "x.masked_fill(mask, v)",
        "where(mask, v, x)",
        "where(mask, 0, g)",
    ),
    _one(
        "NativeDropoutBackward0",
        "F.dropout(x, p)",
        "x * mask / (1 - p)",
        "g * mask / (1 - p)",
    ),
    _one("CloneBackward0", "x.clone()", "x", "g"),
    _one(
        "ToCopyBackward0",
        "x.to(dtype)",
        "cast(x, out)",
        "cast(g, x)",
        note="the gradient has the dtype of x again",
    ),
    # softmax
    _one(
        "SoftmaxBackward0",
        "x.softmax(dim)",
        "exp(x) / sum(exp(x), dim)",
        "out * (g - sum(g * out, dim))",
        "dim",
    ),
    _one(
        "LogSoftmaxBackward0",
        "x.log_softmax(dim)",
        "x - log(sum(exp(x), dim))",
        "g - exp(out) * sum(g, dim)",
        "dim",
    ),
    _one(
        "LogsumexpBackward0",
        "x.logsumexp(dim)",
        "log(sum(exp(x), dim))",
        "g * exp(x - out)",
        "dim",
    ),
    # reductions
    _one("SumBackward0", "x.sum()", "sum(x)", _REPEATED, "all"),
    _one("SumBackward1", "x.sum(dim)", "sum(x, dim)", _REPEATED, "dim"),
    _one("MeanBackward0", "x.mean()", "sum(x) / n", "repeated(g, x) / n", "all"),
    _one(
        "MeanBackward1", "x.mean(dim)", "sum(x, dim) / n", "repeated(g, x) / n", "dim"
    ),
    _one("ProdBackward0", "x.prod()", "prod(x)", "g * out / x", "all"),
    _one(
        "VarBackward0",
        "x.var(dim)",
        "sum((x - mean(x, dim))**2, dim) / (n - 1)",
        "g * 2 * (x - mean(x, dim)) / (n - 1)",
        "dim",
    ),
    _one(
        "StdBackward0",
        "x.std(dim)",
        "sqrt(sum((x - mean(x, dim))**2, dim) / (n - 1))",
        "g * (x - mean(x, dim)) / ((n - 1) * out)",
        "dim",
    ),
    _one(
        "MaxBackward0",
        "x.max(dim)",
        "max(x, dim)",
        _INDEXED,
        "dim",
        "only the largest element receives a gradient",
    ),
    _one(
        "MaxBackward1",
        "x.max()",
        "max(x)",
        "g * (x == out)",
        "all",
        "equal largest elements share the gradient",
    ),
    _one(
        "AmaxBackward0",
        "x.amax(dim)",
        "max(x, dim)",
        "g * (x == out)",
        "dim",
        "equal largest elements share the gradient",
    ),
    _one(
        "LinalgVectorNormBackward0", "x.norm()", "sqrt(sum(x**2))", "g * x / out", "all"
    ),
    _one(
        "CumsumBackward0",
        "x.cumsum(dim)",
        "cumsum(x, dim)",
        "flip(cumsum(flip(g, dim), dim), dim)",
        "dim",
    ),
    # products of matrices
    Formula(
        "MmBackward0", "x @ y", "x @ y", {"x": "g @ T(y)", "y": "T(x) @ g"}, "rows"
    ),
    Formula(
        "BmmBackward0", "x @ y", "x @ y", {"x": "g @ T(y)", "y": "T(x) @ g"}, "rows"
    ),
    Formula(
        "AddmmBackward0",
        "F.linear(x, T(w), b)",
        "b + x @ w",
        {"b": "sum_to(g, b)", "x": "g @ T(w)", "w": "T(x) @ g"},
        "rows",
    ),
    Formula(
        "BaddbmmBackward0",
        "torch.baddbmm(b, x, y)",
        "b + x @ y",
        {"b": "sum_to(g, b)", "x": "g @ T(y)", "y": "T(x) @ g"},
        "rows",
    ),
    Formula(
        "MvBackward0", "x @ v", "x @ v", {"x": "outer(g, v)", "v": "T(x) @ g"}, "rows"
    ),
    Formula("DotBackward0", "x @ y", "sum(x * y)", {"x": "g * y", "y": "g * x"}, "all"),
    Formula(
        "ScaledDotProductFlashAttentionForCpuBackward0",
        "F.scaled_dot_product_attention(q, k, v)",
        "P @ v",
        {"q": "s * D @ k", "k": "s * T(D) @ q", "v": "T(P) @ g"},
        "rows",
        {"P": "softmax(s * q @ T(k))", "D": "P * (g @ T(v) - sum(g * out, -1))"},
        "s is 1 / sqrt(the last size of q)",
    ),
    # layers
    Formula(
        "ConvolutionBackward0",
        "F.conv2d(x, w, b)",
        "conv(x, w, b)",
        {"x": "conv_transpose(g, w)", "w": "conv_weight(x, g)", "b": "sum_to(g, b)"},
        "rows",
    ),
    Formula(
        "NativeBatchNormBackward0",
        "nn.BatchNorm2d",
        "h * w + b",
        {"x": "w * r * (g - mean(g, dim) - h * mean(g * h, dim))", **_NORMED},
        "dim",
        _HAT,
        _NORM_NOTE
        + "; they are taken over the batch and all positions, so samples of a batch mix in train()",
    ),
    Formula(
        "NativeLayerNormBackward0",
        "F.layer_norm(x, shape, w, b)",
        "h * w + b",
        {"x": "r * (g * w - mean(g * w, dim) - h * mean(g * w * h, dim))", **_NORMED},
        "dim",
        _HAT,
        _NORM_NOTE,
    ),
    _one(
        "MaxPool2DWithIndicesBackward0",
        "F.max_pool2d(x, k)",
        "max_pool(x)",
        _INDEXED,
        "dim",
        "only the largest of each window receives a gradient",
    ),
    _one(
        "AvgPool2DBackward0",
        "F.avg_pool2d(x, k)",
        "avg_pool(x)",
        "upsample(g) / k**2",
        "dim",
        "torch keeps x, although only its shape is needed",
    ),
    _one(
        "UpsampleNearest2DBackward0",
        "F.interpolate(x)",
        "upsample(x)",
        "avg_pool(g) * k**2",
        "shape",
    ),
    # losses
    Formula(
        "MseLossBackward0",
        "F.mse_loss(x, y)",
        "sum((x - y)**2) / n",
        {"x": "g * 2 * (x - y) / n", "y": "g * 2 * (y - x) / n"},
        "all",
    ),
    Formula(
        "SmoothL1LossBackward0",
        "F.smooth_l1_loss(x, y)",
        "sum(where(abs(x - y) < 1, (x - y)**2 / 2, abs(x - y) - 1 / 2)) / n",
        {"x": "g * min(max(x - y, -1), 1) / n", "y": "g * min(max(y - x, -1), 1) / n"},
        "all",
    ),
    _one(
        "NllLossBackward0",
        "F.nll_loss(x, target)",
        "-sum(picked(x, target)) / n",
        "-g / n * one_hot(target, x)",
        "all",
    ),
    _one(
        "BinaryCrossEntropyBackward0",
        "F.binary_cross_entropy(x, y)",
        "-sum(y * log(x) + (1 - y) * log(1 - x)) / n",
        "g * (x - y) / (x * (1 - x)) / n",
        "all",
    ),
    _one(
        "BinaryCrossEntropyWithLogitsBackward0",
        "F.binary_cross_entropy_with_logits(x, y)",
        "sum(log(1 + exp(x)) - x * y) / n",
        "g * (sigmoid(x) - y) / n",
        "all",
    ),
    # shapes, views and picking
    _one("TBackward0", "x.t()", "T(x)", "T(g)", "shape"),
    _one(
        "TransposeBackward0",
        "x.transpose(i, j)",
        "transpose(x, i, j)",
        "transpose(g, i, j)",
        "shape",
    ),
    _one(
        "PermuteBackward0",
        "x.permute(order)",
        "permute(x, order)",
        "unpermute(g, order)",
        "shape",
    ),
    *(
        _one(op, code, "like(x, out)", _BACK, "shape")
        for op, code in (
            ("ViewBackward0", "x.view(shape)"),
            ("UnsafeViewBackward0", "inside x @ y"),
            ("SqueezeBackward1", "x.squeeze(dim)"),
            ("UnsqueezeBackward0", "x.unsqueeze(dim)"),
        )
    ),
    _one(
        "ExpandBackward0",
        "x.expand(shape)",
        "repeated(x, out)",
        "sum_to(g, x)",
        "shape",
    ),
    *(
        _one(
            op,
            code,
            "picked(x, index)",
            gradient,
            "shape",
            "elements that were not picked receive zero",
        )
        for op, code, gradient in (
            ("SliceBackward0", "x[1:3]", _PLACED),
            ("SelectBackward0", "x[1]", _PLACED),
            ("IndexBackward0", "x[index]", _INDEXED),
            ("IndexSelectBackward0", "x.index_select(dim, index)", _INDEXED),
            ("GatherBackward0", "x.gather(dim, index)", _INDEXED),
        )
    ),
    Formula(
        "EmbeddingBackward0",
        "F.embedding(index, w)",
        "picked(w, index)",
        {"w": "placed(g, w, index)"},
        "shape",
        note="a row that was picked twice receives the sum",
    ),
    Formula(
        "CatBackward0",
        "torch.cat([x, y])",
        "cat(x, y)",
        {"x": "first(g, x)", "y": "rest(g, x)"},
        "shape",
    ),
    Formula(
        "StackBackward0",
        "torch.stack([x, y])",
        "stack(x, y)",
        {"x": "first(g, x)", "y": "rest(g, x)"},
        "shape",
    ),
)

FORMULA_OF: Mapping[str, Formula] = {formula.op: formula for formula in FORMULAS}
"""By the name of the backward function."""

OTHERS: Mapping[str, str] = {
    "AccumulateGrad": "adds the gradient that arrives to .grad of its leaf; one stands before each leaf",
    "ExpBackward": "a custom autograd.Function called Exp: it sends what its own backward() returns",
    "CopySlices": "an in-place write through a view: x[0] = y, x[:, 1].mul_(2)",
    "UnbindBackward0": "x.unbind(), and q, k, v = x: the gradients of the parts are stacked again",
    "SplitBackward0": "x.split(size), x.chunk(n): the gradients of the parts are joined again",
    "SplitWithSizesBackward0": "x.split([a, b]): the gradients of the parts are joined again",
    "UnsafeSplitBackward0": "the split of an LSTMCell's gates: the gradients of the parts are joined again",
}
"""Backward functions that a formula says nothing about, in a sentence."""
