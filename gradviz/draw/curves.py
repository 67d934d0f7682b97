"""Edges of a placement as smooth curves with arrowheads, and placements turned to another direction.

Curves are control points of cubic Bezier pieces: 1 + 3k points for each edge. Everything works on whole arrays, since a
drawing may have a million edges. This module knows positions only: no graph, no text, no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gradviz.draw.options import Direction
from gradviz.layout.model import (
    Drawing,
    Floats,
    Frame,
    Ints,
    Placement,
    Rect,
)

HEAD_LENGTH = 6.5
HEAD_HALF_WIDTH = 3.0


class Curves(NamedTuple):
    """Edge i's control points are `points[starts[i]:starts[i + 1]]`; its arrowhead is the triangle `heads[i]`.

    An edge that is not drawn has no points; a head that is not drawn is not a number.
    """

    points: Floats  # (p, 2)
    starts: Ints  # (m + 1,)
    heads: Floats  # (m, 3, 2) tip first


# -- direction -------------------------------------------------------------------------------------------------------


def sideways(drawing: Drawing) -> Drawing:
    """The drawing as a layout sees it that must run to the side: widths and heights exchanged."""
    frames = tuple(Frame(frame.parent, frame.title_height, frame.title_width) for frame in drawing.frames)
    return replace(drawing, widths=drawing.heights, heights=drawing.widths, frames=frames)


def turn(placement: Placement, direction: Direction) -> Placement:
    """The placement (made downwards, of a `sideways` drawing for left and right) with data flowing in `direction`."""
    if direction in ("right", "left"):
        placement = _transposed(placement)
    if direction == "left":
        return _mirrored(placement, 0, placement.width)
    if direction == "up":
        return _mirrored(placement, 1, placement.height)
    return placement


def _transposed(old: Placement) -> Placement:
    frames = tuple(Rect(f.y, f.x, f.height, f.width) for f in old.frames)
    points = old.points[:, ::-1]
    return replace(old, x=old.y, y=old.x, points=points, frames=frames, width=old.height, height=old.width)


def _mirrored(old: Placement, axis: int, size: float) -> Placement:
    points = old.points.copy()
    points[:, axis] = size - points[:, axis]
    if axis == 0:
        frames = tuple(Rect(size - f.x - f.width, f.y, f.width, f.height) for f in old.frames)
        return replace(old, x=size - old.x, points=points, frames=frames)
    frames = tuple(Rect(f.x, size - f.y - f.height, f.width, f.height) for f in old.frames)
    return replace(old, y=size - old.y, points=points, frames=frames)


def moved(placement: Placement, x: float, y: float) -> Placement:
    """The same placement further right and down."""
    frames = tuple(Rect(f.x + x, f.y + y, f.width, f.height) for f in placement.frames)
    return replace(
        placement, x=placement.x + x, y=placement.y + y, points=placement.points + np.array([x, y]), frames=frames
    )


# -- curves ----------------------------------------------------------------------------------------------------------


def smooth(placement: Placement) -> Placement:
    """The placement (made downwards) with its polylines as curves: upright at every point, so they bend like an S.

    A curve stays inside the box around the two points it joins, so it runs through nothing that the line avoided.
    """
    if placement.curved:
        return placement
    counts = np.diff(placement.starts)
    pieces = np.maximum(counts - 1, 0)
    sizes = np.where(pieces > 0, 1 + 3 * pieces, 0)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    points = np.empty((int(starts[-1]), 2))
    drawn = np.flatnonzero(pieces)
    points[starts[drawn]] = placement.points[placement.starts[drawn]]
    first = np.repeat(placement.starts[:-1], pieces) + _within(pieces)  # the point that each piece begins at
    place = np.repeat(starts[:-1], pieces) + 1 + 3 * _within(pieces)
    begin, end = placement.points[first], placement.points[first + 1]
    middle = (begin[:, 1] + end[:, 1]) / 2
    points[place] = np.stack([begin[:, 0], middle], axis=1)
    points[place + 1] = np.stack([end[:, 0], middle], axis=1)
    points[place + 2] = end
    return replace(placement, points=points, starts=starts, curved=True)


def _within(counts: Ints) -> Ints:
    """0, 1, ... inside each run of the given lengths."""
    total = int(counts.sum())
    begins = np.cumsum(counts) - counts
    return np.arange(total, dtype=np.int64) - np.repeat(begins, counts)


def with_heads(placement: Placement, pointed: Sequence[bool]) -> Curves:
    """Curves and their arrowheads; the pointed ones end where their heads begin. The placement must be curved."""
    points, starts = placement.points.copy(), placement.starts
    heads = np.full((len(starts) - 1, 3, 2), np.nan)
    drawn = np.flatnonzero((np.diff(starts) >= 4) & np.array(pointed, dtype=bool))
    last = starts[drawn + 1] - 1
    tip = points[last]
    along = _ending(points, last)
    across = along[:, ::-1] * [-1.0, 1.0]
    neck = tip - along * HEAD_LENGTH
    heads[drawn] = np.stack([tip, neck + across * HEAD_HALF_WIDTH, neck - across * HEAD_HALF_WIDTH], axis=1)
    room = np.hypot(*(tip - points[last - 3]).T) > 2 * HEAD_LENGTH
    shift = along * (HEAD_LENGTH - 1.0)  # the line goes a little into the head, so that no gap shows
    points[last[room]] -= shift[room]
    points[last[room] - 1] -= shift[room]
    return Curves(points, starts, heads)


def _ending(points: Floats, last: Ints) -> Floats:
    """Unit directions in which curves end, by the last control point that is not the end itself."""
    along = points[last] - points[last - 1]
    for back in (2, 3):
        flat = np.hypot(*along.T) < 1e-6
        along[flat] = (points[last] - points[last - back])[flat]
    length = np.hypot(*along.T)
    along[length < 1e-6] = (0.0, 1.0)
    length[length < 1e-6] = 1.0
    unit: Floats = along / length[:, None]
    return unit
