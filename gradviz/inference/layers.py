"""Which operations are recorded for what code calls by a name: an operator, a method, a
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

PRODUCTS = frozenset(("Addmm", "Mm"))
"""What the product in a linear layer is recorded as."""

MASKED = "masked Mul"
"""A multiplication by a tensor without gradient."""

PARAMETRIZED = "ParametrizationList"
"""The class that holds what a weight is computed from. It calls the parametrizations
inside it, and computes nothing itself.
"""

_CELL = (
    "Add",
    "Mul",
    "Sub",
    "Rsub",
    "Sigmoid",
    "Tanh",
    "Relu",
    "Stack",
    "Cat",
    *VIEWS - {"Select", "Slice"},
)
_RESHAPED = ("View", "UnsafeView", "ReshapeAlias", "Clone")
_PRODUCT = ("T", "Mm", "Bmm", "Addmm", "Mv", "Dot", "Baddbmm", "Expand", *_RESHAPED)
_FUSED = (
    "FlashAttention",
    "FlashAttentionForCpu",
    "EfficientAttention",
    "CudnnAttention",
)
_RESIZED = ("Nearest1D", "Nearest2D", "Linear1D", "Bilinear2D", "Bicubic2D")
_ALIKE: dict[tuple[str, ...], tuple[str, ...]] = {
    ("sub",): ("Sub", "Rsub"), ("mul",): ("Mul", MASKED), ("square",): ("Pow",),
    ("max",): ("Max", "Maximum", "Amax"), ("min",): ("Min", "Minimum"),
    ("matmul", "linear"): _PRODUCT,
    ("einsum", "tensordot"): (*_PRODUCT, "Sum", "Mul", "Permute", "Transpose", "Unsqueeze", "Squeeze"),
    ("scaleddotproductattention",): (
        *_PRODUCT, "Transpose", "Mul", MASKED, "Add", "Softmax", "SafeSoftmax",
        *(f"ScaledDotProduct{kernel}" for kernel in _FUSED),
    ),
    ("reshape", "viewas", "flatten", "unflatten"): _RESHAPED, ("contiguous",): ("Clone",), ("expandas",): ("Expand",),
    ("swapaxes",): ("Transpose",), ("t",): ("T", "Transpose", "Permute"),
    ("getitem",): ("Select", "Slice", "Index", "Unsqueeze", "Alias", "AsStrided"),
    ("chunk", "split"): ("Split", "SplitWithSizes", "UnsafeSplit", "Chunk"), ("concat",): ("Cat",),
    ("to", "float", "half", "typeas"): ("ToCopy",),
    ("dropout",): (MASKED, "NativeDropout"), ("layernorm",): ("NativeLayerNorm",), ("batchnorm",): ("NativeBatchNorm",),
    ("adaptiveavgpool",): ("Mean", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D"), ("relu6",): ("Hardtanh",),
    ("pad", "zeropad", "constantpad"): ("ConstantPadNd", "ReflectionPad2D", "ReplicationPad2D"),
    ("unfold",): ("Im2Col",), ("fold",): ("Col2Im",),
    ("interpolate", "upsample"): tuple(f"Upsample{kind}" for kind in _RESIZED),
    ("crossentropy", "crossentropyloss"): ("LogSoftmax", "NllLoss", "NllLoss2D", *_RESHAPED),
    ("lstm ends", "gru ends", "rnn ends"): _CELL, ("lstmcell ends", "grucell ends", "rnncell ends"): (*_CELL, MASKED),
    ("multiheadattention ends", "instancenorm ends", "groupnorm ends"): _VIEW_NAMES,
    ("multiheadattention begins", "instancenorm begins", "lstm begins", "gru begins", "rnn begins"): _VIEW_NAMES,
}  # fmt: skip
_RECORDED = {name: frozenset(ops) for names, ops in _ALIKE.items() for name in names}
"""By the name of what code calls, in lower case, without dimensions: of an operator, a
function, a class of torch whose parameters need no gradient, or one that "begins" or
"ends" with it. Others are named as their operation, such as `ReLU`.
"""


def stem_of(op: str) -> str:
    """Name of an operation without "Backward0"."""
    return op.partition("Backward")[0]


def makes_so(name: str, op: str) -> bool:
    """Whether what code calls so, an operator, a function, or a class of torch, can have
    made an operation.

    >>> makes_so("F.adaptive_avg_pool2d", "Mean"), makes_so("LeakyReLU", "LeakyRelu"), makes_so("exp", "Expand")
    (True, True, False)
    """
    plain = re.sub(r"\d+d\b", "", name.removeprefix("F.").replace("_", "").lower())
    return _named_so_makes(plain, op)


@lru_cache(maxsize=4096)
def _named_so_makes(plain: str, op: str) -> bool:
    if plain in _RECORDED:
        return op in _RECORDED[plain]
    stem = op.lower()
    return stem == plain or (len(plain) > 3 and stem.startswith(plain))
