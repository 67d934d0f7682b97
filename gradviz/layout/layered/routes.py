"""Polylines of edges, all in two arrays: put together from pieces, turned round, and
without points that change nothing.

Plain index arithmetic on numpy arrays. Knows nothing of boxes and rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, members, starts_of

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
    sizes = np.concatenate([np.diff(part.starts) for part in parts])
    points = np.concatenate([part.points for part in parts])
    return Routes(points, starts_of(sizes))


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
