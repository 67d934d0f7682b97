"""For each formula an op of torch on small numbers, and what the notation's functions compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


class Case(NamedTuple):
    """What torch computes of the named inputs, in the order of the formula, and what other names of the formula stand for."""

    op: Callable[..., Tensor]
    inputs: Mapping[str, Tensor]
    names: Mapping[str, Any] = {}
    places: Callable[[Tensor], Tensor] | None = None  # how the elements were picked, for `picked` and `placed`


def _draw(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low


X, Y, POSITIVE = _draw(3, 4), _draw(3, 4, seed=1), _draw(3, 4, low=0.2, seed=2)
SQUARE, IMAGE = _draw(4, 5, seed=3), _draw(2, 3, 4, 4, seed=4)
ROWS = torch.tensor([2, 0, 2])
TARGET, MASK = torch.tensor([1, 3, 0]), X > 0.3
PAIR = {"x": X, "y": Y}


def x(op: Callable[[Tensor], Tensor], value: Tensor = X, **names: Any) -> Case:
    return Case(op, {"x": value}, names)


def picked(op: Callable[[Tensor], Tensor], value: Tensor = X, name: str = "x") -> Case:
    return Case(op, {name: value}, {"index": None}, op)


CASES: dict[str, Case] = {
    "AddBackward0": Case(lambda x, y: x + y, PAIR),
    "SubBackward0": Case(lambda x, y: x - y, PAIR),
    "MulBackward0": Case(lambda x, y: x * y, PAIR),
    "DivBackward0": Case(lambda x, y: x / y, {"x": X, "y": POSITIVE}),
    "NegBackward0": x(lambda x: -x),
    "PowBackward0": x(lambda x: x**3, p=3),
    "PowBackward1": Case(lambda x, y: x**y, {"x": POSITIVE, "y": Y}),
    "ExpBackward0": x(torch.exp),
    "LogBackward0": x(torch.log, POSITIVE),
    "Log1PBackward0": x(torch.log1p, POSITIVE),
    "SqrtBackward0": x(torch.sqrt, POSITIVE),
    "RsqrtBackward0": x(torch.rsqrt, POSITIVE),
    "ReciprocalBackward0": x(torch.reciprocal, POSITIVE),
    "SinBackward0": x(torch.sin),
    "CosBackward0": x(torch.cos),
    "AbsBackward0": x(torch.abs),
    "TanhBackward0": x(torch.tanh),
    "SigmoidBackward0": x(torch.sigmoid),
    "ErfBackward0": x(torch.erf),
    "ReluBackward0": x(torch.relu),
    "LeakyReluBackward0": x(lambda x: F.leaky_relu(x, 0.1), slope=0.1),
    "EluBackward0": x(F.elu),
    "SiluBackward0": x(F.silu),
    "GeluBackward0": x(F.gelu),
    "SoftplusBackward0": x(F.softplus),
    "LogSigmoidBackward0": x(F.logsigmoid),
    "ClampBackward1": x(lambda x: x.clamp(-1, 1), low=-1, high=1),
    "MaximumBackward0": Case(torch.maximum, PAIR),
    "MinimumBackward0": Case(torch.minimum, PAIR),
    "WhereBackward0": Case(lambda x, y: torch.where(MASK, x, y), PAIR, {"c": MASK}),
    "MaskedFillBackward0": x(lambda x: x.masked_fill(MASK, 7.0), mask=MASK, v=7.0),
    "NativeDropoutBackward0": x(lambda x: torch.native_dropout(x, 0.5, True)[0], p=0.5),
    "CloneBackward0": x(torch.clone),
    "ToCopyBackward0": x(lambda x: x.to(torch.float32)),
    "SoftmaxBackward0": x(lambda x: x.softmax(1), dim=1),
    "LogSoftmaxBackward0": x(lambda x: x.log_softmax(1), dim=1),
    "LogsumexpBackward0": x(lambda x: x.logsumexp(1, keepdim=True), dim=1),
    "SumBackward0": x(torch.sum),
    "SumBackward1": x(lambda x: x.sum(1, keepdim=True), dim=1),
    "MeanBackward0": x(torch.mean, n=12),
    "MeanBackward1": x(lambda x: x.mean(1, keepdim=True), dim=1, n=4),
    "ProdBackward0": x(torch.prod),
    "VarBackward0": x(lambda x: x.var(1, keepdim=True), dim=1, n=4),
    "StdBackward0": x(lambda x: x.std(1, keepdim=True), dim=1, n=4),
    "MaxBackward0": Case(
        lambda x: x.max(1, keepdim=True)[0],
        {"x": X},
        {"dim": 1, "index": None},
        lambda x: x.gather(1, X.argmax(1, keepdim=True)),
    ),
    "MaxBackward1": x(torch.max),
    "AmaxBackward0": x(lambda x: x.amax(1, keepdim=True), dim=1),
    "LinalgVectorNormBackward0": x(torch.linalg.vector_norm),
    "CumsumBackward0": x(lambda x: x.cumsum(1), dim=1),
    "MmBackward0": Case(torch.mm, {"x": X, "y": SQUARE}),
    "BmmBackward0": Case(torch.bmm, {"x": _draw(2, 3, 4), "y": _draw(2, 4, 5)}),
    "AddmmBackward0": Case(torch.addmm, {"b": _draw(5), "x": X, "w": SQUARE}),
    "BaddbmmBackward0": Case(torch.baddbmm, {"b": _draw(5), "x": _draw(2, 3, 4), "y": _draw(2, 4, 5)}),
    "MvBackward0": Case(torch.mv, {"x": X, "v": _draw(4)}),
    "DotBackward0": Case(torch.dot, {"x": _draw(4), "y": _draw(4, seed=1)}),
    "ScaledDotProductFlashAttentionForCpuBackward0": Case(
        F.scaled_dot_product_attention, {name: _draw(2, 2, 3, 4, seed=i) for i, name in enumerate("qkv")}, {"s": 0.5}
    ),
    "ConvolutionBackward0": Case(
        lambda x, w, b: F.conv2d(x, w, b, padding=1), {"x": IMAGE, "w": _draw(5, 3, 3, 3), "b": _draw(5)}
    ),
    "NativeBatchNormBackward0": Case(
        lambda x, b, w: F.batch_norm(x, None, None, w, b, training=True),
        {"x": IMAGE, "b": _draw(3), "w": _draw(3, seed=1)},
        {
            "dim": (0, 2, 3),
            "m": IMAGE.mean((0, 2, 3), keepdim=True),
            "r": (IMAGE.var((0, 2, 3), correction=0, keepdim=True) + 1e-5).rsqrt(),
        },
    ),
    "NativeLayerNormBackward0": Case(
        lambda x, b, w: F.layer_norm(x, (4,), w, b),
        {"x": X, "b": _draw(4), "w": _draw(4, seed=1)},
        {"dim": -1, "m": X.mean(-1, keepdim=True), "r": (X.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()},
    ),
    "MaxPool2DWithIndicesBackward0": Case(
        lambda x: F.max_pool2d(x, 2),
        {"x": IMAGE},
        {"index": None},
        lambda x: x.flatten(2).gather(2, F.max_pool2d(IMAGE, 2, return_indices=True)[1].flatten(2)).view(2, 3, 2, 2),
    ),
    "AvgPool2DBackward0": x(lambda x: F.avg_pool2d(x, 2), IMAGE, k=2),
    "UpsampleNearest2DBackward0": x(lambda x: F.interpolate(x, scale_factor=2), IMAGE, k=2),
    "MseLossBackward0": Case(F.mse_loss, PAIR, {"n": 12}),
    "SmoothL1LossBackward0": Case(F.smooth_l1_loss, PAIR, {"n": 12}),
    "NllLossBackward0": Case(
        lambda x: F.nll_loss(x, TARGET), {"x": X}, {"target": TARGET, "n": 3}, lambda x: x[torch.arange(3), TARGET]
    ),
    "BinaryCrossEntropyBackward0": Case(
        lambda x: F.binary_cross_entropy(x, MASK.double()), {"x": X.sigmoid()}, {"y": MASK.double(), "n": 12}
    ),
    "BinaryCrossEntropyWithLogitsBackward0": Case(
        lambda x: F.binary_cross_entropy_with_logits(x, MASK.double()), {"x": X}, {"y": MASK.double(), "n": 12}
    ),
    "TBackward0": x(torch.t),
    "TransposeBackward0": x(lambda x: x.transpose(0, 2), IMAGE, i=0, j=2),
    "PermuteBackward0": x(lambda x: x.permute(2, 0, 3, 1), IMAGE, order=(2, 0, 3, 1)),
    "ViewBackward0": x(lambda x: x.view(2, 6)),
    "UnsafeViewBackward0": x(lambda x: torch.ops.aten._unsafe_view(x, (2, 6))),
    "SqueezeBackward1": x(lambda x: x.squeeze(1), _draw(3, 1, 4)),
    "UnsqueezeBackward0": x(lambda x: x.unsqueeze(1)),
    "ExpandBackward0": x(lambda x: x.expand(3, 4), _draw(1, 4)),
    "SliceBackward0": picked(lambda x: x[1:3]),
    "SelectBackward0": picked(lambda x: x[1]),
    "IndexBackward0": picked(lambda x: x[ROWS]),
    "IndexSelectBackward0": picked(lambda x: x.index_select(0, ROWS)),
    "GatherBackward0": picked(lambda x: x.gather(0, ROWS.view(3, 1))),
    "EmbeddingBackward0": picked(lambda w: F.embedding(ROWS, w), name="w"),
    "CatBackward0": Case(lambda x, y: torch.cat([x, y]), PAIR),
    "StackBackward0": Case(lambda x, y: torch.stack([x, y]), PAIR),
}


def functions(case: Case, dropped: Tensor) -> dict[str, Any]:
    """What the notation's functions compute, for one case. `dropped` is what a dropout returned."""

    def over(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda value, dim=None: function(value) if dim is None else function(value, dim, keepdim=True)

    def largest(value: Tensor, other: Any = None) -> Tensor:
        if other is None:
            return value.max()
        return (
            value.amax(other, keepdim=True)
            if other == case.names.get("dim")
            else value.clamp(min=other)
            if isinstance(other, (int, float))
            else torch.maximum(value, other)
        )

    def placed(value: Tensor, like: Tensor, index: object = None) -> Tensor:
        assert case.places is not None
        zeros = torch.zeros_like(like).requires_grad_()  # the places themselves, by a sum that moves nothing else
        return torch.autograd.grad(case.places(zeros), zeros, value)[0]

    def where(condition: Tensor, one: Any, other: Any) -> Tensor:
        return torch.where(condition, one, other)

    return {
        **{
            name: getattr(torch, name)
            for name in (
                "exp",
                "log",
                "sqrt",
                "sin",
                "cos",
                "tanh",
                "sigmoid",
                "abs",
                "erf",
                "sign",
                "prod",
                "outer",
                "cumsum",
            )
        },
        **{name: over(getattr(torch, name)) for name in ("sum", "mean")},
        "sqrt": lambda value: torch.as_tensor(value).sqrt(),
        "pi": math.pi,
        "where": where,
        "max": largest,
        "min": lambda value, other: (
            value.clamp(max=other) if isinstance(other, (int, float)) else torch.minimum(value, other)
        ),
        "T": lambda value: value.mT,
        "softmax": lambda value: value.softmax(-1),
        "flip": lambda value, dim: value.flip(dim),
        "like": lambda value, like: value.reshape(like.shape),
        "repeated": lambda value, like: value.expand_as(like),
        "sum_to": lambda value, like: (
            value.sum((0, 2, 3)) if value.dim() == 4 and like.dim() == 1 else value.sum_to_size(like.shape)
        ),
        "cast": lambda value, like: value.to(like.dtype),
        "picked": lambda value, index: case.places(value) if case.places is not None else value,
        "placed": placed,
        "one_hot": lambda target, like: F.one_hot(target, like.shape[1]),
        "transpose": torch.transpose,
        "permute": torch.permute,
        "unpermute": lambda value, order: value.permute([order.index(i) for i in range(len(order))]),
        "cat": lambda *values: torch.cat(values),
        "stack": lambda *values: torch.stack(values),
        "first": lambda value, like: value[: like.shape[0]] if value.dim() == like.dim() else value[0],
        "rest": lambda value, like: value[like.shape[0] :] if value.dim() == like.dim() else value[1],
        "conv": lambda value, weight, bias: F.conv2d(value, weight, bias, padding=1),
        "conv_transpose": lambda value, weight: F.conv_transpose2d(value, weight, padding=1),
        "conv_weight": lambda value, arriving: F.conv2d(
            value.transpose(0, 1), arriving.transpose(0, 1), padding=1
        ).transpose(0, 1),
        "max_pool": lambda value: F.max_pool2d(value, 2),
        "avg_pool": lambda value: F.avg_pool2d(value, 2),
        "upsample": lambda value: F.interpolate(value, scale_factor=2),
        "mask": dropped != 0,
    }
