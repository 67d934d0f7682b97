"""What one run of the layout works on: a sheet of boxes without frames, possibly many drawings at once.

All drawings of one nesting level are laid out in one run, so that a thousand little frames cost no more than one large
drawing. They never touch each other. Everything here is plain data.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradviz.layout.model import Floats, Ints

FREE, TOP, BOTTOM = 0, -1, 1


@dataclass(frozen=True, eq=False)
class Sheet:
    """Boxes and edges from `above[i]` down to `below[i]`, without cycles and without self-loops.

    An edge meets its box at an offset from the middle: 0, or where its line passes through a frame's border.
    """

    widths: Floats  # (n,)
    heights: Floats  # (n,)
    above: Ints  # (m,)
    below: Ints  # (m,)
    above_offset: Floats  # (m,)
    below_offset: Floats  # (m,)
    part: Ints  # (n,) which drawing a box belongs to
    parts: int
    pin: Ints  # (n,) TOP and BOTTOM are ports: where lines pass through the border of the drawing
    gap: float
    rank_gap: float

    @property
    def size(self) -> int:
        """Number of boxes, ports included."""
        return len(self.widths)


@dataclass(frozen=True, eq=False)
class SheetPlacement:
    """Where a sheet's boxes went. Every drawing has its own origin, the upper left corner of what is in it."""

    x: Floats  # (n,) centres
    y: Floats
    points: Floats  # (p, 2)
    starts: Ints  # (m + 1,)
    widths: Floats  # (parts,)
    heights: Floats


def plain_sheet(widths: Floats, heights: Floats, above: Ints, below: Ints, gap: float, rank_gap: float) -> Sheet:
    """A sheet that is one drawing without ports."""
    nothing = np.zeros(len(above))
    zeros = np.zeros(len(widths), np.int64)
    return Sheet(widths, heights, above, below, nothing, nothing, zeros, 1, zeros, gap, rank_gap)
