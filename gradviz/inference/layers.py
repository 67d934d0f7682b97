"""Which operations modules without parameters of their own make: told by their class,
since nothing else can.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import lru_cache

from gradviz.graph.origins import Registered, around

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
    "linear": ("Addmm", "Mm"),  # without gradient for its parameters
    "layernorm": ("NativeLayerNorm",),
    "batchnorm": ("NativeBatchNorm",),
    "adaptiveavgpool": ("Mean", "AdaptiveAvgPool2D", "AdaptiveAvgPool3D"),
    "flatten": ("View", "UnsafeView"),
    "unflatten": ("View", "UnsafeView"),
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
_COMPOSED = re.compile("act|gelu|silu|swish|mish|relu", re.IGNORECASE)


def stem_of(op: str) -> str:
    """Name of an operation without "Backward0"."""
    return op.partition("Backward")[0]


def makes(module: Registered, op: str) -> bool:
    """Whether a module of this class can have made an operation. `op` is its name
    without "Backward0".

    >>> makes(Registered("act", "GELUActivation", "", 0), "Gelu"), makes(Registered("drop", "Dropout", "Dropout", 0), "Add")
    (True, False)
    """
    return _named_so_makes((module.base or module.type).lower(), op)


@lru_cache(maxsize=4096)
def _named_so_makes(name: str, op: str) -> bool:
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


def composes(module: Registered) -> bool:
    """Whether a class looks like an activation that is written out of several
    operations.
    """
    return not module.base and _COMPOSED.search(module.type) is not None


def silent_inside(
    modules: Sequence[Registered], called: Collection[int]
) -> list[list[int]]:
    """By module: those inside it that are without parameters in this graph, by way of
    others like them, in order.
    """
    silent: list[list[int]] = [[] for _ in modules]
    outer = {module.parent for module in modules}
    for i, module in enumerate(modules):
        if i not in called and i not in outer:
            above = next(
                (
                    ancestor
                    for ancestor in around(modules, module.parent)
                    if ancestor in called
                ),
                None,
            )
            if above is not None:
                silent[above].append(i)
    return silent
