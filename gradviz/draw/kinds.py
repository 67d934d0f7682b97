"""What sort of op or module a box is: with parameters, an activation, a norm,
attention, a loss, or a change of shape.

Read from the class of a module, else from the names of ops, as PyTorch spells them.
This module knows no colours.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gradviz.draw.palette import BoxKind
from gradviz.fold.order import is_view
from gradviz.graph import Group, Node
from gradviz.graph.origins import forward_name, op_text

Kinds = tuple[tuple[BoxKind, re.Pattern[str]], ...]

_CLASSES: Kinds = (
    ("attention", re.compile(r"Attention|Attn")),
    ("norm", re.compile(r"Norm\w*$|^LRN$")),
    ("loss", re.compile(r"Loss\w*$")),
    (
        "activation",
        re.compile(
            r"(ReLU6?|[GSRC]?ELU|SiLU|Mish|Sigmoid|Tanh|Soft\w+|Hard\w+|Swish|Activation|GLU|Dropout\w*)$"
        ),
    ),
    (
        "layer",
        re.compile(r"^(\w*Linear|\w*Conv\w*|Embedding\w*|LSTM|GRU|RNN)(Cell|Layer)?$"),
    ),
    ("shape", re.compile(r"(Flatten|PixelShuffle|Pad\dd|Permute|Rearrange|Identity)$")),
)
"""The last words of class names."""

_OPS: Kinds = (
    ("attention", re.compile(r"scaled_dot_product|_attention")),
    ("loss", re.compile(r"loss|cross_entropy|nll")),
    ("norm", re.compile(r"(batch|layer|group|instance|rms|response)_norm")),
    (
        "activation",
        re.compile(
            r"^(relu6?|[gsc]?elu|silu|mish|tanh|gelu|glu|(log_?)?sigmoid|(log_)?softmax|softplus|hard\w+|\w*_relu|(\w+_)?dropout\w*)_?$"
        ),
    ),
    (
        "shape",
        re.compile(
            r"^(cat|stack|clone|repeat|copy|unbind|split\w*|chunk|pad|constant_pad\w*)$"
        ),
    ),
)
"""Names of ops in the forward pass."""

FEW = 4
"""Ops of a box up to which its parameters say what it is."""


def kind_of_node(node: Node) -> BoxKind:
    """The sort of one box of a graph."""
    if node.folded is not None:
        return kind_of_group(node.folded)
    # what the script calls it may be a name of its own
    kind = _kind_of_op(op_text(node)) or _kind_of_op(forward_name(node))
    return kind or ("shape" if is_view(node.op) else "op")


def kind_of_group(group: Group) -> BoxKind:
    """The sort of a folded box: nodes inside it are not looked at."""
    if group.kind in ("statement", "loop"):
        return "group"
    if group.kind == "call":
        return _kind_of_op(group.title) or "group"
    # the classes, behind the paths
    names = (words.rpartition(" ")[2] for words in group.title.split(", "))
    found = (_first(_CLASSES, name) for name in names)
    kinds = {kind for kind in found if kind is not None}
    if kinds:
        return kinds.pop() if len(kinds) == 1 else "group"

    if (
        group.parameters
        and group.kind in ("module", "repeat")
        and group.ops <= FEW * group.count
    ):
        return "layer"
    return "op" if group.ops == 1 else "group"


@lru_cache(maxsize=1024)
def _kind_of_op(name: str) -> BoxKind | None:
    return _first(_OPS, name)


def _first(kinds: Kinds, name: str) -> BoxKind | None:
    return next((kind for kind, pattern in kinds if pattern.search(name)), None)
