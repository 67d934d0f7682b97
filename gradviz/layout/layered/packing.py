"""Components of one drawing beside and below each other: on shelves, the highest first.

Components with ports stand side by side at the top, so that nothing lies between them and the border below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import Mask, group
from gradviz.layout.model import Floats, Ints

ASPECT = 1.6  # width to height that shelves aim at


class Shelves(NamedTuple):
    """Upper left corner of every component in its drawing, and the size of every drawing."""

    x: Floats
    y: Floats
    widths: Floats  # (parts,)
    heights: Floats


def pack_components(
    widths: Floats,
    heights: Floats,
    ported: Mask,
    part: Ints,
    parts: int,
    gap: float,
    rank_gap: float,
) -> Shelves:
    """Pack the components of every part; `part` says whose they are."""
    found = Shelves(np.zeros(len(widths)), np.zeros(len(widths)), np.zeros(parts), np.zeros(parts))
    members = group(part, parts)
    size = np.diff(members.start)
    alone = members.order[members.start[:-1][size == 1]]
    found.widths[part[alone]], found.heights[part[alone]] = widths[alone], heights[alone]
    for p in np.flatnonzero(size > 1).tolist():
        here = members.order[members.start[p] : members.start[p + 1]]
        right, bottom = _row(found, here[ported[here]], widths, heights, gap)
        rest = here[~ported[here]]
        if len(rest):
            right, low = _shelves(found, rest, widths, heights, right, gap, rank_gap)
            bottom = max(bottom, low)
        found.widths[p], found.heights[p] = right - 2 * gap, bottom
    return found


def _row(found: Shelves, members: Ints, widths: Floats, heights: Floats, gap: float) -> tuple[float, float]:
    """Place components in one row. Returns where the next would begin, and the lowest point."""
    x = bottom = 0.0
    for component in members.tolist():
        found.x[component] = x
        x += float(widths[component]) + 2 * gap
        bottom = max(bottom, float(heights[component]))
    return x, bottom


def _shelves(
    found: Shelves, members: Ints, widths: Floats, heights: Floats, left: float, gap: float, rank_gap: float
) -> tuple[float, float]:
    """Place components on shelves from x = `left` on. Returns the furthest right (a gap on) and lowest points."""
    area = float(((widths[members] + 2 * gap) * (heights[members] + rank_gap)).sum())
    limit = max(float(widths[members].max()) + 2 * gap, (area * ASPECT) ** 0.5)
    x = y = tallest = furthest = 0.0
    for component in members[np.argsort(-heights[members], kind="stable")].tolist():
        wide = float(widths[component]) + 2 * gap
        if x and x + wide > limit:
            x, y, tallest = 0.0, y + tallest + rank_gap, 0.0
        found.x[component], found.y[component] = left + x, y
        x += wide
        furthest, tallest = max(furthest, x), max(tallest, float(heights[component]))
    return left + furthest, y + tallest
