"""Where along a box's edge its lines begin and end: side by side in the order they come from, not all in one point.

For placements whose lines run from middle to middle, downwards. A line that comes straight down stays straight. This
module works on whole arrays and knows positions only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gradviz.draw.scene import Scene
from gradviz.draw.sizing import Sized
from gradviz.layout.model import (
    Drawing,
    Floats,
    Ints,
    Placement,
)

# Draws links from a box to itself, which no layout engine does: a loop at the side of the box. The layout is asked
# for boxes with room for the loop on both sides, so that the box itself stays in the middle.

ROOM = 26.0  # between a box and the outermost point of its loop


def rooms(drawn: Scene) -> Floats:
    """How much wider each box must be placed, for the loops on it."""
    found = np.zeros(len(drawn.boxes))
    found[[link.source for link in drawn.links if link.source == link.target]] = 2 * ROOM
    return found


def drawn(placement: Placement, scene: Scene, sizes: list[Sized], *, flat: bool) -> Placement:
    """The placement with a curve for each loop: at the right of its box, or below it where data flows sideways.

    Other lines of such a box end at the box itself, and not at the room around it.
    """
    looped = {link.source for link in scene.links if link.source == link.target}
    if not looped:
        return placement
    pieces = np.split(placement.points.copy(), placement.starts[1:-1])
    for i, link in enumerate(scene.links):
        if link.source == link.target:
            pieces[i] = _curve(placement.x[link.source], placement.y[link.source], sizes[link.source], flat)
            continue
        for box, end in ((link.source, 0), (link.target, -1)):
            if box in looped and len(pieces[i]):
                _attach(pieces[i][end], placement.x[box], placement.y[box], sizes[box], flat)
    starts = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    return replace(placement, points=np.concatenate(pieces), starts=starts)


def _attach(end: Floats, x: float, y: float, size: Sized, flat: bool) -> None:
    """Moves the end of a line sideways onto its box."""
    axis, middle, half = (1, y, size.height / 2) if flat else (0, x, size.width / 2)
    end[axis] = min(max(end[axis], middle - half), middle + half)


def _curve(x: float, y: float, size: Sized, flat: bool) -> Floats:
    """Control points of two cubic pieces: out of the box near one corner, and back into it near the next."""
    along, out = (size.width, size.height) if flat else (size.height, size.width)
    reach, half, edge = ROOM * 0.8, along * 0.3, out / 2
    points = [(edge, half), (edge + reach * 0.6, half), (edge + reach, half * 0.6), (edge + reach, 0.0)]
    points += [(edge + reach, -half * 0.6), (edge + reach * 0.6, -half), (edge, -half)]
    shape = np.array(points)
    return np.column_stack([x + shape[:, 1], y + shape[:, 0]] if flat else [x + shape[:, 0], y + shape[:, 1]])


STEP = 14.0  # between two ports, where the box is wide enough
LEAST_STEP = 3.0  # lines closer than this would blot: they keep the same point
CORNER = 9.0  # no port nearer to the end of a side
TWIN_STEP = 8.0  # between lines that join the same two boxes
TWIN_ROOM = 7.0  # how far such lines may move to either side; other boxes are further away
SHORT = 48.0  # a straight end longer than this passes other boxes, so it stays where it is

Bools = npt.NDArray[np.bool_]


class _Ends(NamedTuple):
    """One end of every drawn line: the straight run of points it ends with, and where it comes from."""

    box: Ints
    first: Ints  # points first..last belong to the straight end
    last: Ints
    side: Floats  # how far to the right the line comes from; 0 when it stays straight
    bundle: Ints  # equal for lines of one box that turn at the same point: they are drawn as one until they part


def spread(drawing: Drawing, placement: Placement) -> Placement:
    """The placement with a port for each line. Curved placements have their own and stay as they are."""
    if placement.curved or not len(placement.points):
        return placement
    points = placement.points.copy()
    drawn = np.flatnonzero(np.diff(placement.starts) >= 2)
    edges, starts = drawing.edges[drawn], placement.starts[drawn]
    lasts = placement.starts[drawn + 1] - 1
    _part_twins(points, edges, starts, lasts)
    for ends in (_ends(points, edges[:, 0], starts, lasts, 1), _ends(points, edges[:, 1], lasts, starts, -1)):
        move = _offsets(ends, drawing.widths / 2 - CORNER)
        _shift(points, np.minimum(ends.first, ends.last), np.abs(ends.last - ends.first) + 1, move)
    return replace(placement, points=points)


def _part_twins(points: Floats, edges: Ints, starts: Ints, lasts: Ints) -> None:
    """Moves whole lines that join the same two boxes apart, for else they hide each other."""
    _, group, sizes = np.unique(edges, axis=0, return_inverse=True, return_counts=True)
    group = group.reshape(-1)
    order = np.argsort(group, kind="stable")
    begins = np.cumsum(sizes) - sizes
    rank = np.empty(len(edges), dtype=np.int64)
    rank[order] = np.arange(len(edges)) - begins[group[order]]
    step = np.minimum(TWIN_STEP, 2 * TWIN_ROOM / np.maximum(sizes - 1, 1))[group]
    _shift(points, starts, lasts - starts + 1, (rank - (sizes[group] - 1) / 2) * step)


def _ends(points: Floats, box: Ints, at: Ints, other: Ints, way: int) -> _Ends:
    """The straight ends at points `at` of lines that go on by steps of `way` to `other`."""
    first = at.copy()
    going = np.ones(len(at), dtype=bool)
    while going.any():
        following = np.where(first == other, first, first + way)
        straight = np.abs(points[following, 0] - points[at, 0]) < 0.5
        short = np.abs(points[following, 1] - points[at, 1]) <= SHORT
        going &= straight & short & (following != first)
        first = np.where(going, following, first)
    beyond = np.where(first == other, first, first + way)
    side = points[beyond, 0] - points[at, 0]
    return _Ends(box, first, at, np.where(np.abs(side) < 0.5, 0.0, side), _bundles(box, points[beyond]))


def _bundles(box: Ints, turn: Floats) -> Ints:
    """A number for each line, equal for those of one box that turn at the same point."""
    order = np.lexsort((turn[:, 0], turn[:, 1], box))
    differs = np.abs(np.diff(turn[order], axis=0)).max(axis=1, initial=0.0) > 0.5
    bundle = np.empty(len(box), dtype=np.int64)
    bundle[order] = np.cumsum(np.append(False, (np.diff(box[order]) != 0) | differs)[: len(box)])
    return bundle


def _offsets(ends: _Ends, room: Floats) -> Floats:
    """How far each end moves along its box's side: by its place among the box's ends, seen from the straight ones."""
    _, one = np.unique(ends.bundle, return_index=True)
    return _offsets_of(ends.box[one], ends.side[one], room)[ends.bundle]


def _offsets_of(box: Ints, side: Floats, room: Floats) -> Floats:
    count = len(room)
    order = np.lexsort((side, box))
    box, side = box[order], side[order]
    total = np.bincount(box, minlength=count)
    left = np.bincount(box[side < 0], minlength=count)[box]
    straight = np.bincount(box[side == 0], minlength=count)[box]
    rank = np.arange(len(box)) - (np.cumsum(total) - total)[box]
    unit = np.where(side < 0, rank - left, rank - left - straight + 1).astype(np.float64)
    unit = np.where(straight == 0, rank - (total[box] - 1) / 2, unit)
    unit[side == 0] = 0.0
    most = np.zeros(count)
    np.maximum.at(most, box, np.abs(unit))
    step = np.minimum(STEP, room[box] / np.maximum(most[box], 1.0))
    found = np.empty(len(box))
    found[order] = unit * np.where(step < LEAST_STEP, 0.0, step)
    return found


def _shift(points: Floats, first: Ints, counts: Ints, move: Floats) -> None:
    """Moves runs of points to the right."""
    moved = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
    points[moved, 0] += np.repeat(move, counts)
