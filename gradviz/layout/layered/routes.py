"""Polylines of edges: straight down inside rows, slanted only between them, so that no
edge cuts a taller neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import (
    Mask,
    by_key,
    counts,
    members,
    ranges,
    starts_of,
)
from gradviz.layout.layered.layers import BOTTOM, TOP, Layers, Sheet

# How high every row is, where each box stands in its row, and how much room lies
# between the rows.

PORT_GAP = 0.6  # of the gap between rows, beside a border
# px that an edge may go sideways between rows before they move apart
LEVEL_FREE = 200.0
LEVEL = 600.0  # px further sideways for every gap more
MOST_GAPS = 3.0
TURN = 22.0  # px that an edge takes to turn, above and below columns


class Rows(NamedTuple):
    """Rows by line number; y counts from the top of the component."""

    top: Floats  # (lines,)
    bottom: Floats
    y: Floats  # (boxes,) middle of every box
    height: Floats  # (components,)


def place_rows(sheet: Sheet, layers: Layers, x: Floats) -> Rows:
    """Rows as high as their highest box. Boxes without inputs stand at the bottom of
    theirs, unused ones at the top.
    """
    line = layers.line[: layers.boxes]
    first = layers.first_line[:-1]
    tall = by_key(np.maximum, sheet.heights, line, layers.lines, 0)
    slack = tall[line] - sheet.heights
    share = np.full(layers.boxes, 0.5)
    # a box that begins a flow stands low in its row, near what it leads to
    share[counts(sheet.below, layers.boxes) == 0] = 1.0
    # and one that ends it high, near what leads to it
    share[counts(sheet.above, layers.boxes) == 0] = 0.0
    depth = slack * share + sheet.heights / 2
    gap = _gaps(sheet, layers, x)
    for ends in sheet.levels.ends:
        _make_level(gap, tall, line, depth + sheet.levels.offset, ends)
    bottom = np.cumsum(tall + gap) - gap
    component_of_line = np.repeat(
        np.arange(layers.components), np.diff(layers.first_line)
    )
    origin = (bottom - tall)[first]
    bottom = bottom - origin[component_of_line]
    top = bottom - tall
    last = layers.first_line[1:] - 1
    return Rows(top, bottom, top[line] + depth, bottom[last])


def _make_level(gap: Floats, height: Floats, line: Ints, y: Floats, ends: Ints) -> None:
    """Widen gaps below rows so that what lies between two level lines is as high on the
    left as on the right. `y` says where in its row the line of each box is.
    """
    for (left, right), (next_left, next_right) in pairwise(ends.tolist()):
        # the right half is upside down
        halves = (left, next_left), (next_right, right)
        rows = [slice(line[above], line[below]) for above, below in halves]
        lengths = [
            (height[span] + gap[span]).sum() + y[below] - y[above]
            for span, (above, below) in zip(rows, halves)
        ]
        for span, length in zip(rows, lengths):
            gap[span] += (max(lengths) - length) / (span.stop - span.start)


def _gaps(sheet: Sheet, layers: Layers, x: Floats) -> Floats:
    """Room below every row. Edges that go far sideways get more, or they would be
    nearly level and hard to follow.
    """
    aside = (
        x[layers.below] - x[layers.above] - layers.above_offset + layers.below_offset
    )
    furthest = by_key(
        np.maximum, np.abs(aside), layers.line[layers.above], layers.lines, 0
    )
    gap = sheet.rank_gap * np.minimum(
        1 + np.maximum(furthest - LEVEL_FREE, 0) / LEVEL, MOST_GAPS
    )
    line = layers.line[: layers.boxes]
    # between a port and its box there is nothing to tell apart
    gap[line[sheet.pin == TOP]] *= PORT_GAP
    gap[line[sheet.pin == BOTTOM] - 1] *= PORT_GAP

    return gap + by_key(np.maximum, sheet.words, line, layers.lines, 0)


SAME = 1e-6  # px


class Routes(NamedTuple):
    """Polyline i is points[starts[i]:starts[i + 1]]."""

    points: Floats  # (p, 2)
    starts: Ints


def edge_routes(sheet: Sheet, layers: Layers, x: Floats, rows: Rows) -> Routes:
    """Routes of all edges of a sheet. y counts from the top of the component."""
    above, below, long = sheet.above, sheet.below, layers.long
    passed = np.zeros(len(above), np.int64)  # rows between the ends of each edge
    passed[long] = layers.row[below[long]] - layers.row[above[long]] - 1
    starts = starts_of(2 * passed + 4)
    points = np.empty((int(starts[-1]), 2))
    first, end, half = starts[:-1], starts[1:], sheet.heights / 2
    begin_x, end_x = x[above] + sheet.above_offset, x[below] + sheet.below_offset
    top, bottom = rows.top[layers.line], rows.bottom[layers.line]
    owner, step = ranges(passed[long])
    bend = layers.boxes + layers.first_bend[owner] + step
    into = first[long[owner]] + 2 + 2 * step

    for point, point_x, y in (
        (first, begin_x, rows.y[above] + half[above]),
        (first + 1, begin_x, bottom[above]),
        (into, x[bend], top[bend]),
        (into + 1, x[bend], bottom[bend]),
        (end - 2, end_x, top[below]),
        (end - 1, end_x, rows.y[below] - half[below]),
    ):
        points[point] = np.column_stack((point_x, y))

    return without_idle_points(Routes(points, starts))


def as_routes(lines: Sequence[Floats]) -> Routes:
    """Polylines in one."""
    sizes = np.array([len(line) for line in lines], np.int64)
    return Routes(np.concatenate([np.zeros((0, 2)), *lines]), starts_of(sizes))


def joined(routes: Routes, owner: Ints, piece: Ints, count: int) -> Routes:
    """`count` polylines made of others end to end; `owner` is sorted and says whose
    each piece is.
    """
    size, entry = members(routes.starts, piece)
    per_owner = np.bincount(owner, weights=size, minlength=count).astype(np.int64)
    return without_idle_points(Routes(routes.points[entry], starts_of(per_owner)))


def reversed_routes(routes: Routes, which: Ints) -> Routes:
    """The same polylines, those in `which` from their last point to their first."""
    size, entry = members(routes.starts, which)
    points = routes.points.copy()
    points[entry] = points[
        np.repeat(routes.starts[which] + routes.starts[which + 1] - 1, size) - entry
    ]
    return Routes(points, routes.starts)


def without_idle_points(routes: Routes) -> Routes:
    """Drop points that repeat the one before, then points in the middle of vertical
    lines.
    """
    idle = ~_first(routes)
    idle[1:] &= _is_same(routes.points).all(axis=1)
    routes = _drop(routes, idle)

    upright = ~_first(routes)
    upright[1:] &= _is_same(routes.points[:, 0])
    idle = np.zeros_like(upright)
    # both pieces that meet there are pieces of its own line
    idle[:-1] = upright[:-1] & upright[1:]
    return _drop(routes, idle)


def _is_same(values: Floats) -> Mask:
    """Whether each is the one before, from the second on."""
    same: Mask = np.abs(values[1:] - values[:-1]) < SAME
    return same


def _drop(routes: Routes, idle: Mask) -> Routes:
    kept_before = np.append(0, np.cumsum(~idle))
    return Routes(routes.points[~idle], kept_before[routes.starts])


def _first(routes: Routes) -> Mask:
    """True for the first point of each polyline."""
    first = np.zeros(len(routes.points) + 1, np.bool_)
    first[routes.starts] = True
    return first[:-1]
