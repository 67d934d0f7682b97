"""Colours between the colours of the palette: borders of boxes and the ground of nested frames.

Both picture writers take them from here, so that an SVG and a PNG look alike. This module knows colours only.
"""

from __future__ import annotations

from gradviz.render.palette import BoxKind, Palette

DIM = 0.74  # how much of its colour the second line of a box keeps: dimmer on every fill, and still easy to read


def mix(one: str, two: str, part: float) -> str:
    """The colour that has `part` of `two` in `one`.

    >>> mix("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = zip(_channels(one), _channels(two))
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in pairs)


def _channels(color: str) -> tuple[int, ...]:
    return tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))


def border(colors: Palette, kind: BoxKind) -> str:
    """The border of one kind of box: its fill, nearer to the text's colour."""
    return mix(colors.fill(kind), colors.text, 0.38)


def dim(colors: Palette, kind: BoxKind) -> str:
    """The text of second lines on one kind of box."""
    return mix(colors.fill(kind), colors.text, DIM)


def ground(colors: Palette, depth: int) -> str:
    """The fill of a frame inside `depth` others: each a little further from the background."""
    return mix(colors.background, colors.muted, 0.06 * (min(depth, 5) + 1))
