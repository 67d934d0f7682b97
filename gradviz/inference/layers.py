"""Which operations something makes that code calls by a name: an operator, a method, a
function, or a module without parameters of its own by its class.
"""

from __future__ import annotations

import re
from functools import lru_cache

_VIEW_NAMES = (
    "T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Expand", "Unsqueeze", "Squeeze", "Select", "Slice",
    "Split", "SplitWithSizes", "UnsafeSplit", "Unbind", "Chunk", "AsStrided", "Alias", "Clone", "ToCopy",
)  # fmt: skip
VIEWS = frozenset(_VIEW_NAMES)
"""Operations that hand a tensor on in another shape, layout or type."""

ELEMENTWISE = frozenset(
    (
        "Mul",
        "Add",
        "Sub",
        "Rsub",
        "Div",
        "Pow",
        "Tanh",
        "Sigmoid",
        "Erf",
        "Exp",
        "Relu",
        "Clamp",
        "Neg",
        "Gelu",
        "Silu",
    )
)
PARAMETRIZED = "ParametrizationList"
"""The class that holds what a weight is computed from. It calls the parametrizations
inside it, and computes nothing itself.
"""
MASKED = "masked Mul"
"""A multiplication by a tensor without gradient."""
_MADE = {
    "dropout": (MASKED, "NativeDropout"),
    "droppath": (MASKED, "Div"),
    "stochasticdepth": (MASKED, "Div"),
    "layernorm": ("NativeLayerNorm",),
    "batchnorm": ("NativeBatchNorm",),
    "adaptiveavgpool": ("Mean", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D"),
    "relu6": ("Hardtanh",),
    "zeropad": ("ConstantPadNd",),
    "constantpad": ("ConstantPadNd",),
    "unfold": ("Im2Col",),
    "fold": ("Col2Im",),
    "upsample": (
        "UpsampleNearest2D",
        "UpsampleBilinear2D",
        "UpsampleNearest1D",
        "UpsampleBicubic2D",
    ),
}
"""By the beginning of a class's name in lower case. Others are named as their
operation: `ReLU`, `GELUActivation`.
"""
_CELL = (
    {"Add", "Mul", "Sub", "Rsub", "Sigmoid", "Tanh", "Relu", "Stack", "Cat"} | VIEWS
) - {"Select", "Slice"}
_RESHAPED = ("View", "UnsafeView", "ReshapeAlias", "Clone")
_PRODUCT = ("T", "Mm", "Bmm", "Addmm", "Mv", "Dot", "Baddbmm", "Expand", *_RESHAPED)
_SUMS = (*_PRODUCT, "Sum", "Mul", "Permute", "Transpose", "Unsqueeze", "Squeeze")
_FUSED = tuple(
    f"ScaledDotProduct{kind}"
    for kind in (
        "FlashAttention",
        "FlashAttentionForCpu",
        "EfficientAttention",
        "CudnnAttention",
    )
)
_CALLED: dict[str, tuple[str, ...]] = {
    "add": ("Add",), "sub": ("Sub", "Rsub"), "mul": ("Mul", MASKED), "div": ("Div", "Mul"),
    "pow": ("Pow",), "square": ("Pow",),
    "max": ("Max", "Maximum", "Amax"), "min": ("Min", "Minimum"),
    **dict.fromkeys(("matmul", "linear"), _PRODUCT), **dict.fromkeys(("einsum", "tensordot"), _SUMS),
    **dict.fromkeys(("reshape", "view", "viewas", "flatten", "unflatten"), _RESHAPED),
    "scaleddotproductattention": (*_PRODUCT, "Transpose", "Mul", MASKED, "Add", "Softmax", "SafeSoftmax", *_FUSED),
    **dict.fromkeys(("element", "getitem"), ("Select", "Slice", "Index", "Unsqueeze", "Alias", "AsStrided")),
    **dict.fromkeys(("to", "float", "half", "typeas"), ("ToCopy",)),
    **dict.fromkeys(("chunk", "split"), ("Split", "SplitWithSizes", "UnsafeSplit", "Chunk")),
    **dict.fromkeys(("transpose", "swapaxes"), ("Transpose",)), "t": ("T", "Transpose", "Permute"),
    "contiguous": ("Clone",), "expandas": ("Expand",), "concat": ("Cat",),
    **dict.fromkeys(("crossentropy", "crossentropyloss"), ("LogSoftmax", "NllLoss", "NllLoss2D", *_RESHAPED)),
    "interpolate": tuple(f"Upsample{kind}" for kind in ("Nearest1D", "Nearest2D", "Linear1D", "Bilinear2D", "Bicubic2D")),
    "pad": ("ConstantPadNd", "ReflectionPad2D", "ReplicationPad2D"),
    **{f"{name} ends": tuple(_CELL) for name in ("lstm", "gru", "rnn")},
    **{f"{name} ends": (*_CELL, MASKED) for name in ("lstmcell", "grucell", "rnncell")},
    **{f"{name} ends": _VIEW_NAMES for name in ("multiheadattention", "instancenorm", "groupnorm")},
    **{f"{name} begins": _VIEW_NAMES for name in ("multiheadattention", "instancenorm", "lstm", "gru", "rnn")},
    **dict.fromkeys(("identity", "size", "dim", "numel", "detach"), ()),
}  # fmt: skip
"""By the name of what code calls, in lower case: of an operator, a function, a class of
torch whose parameters need no gradient, or one that "begins" or "ends" with it.
"""

PRODUCTS = frozenset(("Addmm", "Mm"))
"""What the product in a linear layer is recorded as."""


def stem_of(op: str) -> str:
    """Name of an operation without "Backward0"."""
    return op.partition("Backward")[0]


def makes_so(name: str, op: str) -> bool:
    """Whether what code calls so, an operator, a function, or a class of torch, can have
    made an operation.
    """
    return _named_so_makes(name.removeprefix("F.").replace("_", "").lower(), op)


@lru_cache(maxsize=4096)
def _named_so_makes(name: str, op: str) -> bool:
    if name in _CALLED:
        return op in _CALLED[name]

    if " " in name:
        return False

    for start, ops in _MADE.items():
        if name.startswith(start):
            return op in ops

    if "drop" in name and "path" in name:
        return op in _MADE["droppath"]

    stem, plain = op.lower(), re.sub(r"activation|\d+d$", "", name)
    return bool(plain) and (
        stem == plain
        or (len(plain) > 3 and stem.startswith(plain))
        or (len(stem) > 3 and plain.endswith(stem))
    )
