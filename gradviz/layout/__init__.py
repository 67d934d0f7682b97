"""From boxes and wires to positions. Knows no graph and no picture format.

This module has what a layout is given and what it returns. It knows nothing of ops or
text: only boxes with sizes, edges between them, and frames around groups of them. Units
are pixels. x grows to the right, y grows downwards, the origin is the upper left corner
of the drawing. Edges point downwards (the first box is above the second); another
direction is the caller's to make, by transposing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class LayoutFrame(NamedTuple):
    """A group to be drawn with a border and a title: a module. `parent` is the index of
    the frame around it.

    On its upper border a stretch of `title` is free of edges; `side` is its least
    height, for a title on a border at the side.
    """

    parent: int | None
    title: float
    side: float = 0.0


@dataclass(frozen=True, eq=False)
class Drawing:
    """Boxes to place. `edges` has one row (above, below) per edge; parallel edges and
    self-loops are allowed.
    """

    widths: Floats  # (n,)
    heights: Floats  # (n,)
    edges: Ints  # (m, 2)
    frame_of: Ints  # (n,) index into frames, -1 for none
    frames: tuple[LayoutFrame, ...] = ()
    gap: float = 14.0  # least free room between boxes side by side
    rank_gap: float = 26.0  # least free room between rows
    words: Floats = field(default_factory=lambda: np.zeros(0))
    """(n,) or nothing: room below each box for words beside its edges, besides
    `rank_gap`.
    """
    u_shapes: bool = False  # whether U-Nets may be drawn as a U
    columns: bool = True  # whether what is long may be broken into columns
    room: float = math.inf  # what is taller is broken, too, to be no taller

    @property
    def size(self) -> int:
        """Number of boxes."""
        return len(self.widths)


class Rect(NamedTuple):
    """A rectangle by its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, eq=False)
class Placement:
    """Where everything went. Edge i's points are `points[starts[i]:starts[i + 1]]`,
    from the box above to the one below.

    Points are a polyline; of a placement made smooth, the control points of cubic
    Bezier pieces (1 + 3k points). An edge with no points (a self-loop) is not drawn.
    """

    x: Floats  # (n,) centres
    y: Floats  # (n,)
    points: Floats  # (p, 2)
    starts: Ints  # (m + 1,)
    frames: tuple[Rect, ...]
    width: float
    height: float
    is_u: bool = False  # whether it shows a U-Net as a U
