"""A picture as plain geometry: rectangles, texts and curves with their meaning. Every picture format is written from it.

Units are pixels, x to the right, y downwards. This module knows no graph, no layout and no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from gradviz.draw.palette import BoxKind
from gradviz.layout import Floats, Ints, Rect

Tone = Literal["title", "strong", "name", "plain", "dim", "warning"]
"""How a text looks: the picture's title; in a box its first line, a name, other facts, a flag; dim around the boxes."""


class Words(NamedTuple):
    """One line of text. `x` is its left end, or its middle; `y` is its baseline; `width` is the room measured for it."""

    x: float
    y: float
    text: str
    tone: Tone
    width: float
    centred: bool = True


class Block(NamedTuple):
    """One box with its text. `marked` boxes have a dashed border: something about them is special, and a line says what."""

    rect: Rect
    kind: BoxKind
    words: tuple[Words, ...] = ()
    tooltip: str = ""
    marked: bool = False
    link: str = ""  # an address to open when it is clicked


class FrameBlock(NamedTuple):
    """A frame around boxes, with its title. `depth` counts the frames around it."""

    rect: Rect
    words: tuple[Words, ...]
    tooltip: str
    depth: int


WireKind = Literal["data", "saved", "view", "same"]
"""An edge of the graph; a saved tensor and the node that keeps it; a view and its base. Only data has arrowheads."""


class Curves(NamedTuple):
    """Edge i's control points are `points[starts[i]:starts[i + 1]]`; its arrowhead is the triangle `heads[i]`.

    An edge that is not drawn has no points; a head that is not drawn is not a number.
    """

    points: Floats  # (p, 2)
    starts: Ints  # (m + 1,)
    heads: Floats  # (m, 3, 2) tip first


@dataclass(frozen=True, eq=False)
class Picture:
    """Everything to draw.

    Of curve i, `wires[i]` is the kind, `wire_ends[i]` the two blocks it joins, `wire_tips[i]` the tooltip.
    """

    width: float
    height: float
    title: str
    description: str
    words: tuple[Words, ...]  # title, legend and footer
    swatches: tuple[Block, ...]  # the legend's colours
    frames: tuple[FrameBlock, ...]  # outer ones first
    blocks: Sequence[Block]
    curves: Curves
    wires: tuple[WireKind, ...]
    wire_ends: tuple[tuple[int, int], ...]
    wire_tips: tuple[str, ...]
    wire_words: tuple[Words, ...] = ()
    notes: tuple[str, ...] = ()  # what the layout has to say
