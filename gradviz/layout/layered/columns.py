"""Long drawings in columns, as text is: where one edge alone goes on, the rest may stand
beside what came before.

The edge turns below the last box of a column, runs up between the two, and comes down
on the first box of the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import starts_of
from gradviz.layout.layered.layers import BOTTOM, Layers, Sheet
from gradviz.layout.layered.routes import TURN, Routes, Rows

LONG, LONGEST = 1_000.0, 4_000.0  # px: what is broken into columns
EDGES = 2_000  # of a sheet, above which nobody reads it line by line
SHORTEST = 600.0  # px: a column on average
MOST = 4  # columns
WORTH, STEP = 0.66, 0.02  # of the length, what the longest column may have
CHANNEL = 3.0  # of the gap between boxes, between two columns


class BrokenUp(NamedTuple):
    """Where points and boxes of a sheet are when long components stand in columns."""

    x: Floats  # (points,)
    rows: Rows
    routes: Routes


def in_columns(
    sheet: Sheet, layers: Layers, x: Floats, rows: Rows, routes: Routes
) -> BrokenUp:
    """The same with every long component in columns, where edges leave a place to break
    it.
    """
    long = np.flatnonzero((rows.height > LONG) & (rows.height < LONGEST))
    if not len(long) or not 0 < len(sheet.above) <= EDGES:
        return BrokenUp(x, rows, routes)

    breaker = _Breaker(sheet, layers, x, rows, routes)
    for component in long.tolist():
        ends = _breaks(sheet, layers, x, rows, component)
        if ends:
            breaker.break_up(component, ends)
    return breaker.result()


def _breaks(
    sheet: Sheet, layers: Layers, x: Floats, rows: Rows, component: int
) -> list[int]:
    """The lines that columns end with, about equally far apart; none where no edge is
    alone.
    """
    first, end = layers.first_line[component : component + 2].tolist()
    inside = layers.component == component
    if inside[sheet.above[layers.left_out]].any():
        return []

    width = float(np.ptp(x[inside])) + 2 * float(layers.half[inside].max())
    height = float(rows.height[component])
    count = round((height / (width + CHANNEL * layers.gap)) ** 0.5)
    count = min(count, int(height / SHORTEST), MOST)

    passing = np.bincount(layers.line[layers.above], minlength=layers.lines)
    alone = [line for line in range(first + 1, end - 2) if passing[line] == 1]
    bottoms = [float(rows.bottom[line]) for line in alone]
    for limit in np.arange(1 / max(count, 1), WORTH, STEP) * height:
        ends = _ends(bottoms, float(limit), height)
        if len(ends) < count:
            return [alone[i] for i in ends]
    return []


def _ends(bottoms: Sequence[float], limit: float, height: float) -> list[int]:
    """Of the places where a drawing may be broken, those that leave no part longer than
    the limit; as many as there are where that cannot be.
    """
    ends: list[int] = []
    top = 0.0
    while height - top > limit:
        fitting = [i for i, bottom in enumerate(bottoms) if top < bottom <= top + limit]
        if not fitting:
            return list(range(MOST))
        ends.append(fitting[-1])
        top = bottoms[fitting[-1]]
    return ends


class _Breaker:
    """Moves the components of a sheet into columns."""

    def __init__(
        self, sheet: Sheet, layers: Layers, x: Floats, rows: Rows, routes: Routes
    ) -> None:
        self._sheet, self._layers, self._rows = sheet, layers, rows
        self._x, self._y, self._height = x.copy(), rows.y.copy(), rows.height.copy()
        self._lines = np.split(routes.points.copy(), routes.starts[1:-1])
        self._channel = CHANNEL * layers.gap

    def result(self) -> BrokenUp:
        """The sheet as it is now."""
        starts = starts_of(np.array([len(line) for line in self._lines]))
        return BrokenUp(
            self._x,
            self._rows._replace(y=self._y, height=self._height),
            Routes(np.concatenate(self._lines), starts),
        )

    def break_up(self, component: int, ends: list[int]) -> None:
        """Move one component into columns that end with these rows."""
        layers, rows = self._layers, self._rows
        points = np.flatnonzero(layers.component == component)
        column = np.searchsorted(ends, layers.line[points])
        move, right = self._moves(points, column, ends)

        bottoms = [rows.bottom[end] + move[i, 1] + TURN for i, end in enumerate(ends)]
        last = float(rows.height[component]) + float(move[-1, 1])
        self._height[component] = max(*bottoms, last)

        self._x[points] += move[column, 0]
        is_box = points < layers.boxes
        boxes = points[is_box]
        self._y[boxes] += move[column[is_box], 1]

        column_of = dict(zip(points.tolist(), column.tolist()))
        sheet = self._sheet
        for edge in np.flatnonzero(layers.component[sheet.above] == component).tolist():
            start = column_of[int(sheet.above[edge])]
            end = column_of[int(sheet.below[edge])]
            line = self._lines[edge]
            if start == end:
                self._lines[edge] = line + move[start]
                continue

            first, final = line[:1] + move[start], line[-1:] + move[end]
            middle = right[start] + self._channel / 2
            low, high = bottoms[start] - TURN, TURN
            down = [[first[0, 0], low], [middle, low]]
            up = [[middle, high], [final[0, 0], high]]
            self._lines[edge] = np.concatenate((first, down, up, final))

        self._lengthen(boxes, self._height[component] - last)

    def _moves(
        self, points: Ints, column: Ints, ends: list[int]
    ) -> tuple[Floats, list[float]]:
        """How far each column moves to the right and down, and its right border then."""
        x, half = self._x, self._layers.half
        moves: list[tuple[float, float]] = []
        right: list[float] = []
        for number in range(len(ends) + 1):
            inside = points[column == number]
            across = down = 0.0
            if number:
                left = float((x[inside] - half[inside]).min())
                across = right[-1] + self._channel - left
                down = TURN - float(self._rows.top[ends[number - 1] + 1])
            moves.append((across, down))
            right.append(float((x[inside] + half[inside]).max()) + across)
        return np.array(moves), right

    def _lengthen(self, boxes: Ints, more: float) -> None:
        """Take the ports at the bottom of the last column down to the border."""
        ports = boxes[self._sheet.pin[boxes] == BOTTOM]
        self._y[ports] += more
        for edge in np.flatnonzero(np.isin(self._sheet.below, ports)).tolist():
            self._lines[edge][-1, 1] += more
