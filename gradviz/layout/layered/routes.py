"""Polylines of edges, all in two arrays: put together from pieces, turned round, and
without points that change nothing.

Plain index arithmetic on numpy arrays. Knows nothing of boxes and rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, members, sizes_of, starts_of

TURN = 22.0  # px that an edge takes to turn
SAME = 1e-6  # px


class Routes(NamedTuple):
    """Polyline i is points[starts[i]:starts[i + 1]]."""

    points: Floats  # (p, 2)
    starts: Ints


def as_routes(lines: Sequence[Floats]) -> Routes:
    """Polylines in one."""
    sizes = np.array([len(line) for line in lines], np.int64)
    return Routes(np.concatenate([np.zeros((0, 2)), *lines]), starts_of(sizes))


def concatenated(parts: Sequence[Routes]) -> Routes:
    """The polylines of all parts, one part after another."""
    sizes = np.concatenate([sizes_of(part.starts) for part in parts])
    points = np.concatenate([part.points for part in parts])
    return Routes(points, starts_of(sizes))


def joined(routes: Routes, owner: Ints, piece: Ints, count: int) -> Routes:
    """`count` polylines made of others end to end; `owner` is sorted and says whose
    each piece is.
    """
    size, entry = members(routes.starts, piece)
    per_owner = np.bincount(owner, weights=size, minlength=count).astype(np.int64)
    return Routes(routes.points[entry], starts_of(per_owner))


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
    (x, y), starts = routes.points.T, routes.starts
    routes = _drop(routes, _is_same(x, starts) & _is_same(y, starts))
    is_upright = _is_same(routes.points[:, 0], routes.starts)
    idle = np.zeros_like(is_upright)
    # both pieces that meet there are pieces of its own line
    idle[:-1] = is_upright[:-1] & is_upright[1:]
    return _drop(routes, idle)


def _is_same(values: Floats, starts: Ints) -> Mask:
    """Whether each is the one before on the same line."""
    is_same = np.zeros(len(values), np.bool_)
    is_same[1:] = np.abs(values[1:] - values[:-1]) < SAME
    is_same[starts[starts < len(values)]] = False
    return is_same


def _drop(routes: Routes, idle: Mask) -> Routes:
    return Routes(routes.points[~idle], starts_of(~idle)[routes.starts])
