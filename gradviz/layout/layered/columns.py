"""Long drawings in columns, as text is: where one edge alone goes on, the rest may stand
beside what came before.

The edge turns below the last box of a column, runs up between the two, and comes down
on the first box of the next.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.layers import BOTTOM, Layers, Sheet
from gradviz.layout.layered.routes import TURN, Routes, Rows, as_routes

LONG, LONGEST = 1_000.0, 4_000.0  # px: what is broken into columns
EDGES = 2_000  # of a sheet, above which nobody reads it line by line
SHORTEST = 600.0  # px: a column on average
MOST = 4  # columns
WORTH = 0.66  # of the length, what the longest column may have
CHANNEL = 3.0  # of the gap between boxes, between two columns


Placed = tuple[Floats, Rows, Routes]
"""x of every point, the rows, and the routes of a sheet."""


def in_columns(sheet: Sheet, layers: Layers, placed: Placed) -> Placed:
    """The same with every long component in columns, where edges leave a place to break
    it.
    """
    height = placed[1].height
    if not 0 < len(sheet.above) <= EDGES:
        return placed

    # what is level with another drawing stays in its place
    free = np.ones(len(height), np.bool_)
    free[layers.component[layers.side != 0]] = False
    is_long = (height > LONG) & (height < LONGEST)
    for component in np.flatnonzero(is_long & free).tolist():
        last = _last_lines(sheet, layers, placed, component)
        if last:
            placed = _broken(sheet, layers, placed, component, np.array(last))
    return placed


def _last_lines(
    sheet: Sheet, layers: Layers, placed: Placed, component: int
) -> list[int]:
    """The lines that columns end with, about equally far apart; none where no edge is
    alone, or columns would hardly be shorter.
    """
    x, rows, _ = placed
    first, end = layers.first_line[component : component + 2].tolist()
    inside = layers.component == component
    width = float(np.ptp(x[inside])) + 2 * float(layers.half[inside].max())
    height = float(rows.height[component])
    count = round((height / (width + CHANNEL * layers.gap)) ** 0.5)
    count = min(count, int(height / SHORTEST), MOST)

    passing = np.bincount(layers.line[layers.above], minlength=layers.lines)
    alone = first + 1 + np.flatnonzero(passing[first + 1 : end - 2] == 1)
    if count < 2 or not len(alone):
        return []

    # where an edge is alone, as near as may be to columns of one length
    goals = height * np.arange(1, count) / count
    nearest = np.abs(rows.bottom[alone, None] - goals).argmin(axis=0)
    last = np.array(sorted(set(alone[nearest].tolist())))
    lengths = np.diff([0.0, *rows.bottom[last], height])
    return last.tolist() if lengths.max() <= WORTH * height else []


def _broken(
    sheet: Sheet, layers: Layers, placed: Placed, component: int, last: Ints
) -> Placed:
    """One component in columns that end with these lines."""
    x, rows, routes = placed
    inside = layers.component == component
    column = np.searchsorted(last, layers.line)
    channel = CHANNEL * layers.gap
    move, right = np.zeros((len(last) + 1, 2)), np.zeros(len(last) + 1)
    for number in range(len(last) + 1):
        points = inside & (column == number)
        left, furthest = (
            x[points] - layers.half[points],
            x[points] + layers.half[points],
        )
        if number:
            top = rows.top[last[number - 1] + 1]
            move[number] = right[number - 1] + channel - left.min(), TURN - top
        right[number] = furthest.max() + move[number, 0]

    low = rows.bottom[last] + move[:-1, 1]
    end = rows.height[component] + move[-1, 1]
    height = rows.height.copy()
    height[component] = max(low.max() + TURN, end)

    # ports at the bottom of the last column stand on the border
    more = np.where(sheet.pin == BOTTOM, height[component] - end, 0.0)
    boxes, of_box = inside[: layers.boxes], column[: layers.boxes]
    y = np.where(boxes, rows.y + move[of_box, 1] + more, rows.y)

    lines = np.split(routes.points, routes.starts[1:-1])
    for edge in np.flatnonzero(boxes[sheet.above]).tolist():
        begin, final = sheet.above[edge], sheet.below[edge]
        line = lines[edge] + move[column[begin]]
        if column[begin] != column[final]:
            tip = lines[edge][-1] + move[column[final]]
            middle = right[column[begin]] + channel / 2
            foot = low[column[begin]]
            down = [line[0, 0], foot], [middle, foot]
            up = [middle, TURN], [tip[0], TURN]
            line = np.array([line[0], *down, *up, tip])
        line[-1, 1] += more[final]
        lines[edge] = line

    x = np.where(inside, x + move[column, 0], x)
    return x, rows._replace(y=y, height=height), as_routes(lines)
