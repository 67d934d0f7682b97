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
        # rows only ever move apart, so the column with the shorter distance stretches
        first, last = (a, c) if more > 0 else (d, b)
        further[first + 1 : last + 1] += abs(more) / max(last - first, 1)

    sums = np.cumsum(further)
    before = (sums - further)[layers.first_line[:-1]]
    lower = sums - np.repeat(before, np.diff(layers.first_line))
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

    corners: Floats
    lines: list[Floats]
    size: Floats


def place_beside(
    sizes: Floats, lower: float, lines: Sequence[tuple[End, End]], gap: float
) -> Beside:
    """Columns beside each other, the right one lower by so much, and lines that turn
    above and below them.
    """
    beside = _TwoColumns(sizes, lower, [_from_column(*line) for line in lines], gap)
    routes = [beside.route(i) for i in range(len(lines))]
    furthest = [float(route[:, 0].max()) + STEP for route in routes]
    size = np.array([max(beside.right, *furthest, 0.0), beside.height])

    for i, (begin, _) in enumerate(lines):
        if begin.column is None:
            routes[i] = routes[i][::-1]
    return Beside(beside.corners, routes, size)


def _from_column(begin: End, end: End) -> tuple[End, End]:
    """A line from a column to the other one, or to the border."""
    return (end, begin) if begin.column is None else (begin, end)


class _TwoColumns:
    """Two columns, and the levels on which lines turn."""

    def __init__(
        self, sizes: Floats, lower: float, lines: list[tuple[End, End]], gap: float
    ) -> None:
        self._sizes, self._lines = sizes, lines
        self._middle, beside = sizes[0, 0] + gap / 2, sizes[0, 0] + gap

        def reach(i: int) -> float:
            """How far a line leads sideways: the others turn inside it."""
            begin, end = lines[i]
            across = beside if end.column is not None else 0.0
            return across + end.x - begin.x

        turning = sorted((i for i in range(len(lines)) if self._turns(i)), key=reach)
        self._above = [i for i in turning if lines[i][0].is_top]
        self._below = [i for i in turning if not lines[i][0].is_top]

        self._top = TURN + STEP * len(self._above) if self._above else 0.0
        self.corners = np.array([[0.0, max(-lower, 0.0)], [beside, max(lower, 0.0)]])
        self.corners[:, 1] += self._top
        self.right, self._bottom = (self.corners + sizes).max(axis=0).tolist()
        turns = TURN + STEP * len(self._below) if self._below else 0.0
        self.height = self._bottom + turns

    def _turns(self, i: int) -> bool:
        """Whether a line turns: on its way to the other column, or to the opposite
        border.
        """
        begin, end = self._lines[i]
        return end.column is not None or end.is_top != begin.is_top

    def _point(self, end: End) -> list[float]:
        """Where a line ends at a column."""
        column = end.column or 0
        x, y = self.corners[column]
        return [x + end.x, y if end.is_top else y + self._sizes[column, 1]]

    def route(self, i: int) -> Floats:
        """The polyline of a line, from its column on."""
        begin, end = self._lines[i]
        x, y = self._point(begin)
        border = 0.0 if end.is_top else self.height
        if not self._turns(i):
            return np.array([[x, y], [x, border]])

        if begin.is_top:
            aside = STEP * (self._above.index(i) + 1)
            level = self._top - aside
        else:
            aside = STEP * (self._below.index(i) + 1)
            level = self._bottom + aside

        if end.column is not None:
            final = self._point(end)
        elif begin.is_top and begin.column == 1:
            final = [self.right + aside, border]
        else:
            final = [self._middle, border]
        return np.array([[x, y], [x, level], [final[0], level], final])
