"""The colours of pictures and of the page, and what each of them means, once for light
and once for dark.

As in torchviz, blue is a leaf, orange a saved tensor, green an output; an op has the
colour of its kind, grey where it is none of them. This module knows colours and their
meaning, not how any format writes them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from gradviz.draw.options import Theme

BoxKind = Literal[
    "op", "leaf", "output", "saved", "stale", "group",
    "heat1", "heat2", "heat3", "heat4", "heat5",
    "added", "removed", "changed", "ghost", "input",
    "layer", "activation", "norm", "attention", "loss", "shape", "outside",
]  # fmt: skip
HEAT: tuple[BoxKind, ...] = ("heat1", "heat2", "heat3", "heat4", "heat5")
"""Kinds of the boxes of ops and groups when colours mean memory, from the least held to
the most.
"""


MEANING: dict[BoxKind, str] = {
    "input": "input, no gradient",
    "outside": "input, computed outside",
    "leaf": "leaf: receives .grad",
    "op": "op",
    "layer": "layer",
    "attention": "attention",
    "norm": "norm",
    "activation": "activation",
    "shape": "shape",
    "loss": "loss",
    "group": "several ops",
    "saved": "tensor saved for backward",
    "stale": "saved tensor that backward() can no longer use",
    "output": "output",
    "ghost": "cut off: no gradient passes",
    "added": "only some ranks have it",
    "changed": "differs by rank",
}
"""What the legend says, in the order it says it."""


_FILLS: dict[BoxKind, tuple[str, str]] = {  # of boxes: light, dark
    "op": ("#e7e8eb", "#393b3f"),
    "leaf": ("#92c7ec", "#0d5571"),
    "output": ("#c9e887", "#44561e"),
    "saved": ("#feb958", "#734917"),
    "group": ("#d0c9ed", "#474072"),
    "stale": ("#ffe3c3", "#503f2b"),
    "heat1": ("#fcf3d9", "#29251d"),
    "heat2": ("#fce3ac", "#392f1d"),
    "heat3": ("#ffd085", "#4b381c"),
    "heat4": ("#ffbb64", "#61401a"),
    "heat5": ("#ffa852", "#79461a"),
    "added": ("#c0eec3", "#224d2f"),
    "removed": ("#ffbfc1", "#65272d"),
    "changed": ("#ffd4a0", "#593c1c"),
    "ghost": ("#ffffff", "#16181c"),
    "input": ("#fbfbfb", "#202329"),
    "outside": ("#ffffff", "#16181c"),
    "layer": ("#cfe2f4", "#21405c"),
    "activation": ("#fdf0b5", "#4f4618"),
    "norm": ("#e3d7f0", "#43365a"),
    "attention": ("#fbd2b4", "#65401f"),
    "loss": ("#f4c4cd", "#5f2b39"),
    "shape": ("#f1f2f3", "#2b2e33"),
}
"""Kinds differ in lightness, so that they differ in grey and for every eye; steps of
heat are even in CIELAB.
"""


class Palette(NamedTuple):
    """Colours of one theme, as `#rrggbb`."""

    fills: dict[BoxKind, str]
    background: str
    text: str
    muted: str  # second lines, footers, scope titles
    line: str  # edges
    border: str  # boxes and frames
    warning: str  # flags: freed, modified in place, hidden


LIGHT = Palette(
    {kind: fills[0] for kind, fills in _FILLS.items()},
    background="#ffffff",
    text="#000000",
    muted="#555555",
    line="#555555",
    border="#777777",
    warning="#9a0020",
)
DARK = Palette(
    {kind: fills[1] for kind, fills in _FILLS.items()},
    background="#16181c",
    text="#f2f2f2",
    muted="#b0b4ba",
    line="#9aa0a6",
    border="#7d838a",
    warning="#ffc9c2",
)


def palette(theme: Theme) -> Palette:
    """The colours of a theme; light ones where a format cannot follow the reader's
    setting.
    """
    return DARK if theme == "dark" else LIGHT


# Colours between these: both picture writers take them from here, so that an SVG and a
# PNG look alike.

# how much of its colour the second line of a box keeps: dimmer on every fill, and still
# easy to read
DIM = 0.74


def mix(color: str, other: str, part: float) -> str:
    """The colour that has `part` of `other` in `color`.

    >>> mix("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(_channels(color), _channels(other))
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)


def _channels(color: str) -> tuple[int, ...]:
    return tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))


def border(colors: Palette, kind: BoxKind) -> str:
    """The border of one kind of box: its fill, nearer to the text's colour."""
    return mix(colors.fills[kind], colors.text, 0.38)


def dim(colors: Palette, kind: BoxKind) -> str:
    """The text of second lines on one kind of box."""
    return mix(colors.fills[kind], colors.text, DIM)


def ground(colors: Palette, depth: int) -> str:
    """The fill of a frame inside `depth` others: each a little further from the
    background.
    """
    return mix(colors.background, colors.muted, 0.06 * (min(depth, 5) + 1))
