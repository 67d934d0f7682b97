"""Two columns beside each other: their rows on common levels, and the lines from one to
the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats
from gradviz.layout.layered.layers import Layers, Level
from gradviz.layout.layered.routes import TURN, Rows

CHANNEL = 110.0  # px between columns with skips, which have their words there
NARROW = 40.0  # and between others
STEP = 12.0  # px between lines that turn beside each other


def on_levels(rows: Rows, layers: Layers, levels: Sequence[Level]) -> Rows:
    """The rows of two components further apart, so that the lines of `levels` are level
    when the right component is upside down. They are sorted from the top.
    """
    further = np.zeros(layers.lines)  # how much lower a row stands than the one above
    ends = [
        (
            int(layers.line[level.left]),
            float(rows.y[level.left] + level.left_offset),
            int(layers.line[level.right]),
            float(rows.y[level.right] + level.right_offset),
        )
        for level in levels
    ]
    for (a, a_y, b, b_y), (c, c_y, d, d_y) in pairwise(ends):
        more = (b_y - d_y) - (c_y - a_y)
        first, last = (a, c) if more > 0 else (d, b)
        further[first + 1 : last + 1] += abs(more) / max(last - first, 1)

    sums = np.cumsum(further)
    begins = layers.first_line[:-1]
    lower = sums - np.repeat((sums - further)[begins], np.diff(layers.first_line))
    return Rows(
        rows.top + lower,
        rows.bottom + lower,
        rows.y + lower[layers.line[: layers.boxes]],
        rows.height + lower[layers.first_line[1:] - 1],
    )


class End(NamedTuple):
    """Where a line ends: x along the border of the left or right column (0 or 1), or at
    a port of the frame around both; and whether that is at the top.
    """

    column: int | None
    x: float
    is_top: bool


class Beside(NamedTuple):
    """Corners of both columns, the polyline of every line, and the size of all."""

    corners: list[Floats]
    lines: list[Floats]
    size: Floats


def place_beside(
    sizes: Floats, lower: float, lines: Sequence[tuple[End, End]], gap: float
) -> Beside:
    """Columns beside each other, the right one lower by so much, and lines that turn
    above and below them. Each line begins at a column.
    """
    beside = sizes[0, 0] + gap

    def reach(i: int) -> float:
        """How far a line leads sideways: the others turn inside it."""
        begin, end = lines[i]
        across = beside if end.column is not None else 0.0
        return across + end.x - begin.x

    order = sorted(range(len(lines)), key=reach)
    above = [i for i in order if _turns(lines[i], top=True)]
    below = [i for i in order if _turns(lines[i], top=False)]

    top = TURN + STEP * len(above) if above else 0.0
    corners = np.array([[0.0, max(-lower, 0.0)], [beside, max(lower, 0.0)]])
    corners[:, 1] += top
    right, bottom = (corners + sizes).max(axis=0).tolist()
    height = bottom + (TURN + STEP * len(below) if below else 0.0)

    def point(end: End) -> Floats:
        column = end.column or 0
        along = 0.0 if end.is_top else sizes[column, 1]
        placed: Floats = corners[column] + (end.x, along)
        return placed

    routes: list[Floats] = []
    for i, (begin, end) in enumerate(lines):
        x, y = point(begin)
        border = 0.0 if end.is_top else height
        if i not in above + below:
            routes.append(np.array([[x, y], [x, border]]))
            continue

        turns = above if i in above else below
        aside = STEP * (turns.index(i) + 1)
        level = top - aside if i in above else bottom + aside
        if end.column is not None:
            final = point(end)
        else:
            # down or up between the columns, or outside
            outside = i in above and begin.column == 1
            x_there = right + aside if outside else beside - gap / 2
            final = np.array([x_there, border])
        routes.append(np.array([[x, y], [x, level], [final[0], level], final]))

    beyond = max((float(route[:, 0].max()) + STEP for route in routes), default=0.0)
    return Beside(list(corners), routes, np.array([max(right, beyond), height]))


def _turns(ends: tuple[End, End], *, top: bool) -> bool:
    """Whether a line from a column turns above it, or below: on its way to the other
    column, or to the opposite border.
    """
    begin, end = ends
    return begin.is_top == top and (end.column is not None or end.is_top != top)
