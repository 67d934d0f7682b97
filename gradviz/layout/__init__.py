"""From boxes and wires to positions. Knows no graph and no picture format.

This module has what a layout is given and what it returns. It knows nothing of ops or
text: only boxes with sizes, edges between them, and frames around groups of them. Units
are pixels. x grows to the right, y grows downwards, the origin is the upper left corner
of the drawing. Edges point downwards (the first box is above the second); another
direction is the caller's to make, by transposing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class CycleError(Exception):
    """Edges form a cycle, so the boxes cannot be placed in rows."""


class LayoutFrame(NamedTuple):
    """A group to be drawn with a border and a title: a module. `parent` is the index of
    the frame around it.
    """

    parent: int | None
    title_width: float
    title_height: float


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

    @property
    def size(self) -> int:
        """Number of boxes."""
        return len(self.widths)

    @property
    def room_below(self) -> Floats:
        """(n,) `words`, or zeros."""
        return self.words if len(self.words) else np.zeros(self.size)


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
    # what the reader must be told: "1 line runs against the others"
    notes: tuple[str, ...] = field(default=())
    is_u: bool = False  # whether it shows a U-Net as a U


# -- edges that form a cycle: as few as must run upwards are placed the other way round,


def leading_back(drawing: Drawing) -> Ints:
    """Rows of edges that lead back, each of them on a cycle: without them there is
    none. Empty without cycles. Linear time.

    They are those that a depth-first walk from the boxes without inputs meets on its
    own way (Tarjan, 1972).

    >>> ring = Drawing(np.ones(3), np.ones(3), np.array([[0, 1], [1, 2], [2, 0]]), np.full(3, -1))
    >>> leading_back(ring).tolist()
    [2]
    """
    pairs = drawing.edges.tolist()
    down: list[list[tuple[int, int]]] = [[] for _ in range(drawing.size)]
    has_inputs = bytearray(drawing.size)

    for row, (above, below) in enumerate(pairs):
        # turning a self-loop around changes nothing
        if above != below:
            down[above].append((row, below))
            has_inputs[below] = 1

    fresh, on_the_way, left = 0, 1, 2
    state = bytearray(drawing.size)
    back: list[int] = []

    for start in sorted(range(drawing.size), key=has_inputs.__getitem__):
        if state[start] != fresh:
            continue
        state[start] = on_the_way
        # a stack of its own: a chain of ops is longer than Python's recursion limit
        way = [(start, iter(down[start]))]
        while way:
            box, rest = way[-1]
            for row, below in rest:
                if state[below] == on_the_way:
                    back.append(row)
                elif state[below] == fresh:
                    state[below] = on_the_way
                    way.append((below, iter(down[below])))
                    break
            else:
                state[box] = left
                way.pop()

    return np.array(back, np.int64)


def turned(drawing: Drawing, rows: Ints) -> Drawing:
    """The drawing with these edges the other way round."""
    edges = drawing.edges.copy()
    edges[rows] = edges[rows, ::-1]
    return replace(drawing, edges=edges)


def turned_back(placement: Placement, rows: Ints) -> Placement:
    """The placement of a turned drawing, with the routes of these edges from their own
    beginnings to their own ends.
    """
    points = placement.points.copy()
    for start, end in zip(
        placement.starts[rows].tolist(), placement.starts[rows + 1].tolist()
    ):
        points[start:end] = placement.points[start:end][::-1]

    lines = "1 line runs" if len(rows) == 1 else f"{len(rows):,} lines run"
    note = f"{lines} against the direction of the others, because the boxes there wait for each other"
    return replace(
        placement,
        points=points,
        notes=(*placement.notes, note),
    )
