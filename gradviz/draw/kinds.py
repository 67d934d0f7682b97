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

_CLASSES: tuple[tuple[BoxKind, re.Pattern[str]], ...] = (
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

_OPS: tuple[tuple[BoxKind, re.Pattern[str]], ...] = (
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
    other: BoxKind = "shape" if is_view(node.op) else "op"
    # what the script calls it may be a name of its own
    return _kind_of_name(op_text(node), _kind_of_name(forward_name(node), other))


def kind_of_group(group: Group) -> BoxKind:
    """The sort of a folded box: nodes inside it are not looked at."""
    if group.kind in ("call", "statement", "loop"):
        return _kind_of_name(group.title, "group") if group.kind == "call" else "group"
    kinds: set[BoxKind] = set()
    for words in group.title.split(", "):
        _, _, name = words.rpartition(" ")  # the class, behind the path
        kinds.update(_kinds_of_class(name))
    if kinds:
        return "group" if len(kinds) > 1 else kinds.pop()

    if (
        group.parameters
        and group.kind in ("module", "repeat")
        and group.ops <= FEW * group.count
    ):
        return "layer"
    return "op" if group.ops == 1 else "group"


def _kinds_of_class(name: str) -> list[BoxKind]:
    """The first that fits, if one does."""
    fitting = [kind for kind, pattern in _CLASSES if pattern.search(name)]
    return fitting[:1]


@lru_cache(maxsize=1024)
def _kind_of_name(name: str, other: BoxKind) -> BoxKind:
    for kind, pattern in _OPS:
        if pattern.search(name):
            return kind
    return other
