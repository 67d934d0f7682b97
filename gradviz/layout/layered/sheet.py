"""What one run of the layout works on: a sheet of boxes without frames, possibly many
drawings at once.

All drawings of one nesting level are laid out in one run, so that a thousand little
frames cost no more than one large drawing. They never touch each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.routes import Routes

FREE, TOP, BOTTOM = 0, -1, 1


class SkipEnds(NamedTuple):
    """What the skips of a U join, from the highest one down. They will be level lines
    between two drawings, of which the right one is turned upside down afterwards.
    """

    boxes: Ints  # (2, skips) on the left and on the right
    offset: Floats  # (2, skips) how far below the middle of its box each end is


@dataclass(frozen=True, eq=False)
class Sheet:
    """Boxes and edges from `above[i]` down to `below[i]`, without cycles and without
    self-loops.

    An edge meets its box at an offset from the middle: 0, or where its line passes
    through a frame's border.
    """

    widths: Floats  # (n,)
    heights: Floats  # (n,)
    above: Ints  # (m,)
    below: Ints  # (m,)
    above_offset: Floats  # (m,)
    below_offset: Floats  # (m,)
    part: Ints  # (n,) which drawing a box belongs to
    parts: int
    # (n,) TOP and BOTTOM are ports: where lines pass through the border of the drawing
    pin: Ints
    # (n,) 1 for boxes that stand at the right of their rows and drawing, -1 at the left
    side: Ints
    gap: float
    rank_gap: float
    words: Floats  # (n,) room below a box for words beside its edges
    skips: Sequence[SkipEnds] = ()  # of every U
    # (parts,) heights above which drawings stand in columns; infinite: above the usual
    rooms: Floats | None = None

    @property
    def size(self) -> int:
        """Number of boxes, ports included."""
        return len(self.widths)


class SheetPlacement(NamedTuple):
    """Where a sheet's boxes went. Every drawing has its own origin, the upper left
    corner of what is in it.
    """

    middles: Floats  # (n, 2)
    routes: Routes
    sizes: Floats  # (parts, 2)
