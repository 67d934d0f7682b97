"""Polylines of edges: straight down inside rows, slanted only between them, so that no edge cuts a taller neighbour."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import Mask, counts, first_of_runs, ranges, starts_of
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.rows import Rows
from gradviz.layout.layered.sheet import Sheet
from gradviz.layout.model import Floats, Ints

SAME = 1e-6  # px


class Routes(NamedTuple):
    """Polyline i is points[starts[i]:starts[i + 1]]."""

    points: Floats  # (p, 2)
    starts: Ints


class _Runs(NamedTuple):
    """Vertical runs between the ends of edges, sorted by edge, from above to below."""

    edge: Ints
    x: Floats
    first: Ints  # line
    last: Ints


def edge_routes(sheet: Sheet, layers: Layers, x: Floats, rows: Rows, channel_x: Floats) -> Routes:
    """Routes of all edges of a sheet. y counts from the top of the component."""
    runs = _vertical_runs(sheet, layers, x, channel_x)
    per_edge = counts(runs.edge, len(sheet.above))
    starts = starts_of(2 * per_edge + 4)
    points = np.empty((int(starts[-1]), 2))
    above, below, first, end = sheet.above, sheet.below, starts[:-1], starts[1:]
    points[first, 0] = points[first + 1, 0] = x[above] + sheet.above_offset
    points[first, 1] = rows.y[above] + sheet.heights[above] / 2
    points[first + 1, 1] = rows.bottom[layers.line[above]]
    points[end - 2, 0] = points[end - 1, 0] = x[below] + sheet.below_offset
    points[end - 2, 1] = rows.top[layers.line[below]]
    points[end - 1, 1] = rows.y[below] - sheet.heights[below] / 2
    _, at = ranges(first + 2, 2 * per_edge)
    points[at, 0] = np.repeat(runs.x, 2)
    points[at, 1] = np.column_stack((rows.top[runs.first], rows.bottom[runs.last])).ravel()
    return without_idle_points(Routes(points, starts))


def joined(routes: Routes, owner: Ints, piece: Ints, count: int) -> Routes:
    """`count` polylines made of others end to end; `owner` is sorted and says whose each piece is."""
    size = np.diff(routes.starts)[piece]
    _, entry = ranges(routes.starts[piece], size)
    per_owner = np.bincount(owner, weights=size, minlength=count).astype(np.int64)
    return without_idle_points(Routes(routes.points[entry], starts_of(per_owner)))


def reversed_routes(routes: Routes, which: Ints) -> Routes:
    """The same polylines, those in `which` from their last point to their first."""
    owner, entry = ranges(routes.starts[which], np.diff(routes.starts)[which])
    points = routes.points.copy()
    points[entry] = routes.points[routes.starts[which][owner] + routes.starts[which + 1][owner] - 1 - entry]
    return Routes(points, routes.starts)


def _vertical_runs(sheet: Sheet, layers: Layers, x: Floats, channel_x: Floats) -> _Runs:
    """Bend points above one another make one run; every channel is one run."""
    owner, bend = ranges(
        layers.first_bend, layers.row[sheet.below[layers.long]] - layers.row[sheet.above[layers.long]] - 1
    )
    bend_x, line, edge = x[layers.boxes + bend], layers.line[layers.boxes + bend], layers.long[owner]
    begins = np.zeros(len(edge), np.bool_)
    begins[first_of_runs(edge)] = True
    begins[1:] |= np.abs(np.diff(bend_x)) > SAME
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(edge))[: len(first)] - 1
    runs = _Runs(edge[first], bend_x[first], line[first], line[last])
    if not len(layers.left_out):
        return runs
    out = layers.left_out
    channels = _Runs(out, channel_x, layers.line[sheet.above[out]] + 1, layers.line[sheet.below[out]] - 1)
    both = [np.concatenate(columns) for columns in zip(runs, channels)]
    order = np.argsort(both[0], kind="stable")
    return _Runs(*(column[order] for column in both))


def without_idle_points(routes: Routes) -> Routes:
    """Drop points that repeat the one before, then points in the middle of vertical lines. Ends always stay."""
    routes = _drop(routes, _repeated(routes))
    return _drop(routes, _between(routes))


def _drop(routes: Routes, idle: Mask) -> Routes:
    kept_before = np.append(0, np.cumsum(~idle))
    return Routes(routes.points[~idle], kept_before[routes.starts])


def _inner(routes: Routes) -> Mask:
    """True for points that are neither the first nor the last of their polyline."""
    inner = np.ones(len(routes.points), np.bool_)
    filled = np.diff(routes.starts) > 0
    inner[routes.starts[:-1][filled]] = False
    inner[routes.starts[1:][filled] - 1] = False
    return inner


def _repeated(routes: Routes) -> Mask:
    idle = np.zeros(len(routes.points), np.bool_)
    same: Mask = np.abs(np.diff(routes.points, axis=0)).max(axis=1) < SAME
    inner = _inner(routes)
    idle[1:] = same & inner[1:]
    last = routes.starts[1:][np.diff(routes.starts) > 2] - 1  # the end stays, so what repeats it goes
    idle[last - 1] |= same[last - 1] & inner[last - 1]
    return idle


def _between(routes: Routes) -> Mask:
    idle = _inner(routes)
    level = np.abs(np.diff(routes.points[:, 0])) < SAME
    idle[1:-1] &= level[:-1] & level[1:]
    return idle
