"""A U: its halves beside each other, and the lines that lead into them, from one to the
other, and out of them.

The right half is upside down: lines enter it from below and leave it at the top. Skips
are not among them: they cross the channel between the halves on level lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.geometry import Geometry
from gradviz.layout.layered.routes import TURN, Routes, as_routes
from gradviz.layout.layered.rows import PORT_GAP
from gradviz.layout.layered.sheet import SkipEnds
from gradviz.layout.layered.u_shapes import UShape

BETWEEN_HALVES = 110.0  # px, where skips have their words
LANE = 12.0  # px between two lines that turn

LEFT, RIGHT, BORDER = range(3)


class Halves:
    """The two halves of a U, which are frames of their own, and what its skips join."""

    def __init__(self, shape: UShape, skips: Ints, geometry: Geometry) -> None:
        self.shape, self._geometry = shape, geometry
        way_out = geometry.hierarchy.tree.way_out
        left, right = skips.T.tolist()
        # from the box at each end of a skip out to its half
        self.left_ways = [way_out(box, shape.left) for box in left]
        self.right_ways = [way_out(box, shape.right) for box in right]

    def skips_on(self, sheet: Ints) -> SkipEnds:
        """The skips on the sheet of these nodes, on which both halves are drawn."""
        ways = [*self.left_ways, *self.right_ways]
        items = np.array([way[-2] for way in ways])
        depths = np.array([self._geometry.depth(way[:-1]) for way in ways])
        boxes = np.searchsorted(sheet, items)
        return SkipEnds(boxes.reshape(2, -1), depths.reshape(2, -1))

    def place(self, gap: float, rank_gap: float) -> Floats:
        """Place the halves, and the ports of the frame that they fill: its size."""
        geometry, shape = self._geometry, self.shape
        halves = [shape.left, shape.right]
        # the outermost skip is level, and the right half upside down
        drop = geometry.depth(self.left_ways[0]) + geometry.depth(self.right_ways[0])
        places = _put_beside(geometry.size[halves], drop)
        segments = np.flatnonzero(geometry.hierarchy.segments.frame == shape.frame)
        items, offsets = geometry.attachments(segments)
        sides = np.full_like(items, BORDER)
        sides[items == shape.left], sides[items == shape.right] = LEFT, RIGHT
        lines = _lines(sides, places.x[sides] + offsets, items[0])

        router = _Router(lines, places, gap, rank_gap)
        corner = np.array([0.0, router.top])
        routes = as_routes([np.array(router.route(line)) - corner for line in lines])
        geometry.add_routes(segments, routes)
        # ports stand where lines begin and end, and halves in their middles
        ends = np.array([routes.starts[:-1], routes.starts[1:] - 1])
        geometry.middle[items] = routes.points[ends]
        geometry.middle[halves] = np.column_stack((places.x[:2], places.y)) - corner
        return np.array([router.right, router.low - router.top])


def skip_lines(skips: Ints, middles: Floats, widths: Floats) -> Routes:
    """Skips as straight lines from side to side of the boxes that they join."""
    left, right = skips.T
    y = middles[left, 1]
    begin = np.column_stack((middles[left, 0] + widths[left] / 2, y))
    end = np.column_stack((middles[right, 0] - widths[right] / 2, y))
    return as_routes([*np.stack((begin, end), axis=1)])


class _HalfPlaces(NamedTuple):
    """Where two halves are, x from the left border, y from the middle of the left one."""

    x: Floats  # (3,) the middles of both, and of the channel between them
    y: Floats  # (2,) the middles of both
    roof: Floats  # (2,)
    floor: Floats  # (2,)
    right: float


def _put_beside(sizes: Floats, drop: float) -> _HalfPlaces:
    """Halves of these sizes, the middle of the right one so far below the other's."""
    wide, high = sizes.T
    begin, end = wide[LEFT], wide[LEFT] + BETWEEN_HALVES
    right = end + wide[RIGHT]
    x = np.array([begin / 2, right - wide[RIGHT] / 2, (begin + end) / 2])
    y = np.array([0.0, drop])
    return _HalfPlaces(x, y, y - high / 2, y + high / 2, float(right))


class _Line(NamedTuple):
    """What a line leads from and to, LEFT, RIGHT or BORDER, and where along it."""

    begin: int
    end: int
    begin_x: float
    end_x: float
    source: int  # lines that enter through one port have one source


def _lines(sides: Ints, x: Floats, source: Ints) -> list[_Line]:
    """Lines from their two sides, their two places along them, and their sources."""
    columns = [column.tolist() for column in (*sides, *x, source)]
    return [_Line(*row) for row in zip(*columns)]


class _Router:
    """The ways of lines around two halves. What enters the right half turns below both;
    what leaves it turns above it, and runs down beside it.
    """

    def __init__(
        self, lines: Sequence[_Line], places: _HalfPlaces, gap: float, rank_gap: float
    ) -> None:
        # lines that begin further right turn within the others
        inwards = sorted(lines, key=lambda line: -line.begin_x)
        entering = [line for line in inwards if line.end == RIGHT]
        leaving = [line for line in inwards if line.begin == RIGHT]
        _, _, roof, floor, right = places
        under, over, beside = floor.max() + TURN, roof[RIGHT] - TURN, right + gap
        self.under = {line: under + LANE * lane for lane, line in enumerate(entering)}
        self.over = {line: over - LANE * lane for lane, line in enumerate(leaving)}
        self.beside = {line: beside + LANE * lane for lane, line in enumerate(leaving)}

        self._gap = PORT_GAP * rank_gap
        has_entry = any(line.begin == BORDER for line in lines)
        has_exit = any(line.end == BORDER for line in lines)
        self.top = min(*roof, *self.over.values()) - self._gap * has_entry
        self.low = max(*floor, *self.under.values()) + self._gap * has_exit
        self.right = beside + LANE * len(leaving) if leaving else right
        self._begin_y = floor[LEFT], roof[RIGHT], self.top
        self._end_y = roof[LEFT], floor[RIGHT], self.low
        # a line that enters both halves begins above the left one
        into_left = [line for line in lines if line.end == LEFT]
        self._port_x = {line.source: line.end_x for line in into_left}

    def route(self, line: _Line) -> list[tuple[float, float]]:
        """The points of a line."""
        x, end_x = line.begin_x, line.end_x
        y, end_y = self._begin_y[line.begin], self._end_y[line.end]

        if line.end == RIGHT:
            port_x, under = self._port_x.get(line.source, x), self.under[line]
            turn = [(x, y + self._gap), (x, under), (end_x, under)]
            return [(port_x, y), *turn, (end_x, end_y)]
        if line.begin == RIGHT:
            over, beside = self.over[line], self.beside[line]
            return [(x, y), (x, over), (beside, over), (beside, end_y)]
        if line.end == LEFT:
            x = end_x
        return [(x, y), (x, end_y)]
