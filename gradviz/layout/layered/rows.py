"""Where rows lie, and the edges through them: straight down inside rows, slanted only
between them, so that no edge cuts a taller neighbour.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import by_key, counts, ranges, sizes_of, starts_of
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.routes import Routes, without_idle_points
from gradviz.layout.layered.sheet import BOTTOM, TOP, Sheet

PORT_GAP = 0.6  # of the gap between rows, beside a border
# px that an edge may go sideways between rows before they move apart
LEVEL_FREE = 200.0
LEVEL = 600.0  # px further sideways for every gap more
MOST_GAPS = 3.0


class Rows(NamedTuple):
    """Rows by line number; y counts from the top of the component."""

    top: Floats  # (lines,)
    bottom: Floats
    y: Floats  # (boxes,) middle of every box
    height: Floats  # (components,)


class LayerPlacement(NamedTuple):
    """Where everything in a layered graph is, counted from an origin for each
    component.
    """

    x: Floats  # (points,) middles
    rows: Rows
    routes: Routes


def place_layers(sheet: Sheet, layers: Layers, x: Floats) -> LayerPlacement:
    """Find y for everything, with x known of all points."""
    rows = _place_rows(sheet, layers, x)
    return LayerPlacement(x, rows, _edge_routes(sheet, layers, x, rows))


def _place_rows(sheet: Sheet, layers: Layers, x: Floats) -> Rows:
    """Rows as high as their highest box. Boxes without inputs stand at the bottom of
    theirs, unused ones at the top.
    """
    line, first_line = layers.line[: layers.boxes], layers.first_line
    height = by_key(np.maximum, sheet.heights, line, layers.lines, 0)
    share = np.full(layers.boxes, 0.5)
    # a box that begins a flow stands low in its row, near what it leads to
    share[counts(sheet.below, layers.boxes) == 0] = 1.0
    # and one that ends it high, near what leads to it
    share[counts(sheet.above, layers.boxes) == 0] = 0.0
    depth = (height[line] - sheet.heights) * share + sheet.heights / 2

    gap = _gaps(sheet, layers, x)
    for boxes, offset in sheet.skips:
        _make_level(gap, height, line[boxes], depth[boxes] + offset)
    bottom = np.cumsum(height + gap) - gap
    origin = (bottom - height)[first_line[:-1]]
    bottom -= np.repeat(origin, sizes_of(first_line))
    top = bottom - height
    return Rows(top, bottom, top[line] + depth, bottom[first_line[1:] - 1])


def _make_level(gap: Floats, height: Floats, line: Ints, y: Floats) -> None:
    """Widen gaps below rows so that what lies between two skips is as high on the left
    as on the right. For both ends of every skip these are the line that its box stands
    in, and y from the top of that line.
    """
    # the right half is upside down
    drops = np.diff(y * np.array([[1], [-1]])).T.tolist()
    for (left, right), (next_left, next_right), drop in zip(line.T, line.T[1:], drops):
        spans = slice(left, next_left), slice(next_right, right)
        lengths = [(height[s] + gap[s]).sum() + y for s, y in zip(spans, drop)]
        for span, length in zip(spans, lengths):
            gap[span] += (max(lengths) - length) / (span.stop - span.start)


def _gaps(sheet: Sheet, layers: Layers, x: Floats) -> Floats:
    """Room below every row. Edges that go far sideways get more, or they would be
    nearly level and hard to follow.
    """
    pieces, lines = layers.pieces, layers.lines
    aside = (
        x[pieces.below] - x[pieces.above] - pieces.above_offset + pieces.below_offset
    )
    above = layers.line[pieces.above]
    furthest = by_key(np.maximum, np.abs(aside), above, lines, 0)
    gaps = 1 + np.maximum(furthest - LEVEL_FREE, 0) / LEVEL
    gap = sheet.rank_gap * np.minimum(gaps, MOST_GAPS)
    line = layers.line[: layers.boxes]
    # between a port and its box there is nothing to tell apart
    gap[line[sheet.pin == TOP]] *= PORT_GAP
    gap[line[sheet.pin == BOTTOM] - 1] *= PORT_GAP
    return gap + by_key(np.maximum, sheet.words, line, lines, 0)


def _edge_routes(sheet: Sheet, layers: Layers, x: Floats, rows: Rows) -> Routes:
    """Routes of all edges of a sheet."""
    above, below, bends = sheet.above, sheet.below, layers.bends
    passed = np.zeros(len(above), np.int64)  # rows between the ends of each edge
    passed[bends.long] = (layers.row[below] - layers.row[above])[bends.long] - 1
    starts = starts_of(2 * passed + 4)
    points = np.empty((int(starts[-1]), 2))
    first, end, half = starts[:-1], starts[1:], sheet.heights / 2
    begin_x, end_x = x[above] + sheet.above_offset, x[below] + sheet.below_offset
    top, bottom = rows.top[layers.line], rows.bottom[layers.line]
    owner, step = ranges(passed[bends.long])
    bend = layers.boxes + bends.first[owner] + step
    into = first[bends.long[owner]] + 2 + 2 * step

    for point, point_x, y in (
        (first, begin_x, rows.y[above] + half[above]),
        (first + 1, begin_x, bottom[above]),
        (into, x[bend], top[bend]),
        (into + 1, x[bend], bottom[bend]),
        (end - 2, end_x, top[below]),
        (end - 1, end_x, rows.y[below] - half[below]),
    ):
        points[point, 0], points[point, 1] = point_x, y

    return without_idle_points(Routes(points, starts))
