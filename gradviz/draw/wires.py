"""The lines of a picture: where along a box's edge they begin and end, their curves and
arrowheads, downwards or to the right.

Curves are control points of cubic Bezier pieces: 1 + 3k points for each edge.
Everything works on whole arrays, since a drawing may have a million edges. This module
knows positions only: no graph, no text, no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gradviz.draw.scene import Scene
from gradviz.draw.typesetting import SIZES, Sized, text_width
from gradviz.layout import Drawing, Floats, Ints, Placement, Rect
from gradviz.layout.layered.grouping import (
    by_key,
    distinct_pairs,
    place_in_group,
    ranges,
    starts_of,
    unsorted,
)
from gradviz.layout.layered.routes import TURN, as_routes

# -- loops: links from a box to itself, which no layout draws --------------------------

# between a box and the outermost point of its loop: less than between two boxes
REACH = 16.0
HALF_LINE = 8.0
# how far from the middle of a side a loop leaves it, as a part of the side
ASIDE = 0.3
LOOP_POINTS = 7


def loop_width(drawn: Scene, boxes: Sequence[Sized], placement: Placement) -> float:
    """The width in which the drawing, in its middle, has the words of its loops beside
    it.
    """
    right = (
        placement.x[link.source]
        + boxes[link.source].width / 2
        + REACH
        + text_width(link.label, SIZES["dim"])
        for link in drawn.links
        if link.source == link.target
    )
    return 2 * max(right, default=0.0) - placement.width


def with_loops(
    placement: Placement, scene: Scene, boxes: Sequence[Sized], *, flat: bool
) -> Placement:
    """The placement with a curve for each loop: at the right of its box, or below it
    where data flows sideways.
    """
    loops = {
        i: link.source
        for i, link in enumerate(scene.links)
        if link.source == link.target
    }
    if not loops:
        return placement

    pieces = np.split(placement.points, placement.starts[1:-1])
    for i, box in loops.items():
        pieces[i] = _loop(placement.x[box], placement.y[box], boxes[box], flat)
    points, starts = as_routes(pieces)
    right, bottom = points.max(axis=0)
    return replace(
        placement,
        points=points,
        starts=starts,
        width=max(placement.width, float(right)),
        # half of the words beside a loop stands below it
        height=max(placement.height, float(bottom) + HALF_LINE),
    )


def _loop(x: float, y: float, size: Sized, flat: bool) -> Floats:
    """Control points of two cubic pieces: out of the box near one corner, and back into
    it near the next.
    """
    along, out = (size.width, size.height) if flat else (size.height, size.width)
    half, edge = along * ASIDE, out / 2
    far = edge + REACH * np.array([0.0, 0.6, 1.0, 1.0, 1.0, 0.6, 0.0])
    aside = half * np.array([1.0, 1.0, 0.6, 0.0, -0.6, -1.0, -1.0])
    shape = (aside, far) if flat else (far, aside)
    points: Floats = np.array([x, y]) + np.column_stack(shape)
    return points


def is_loop(points: Floats) -> bool:
    """Whether a line goes round at the right of its box."""
    if len(points) != LOOP_POINTS:
        return False

    (left, bottom), (right, _) = points[0], points[LOOP_POINTS // 2]
    # its arrow ends a little before the box
    end, top = points[-1]
    return bool(right - left == REACH and top < bottom and end < right)


def loop_corners(points: Floats) -> list[list[float]]:
    """The corners at the right of the box that a loop is beside, where its words may
    stand above or below; none for other lines, and where data flows sideways.
    """
    if not is_loop(points):
        return []

    (left, lowest), (_, middle) = points[0], points[LOOP_POINTS // 2]
    half = (lowest - middle) / (2 * ASIDE)
    top, bottom = middle - half, middle + half
    return [[left, top], [left, bottom]]


# -- ports: lines side by side in the order they come from, where they run from middle t

STEP = 14.0  # between two ports, where the box is wide enough
LEAST_STEP = 3.0  # lines closer than this would blot: they keep the same point
CORNER, CORNER_FLAT = (
    9.0,
    6.0,
)  # no port nearer to the end of a side, which is shorter there
TWIN_STEP = 8.0  # between lines that join the same two boxes
# how far such lines may move to either side; other boxes are further away
TWIN_ROOM = 7.0
# a straight end longer than this passes other boxes, so it stays where it is; where data
# flows sideways, boxes of one row differ more along it
SHORT, SHORT_FLAT = 48.0, 120.0


def spread(drawing: Drawing, placement: Placement, *, flat: bool = False) -> Placement:
    """The placement with a port for each line. A line that comes straight down stays
    straight. `flat`: it is made downwards, and will be turned.
    """
    if not len(placement.points):
        return placement

    points = placement.points.copy()
    drawn = np.flatnonzero(np.diff(placement.starts) >= 2)
    begin, final = placement.starts[drawn], placement.starts[drawn + 1] - 1
    # a level line has no port on top of its boxes or below them
    drawn = drawn[np.abs(points[final, 1] - points[begin, 1]) > 0.5]
    edges, starts = drawing.edges[drawn], placement.starts[drawn]
    lasts = placement.starts[drawn + 1] - 1
    # before ports: twins keep together when their ends move
    parted = np.tile(_part_twins(points, edges, starts, lasts), 2)
    # a box has ports below and above
    box = np.concatenate([edges[:, 0], edges[:, 1] + drawing.size])
    room = np.tile(drawing.widths / 2 - (CORNER_FLAT if flat else CORNER), 2)
    ends, others = np.concatenate([starts, lasts]), np.concatenate([lasts, starts])
    shared = _shared_runs(points, edges, lasts, drawing.size)
    short = np.append(np.zeros_like(shared), shared)
    short = np.maximum(short, SHORT_FLAT if flat else SHORT)
    _move_ends(points, parted, box, room, ends, others, short)
    return replace(placement, points=points)


def _shared_runs(points: Floats, edges: Ints, lasts: Ints, size: int) -> Floats:
    """How long lines from different boxes would run into each box as one. All of that
    is in the row of the box: of straight ends only the longest may pass others.
    """
    (aside, along), (above, below) = (points[lasts] - points[lasts - 1]).T, edges.T
    run = np.where(np.abs(aside) < 0.5, along, 0.0)
    order = np.argsort(run, kind="stable")
    longest = np.zeros(size, np.int64)
    longest[below[order]] = above[order]  # of several the last remains
    shorter = np.where(above == longest[below], 0.0, run)
    return by_key(np.maximum, shorter, below, size, 0.0)


def _part_twins(points: Floats, edges: Ints, starts: Ints, lasts: Ints) -> Floats:
    """Moves whole lines that join the same two boxes apart, for else they hide each
    other; returns how far each.
    """
    _, _, group = distinct_pairs(edges.T, int(edges.max(initial=0)) + 1)
    counts = np.bincount(group)
    step = np.minimum(TWIN_STEP, 2 * TWIN_ROOM / np.maximum(counts - 1, 1))[group]
    aside = (place_in_group(group) - (counts[group] - 1) / 2) * step
    _shift(points, starts, lasts - starts + 1, aside)
    return aside


def _move_ends(
    points: Floats,
    parted: Floats,
    box: Ints,
    room: Floats,
    ends: Ints,
    others: Ints,
    short: Floats,
) -> None:
    """Moves each end of a line, with the straight run before it where that is `short`
    for its box, to its own port there; `others` are the other ends. `parted`: how far
    each is from the middle.
    """
    way = np.sign(others - ends)
    aside, along = np.abs(points[ends + way] - points[ends]).T
    # the whole straight end moves, or the line would get a kink at the box
    last = np.where((aside < 0.5) & (along <= short[box]), ends + way, ends)
    beyond = np.where(last == others, last, last + way)
    # how far to the right the line comes from; 0 when it stays straight
    side = np.round(points[beyond, 0] - points[ends, 0], 3)
    side[np.abs(side) < 0.5] = 0.0
    bundle = _bundles(box, points[beyond])
    _, first = np.unique(bundle, return_index=True)
    move = _offsets(box[first], side[first], parted[first], room)[bundle]
    _shift(points, np.minimum(last, ends), np.abs(last - ends) + 1, move)


def _bundles(box: Ints, turn: Floats) -> Ints:
    """A number for each line, equal for those of one box that turn at the same point:
    they are drawn as one until they part.
    """
    keys = np.column_stack([turn, box])
    order = np.lexsort(keys.T)
    # lines that turn at one point run on top of each other up to there
    differs = np.abs(np.diff(keys[order], axis=0)).max(axis=1, initial=0.0) > 0.5
    return unsorted(np.cumsum(np.append(False, differs)[: len(box)]), order)


def _offsets(box: Ints, side: Floats, parted: Floats, room: Floats) -> Floats:
    """How far each end moves along its box's side: by its place among the box's ends,
    seen from the straight ones.
    """
    order = np.lexsort((side, box))
    box, side = box[order], side[order]
    rank = place_in_group(box)
    straight = side == 0
    has_straight = np.bincount(box, straight, len(room))[box] > 0
    # the places around which the others stand
    central = np.where(has_straight, straight, True)
    sums = np.bincount(box, rank * central, len(room))
    centre = sums[box] / np.bincount(box, central, len(room))[box]
    unit = np.where(straight, 0.0, rank - centre)
    step, aside = _steps(box, unit, room)
    # twins keep apart where they stay straight or have no port
    port = np.where(straight | (step[box] == 0), 0.0, unit * step[box] - parted[order])
    return unsorted(port - aside[box], order)


def _steps(box: Ints, unit: Floats, room: Floats) -> tuple[Floats, Floats]:
    """For each side of a box how far its ports are apart, and how far a straight line
    moves to the other side where there is no room beside it. `unit` counts from there.
    """
    left = by_key(np.maximum, -unit, box, len(room), 0.0)
    right = by_key(np.maximum, unit, box, len(room), 0.0)
    most = np.maximum(np.maximum(left, right), 1.0)
    step = np.minimum(STEP, room / most)
    # what leaves a box is one tensor as a rule, so only what arrives gives way
    crowded = np.flatnonzero(step < LEAST_STEP)
    crowded = crowded[crowded >= len(room) // 2]
    even = 2 * room / np.maximum(left + right, 1.0)
    step[crowded] = np.minimum(even, (room + TWIN_ROOM) / most)[crowded]
    # closer lines would look like one thick line
    step[step < LEAST_STEP] = 0.0
    return step, np.sign(right - left) * np.maximum(most * step - room, 0.0)


def _shift(points: Floats, first: Ints, counts: Ints, move: Floats) -> None:
    """Moves runs of points to the right."""
    line, step = ranges(counts)
    points[first[line] + step, 0] += move[line]


HEAD_LENGTH = 6.5
HEAD_HALF_WIDTH = 3.0


# -- direction -------------------------------------------------------------------------


def turned(placement: Placement) -> Placement:
    """The placement (made downwards, with widths and heights exchanged) with data
    flowing to the right.
    """
    frames = tuple(
        Rect(y, x, height, width) for x, y, width, height in placement.frames
    )
    return replace(
        placement,
        x=placement.y,
        y=placement.x,
        points=np.array(placement.points[:, ::-1]),
        frames=frames,
        width=placement.height,
        height=placement.width,
    )


def moved(placement: Placement, x: float, y: float) -> Placement:
    """The same placement further right and down."""
    points = placement.points + np.array([x, y])
    frames = tuple(
        frame._replace(x=frame.x + x, y=frame.y + y) for frame in placement.frames
    )

    return replace(
        placement, x=placement.x + x, y=placement.y + y, points=points, frames=frames
    )


# -- curves ----------------------------------------------------------------------------


def smooth(placement: Placement) -> Placement:
    """The placement (made downwards) with its polylines as curves: upright at every
    point, so they bend like an S.

    A curve stays inside the box around the two points it joins, so it runs through
    nothing that the line avoided.
    """
    counts = np.diff(placement.starts)
    pieces = np.maximum(counts - 1, 0)
    starts = starts_of(np.where(pieces > 0, 1 + 3 * pieces, 0))
    points = np.empty((int(starts[-1]), 2))
    drawn = np.flatnonzero(pieces)
    points[starts[drawn]] = placement.points[placement.starts[drawn]]
    # the point that each piece begins at
    line, number = ranges(pieces)
    first = placement.starts[line] + number
    place = starts[line] + 1 + 3 * number
    begin, end = placement.points[first], placement.points[first + 1]
    middle = (begin[:, 1] + end[:, 1]) / 2
    before = np.maximum(first - 1, placement.starts[line])
    bulge = _bulge(placement.points[before], begin, end)
    # a line that is level as a whole leads from side to side
    middle += np.where(pieces[line] == 1, 0.0, bulge)
    points[place] = np.column_stack([begin[:, 0], middle])
    points[place + 1] = np.column_stack([end[:, 0], middle])
    points[place + 2] = end

    return replace(placement, points=points, starts=starts)


def _bulge(before: Floats, begin: Floats, end: Floats) -> Floats:
    """How far below its ends a piece bends that goes level from one column to the next:
    a line that comes down turns below, one that comes up above. `before` is the point
    before a piece, or its own first one.
    """
    level = np.abs(begin[:, 1] - end[:, 1]) < 0.5
    aside = np.abs(begin[:, 0] - end[:, 0]) > 0.5
    comes_down = begin[:, 1] >= before[:, 1]
    return np.where(level & aside, np.where(comes_down, TURN, -TURN), 0.0)


class Curves(NamedTuple):
    """Edge i's control points are `points[starts[i]:starts[i + 1]]`; its arrowhead is
    the triangle `heads[i]`.

    An edge that is not drawn has no points; a head that is not drawn is not a number.
    """

    points: Floats  # (p, 2)
    starts: Ints  # (m + 1,)
    heads: Floats  # (m, 3, 2) tip first


def with_heads(placement: Placement, pointed: Sequence[bool]) -> Curves:
    """Curves and their arrowheads; the pointed ones end where their heads begin. The
    placement must be smooth.
    """
    points, starts = placement.points.copy(), placement.starts
    heads = np.full((len(starts) - 1, 3, 2), np.nan)
    drawn = np.flatnonzero((np.diff(starts) >= 4) & np.array(pointed, dtype=bool))
    last = starts[drawn + 1] - 1
    tip = points[last]
    along = _ending(points, last)
    across = along[:, ::-1] * [-1.0, 1.0]
    neck = tip - along * HEAD_LENGTH
    heads[drawn] = np.stack(
        [tip, neck + across * HEAD_HALF_WIDTH, neck - across * HEAD_HALF_WIDTH], axis=1
    )
    # the line goes a little into the head, so that no gap shows
    shift = along * (HEAD_LENGTH - 1.0)
    points[last] -= shift
    points[last - 1] -= shift
    return Curves(points, starts, heads)


def _ending(points: Floats, last: Ints) -> Floats:
    """Unit directions in which curves end, by the last control point that is not the
    end itself.
    """
    # of a line that ends level, the last two points are one
    flat = np.abs(points[last] - points[last - 1]).max(axis=1, initial=0.0) < 1e-6
    along = points[last] - points[np.where(flat, last - 2, last - 1)]
    length = np.hypot(*along.T)
    unit: Floats = along / np.maximum(length, 1e-6)[:, None]
    return unit
