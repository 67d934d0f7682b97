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
from gradviz.layout.layered.routes import Routes, Rows

LONG, LONGEST = 1_000.0, 4_000.0  # px: what is broken into columns
EDGES = 2_000  # of a sheet, above which nobody reads it line by line
SHORTEST = 600.0  # px: a column on average
MOST = 4  # columns
WORTH, STEP = 0.66, 0.02  # of the length, what the longest column may have
TURN = 22.0  # px that an edge takes to turn, above and below columns
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

    x, y, height = x.copy(), rows.y.copy(), rows.height.copy()
    pieces = np.split(routes.points.copy(), routes.starts[1:-1])
    for component in long.tolist():
        breaks = _breaks(sheet, layers, x, rows, component)
        if breaks:
            _break(sheet, layers, x, y, height, rows, pieces, component, breaks)

    starts = starts_of(np.array([len(piece) for piece in pieces]))
    return BrokenUp(
        x,
        rows._replace(y=y, height=height),
        Routes(np.concatenate(pieces), starts),
    )


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


def _break(
    sheet: Sheet,
    layers: Layers,
    x: Floats,
    y: Floats,
    height: Floats,
    rows: Rows,
    pieces: list[Floats],
    component: int,
    breaks: list[int],
) -> None:
    """Move one component into columns that end with these lines, in place."""
    inside = np.flatnonzero(layers.component == component)
    column = np.searchsorted(breaks, layers.line[inside])
    boxes = inside < layers.boxes
    across, down, right = [0.0], [0.0], [0.0]
    for number in range(len(breaks) + 1):
        points = inside[column == number]
        low = float((x[points] - layers.half[points]).min())
        high = float((x[points] + layers.half[points]).max())
        if number:
            across.append(right[-1] + CHANNEL * layers.gap - low)
            down.append(TURN - float(rows.top[breaks[number - 1] + 1]))
        right.append(high + across[-1])

    bottoms = [rows.bottom[line] + down[i] + TURN for i, line in enumerate(breaks)]
    last = float(rows.height[component]) + down[-1]
    height[component] = max(*bottoms, last)

    x[inside] += np.array(across)[column]
    y[inside[boxes]] += np.array(down)[column[boxes]]
    column_of = dict(zip(inside.tolist(), column.tolist()))
    for edge in np.flatnonzero(layers.component[sheet.above] == component).tolist():
        start, end = (column_of[ends[edge]] for ends in (sheet.above, sheet.below))
        shift = np.array([[across[start], down[start]]])
        if start == end:
            pieces[edge] += shift
            continue

        head, tail = pieces[edge][:1] + shift, pieces[edge][-1:]
        tail = tail + np.array([[across[end], down[end]]])
        channel = right[start + 1] + CHANNEL * layers.gap / 2
        low, high = bottoms[start] - TURN, TURN
        pieces[edge] = np.concatenate(
            (
                head,
                [[head[0, 0], low], [channel, low]],
                [[channel, high], [tail[0, 0], high]],
                tail,
            )
        )

    _lengthen(sheet, y, pieces, inside[boxes], height[component] - last)


def _lengthen(
    sheet: Sheet, y: Floats, pieces: list[Floats], boxes: Ints, more: float
) -> None:
    """Take the ports at the bottom of the last column down to the border."""
    ports = boxes[sheet.pin[boxes] == BOTTOM]
    y[ports] += more
    for edge in np.flatnonzero(np.isin(sheet.below, ports)).tolist():
        pieces[edge][-1, 1] += more
