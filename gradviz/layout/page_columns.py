"""Cuts a placement that is very long into columns side by side, to be read like columns of text.

Cuts run between boxes, where few edges and frames cross. An edge that crosses one ends in a stub below its column, and goes on
from a stub of the same number above the column that it leads to. A frame that crosses cuts has a piece in each column.

Takes time proportional to the drawing, a little more for sorting. Works on polylines that run downwards; knows no texts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gradviz.layout import Drawing, Floats, Ints, Placement, Rect

BETWEEN = 60.0  # px between two columns
STUBS = 44.0  # px above and below a column, for stubs and their numbers
STUB, LEVEL, LEVELS = 18.0, 11.0, 3  # how far the shortest stub reaches, and the longer ones of neighbours
NEIGHBOURS = 44.0  # px: stubs that are closer together than this get different lengths
CROWD = 50  # stubs that a new one is compared with
FRAME_COST = 3  # a cut frame is worse than that many cut edges
WINDOW = 0.1  # of a column's length: how far from the ideal place a cut may be
BORDER = 6.0  # px from a cut to the border of a frame's piece


class PageColumns(NamedTuple):
    """A placement in columns. Pieces of edges and frames that were cut stand behind the edges and frames there are.

    A cut edge keeps its first piece. `edge[j]` is the edge that extra piece j continues, `frame[j]` the frame likewise.
    """

    placement: Placement
    columns: int
    edge: Ints
    frame: Ints


def side_by_side(drawing: Drawing, placed: Placement) -> PageColumns:
    """The placement in so many columns that it becomes about as wide as it is high; in one where nothing can be cut."""
    wanted = round(float(np.sqrt(placed.height / (placed.width + BETWEEN))))
    cuts = _cuts(drawing, placed, max(wanted, 1))
    nothing = np.zeros(0, np.int64)
    return _Folder(drawing, placed, cuts).columns() if len(cuts) else PageColumns(placed, 1, nothing, nothing)


# -- where to cut ------------------------------------------------------------------------------------------------------


def _cuts(drawing: Drawing, placed: Placement, columns: int) -> Floats:
    """Heights to cut at, from the top: near equal parts, between boxes, where the least is cut."""
    gaps = _gaps(placed.y - drawing.heights / 2, placed.y + drawing.heights / 2)
    frames = np.array([(f.y, f.y + f.height) for f in placed.frames], np.float64).reshape(-1, 2)
    low, high = _reach(placed)
    cost = _crossing(gaps, low, high) + FRAME_COST * _crossing(gaps, frames[:, 0], frames[:, 1])
    length = placed.height / columns
    cuts: list[int] = []
    for i in range(1, columns):
        first, last = np.searchsorted(gaps, [(i - WINDOW) * length, (i + WINDOW) * length])
        first = max(int(first), cuts[-1] + 1 if cuts else 0)
        if first < last:
            away = np.abs(gaps[first:last] - i * length)
            cuts.append(first + int(np.lexsort((away, cost[first:last]))[0]))
    return gaps[cuts]


def _gaps(top: Floats, bottom: Floats) -> Floats:
    """Heights between boxes where no box is."""
    order = np.argsort(top, kind="stable")
    reached, begin = np.maximum.accumulate(bottom[order])[:-1], top[order][1:]
    free = begin > reached
    gaps: Floats = (reached[free] + begin[free]) / 2
    return gaps


def _reach(placed: Placement) -> tuple[Floats, Floats]:
    """The least and the largest height of every edge that is drawn."""
    drawn = np.flatnonzero(np.diff(placed.starts))
    if not len(drawn):
        return np.zeros(0), np.zeros(0)
    y, starts = placed.points[:, 1], placed.starts[drawn]
    return np.minimum.reduceat(y, starts), np.maximum.reduceat(y, starts)


def _crossing(gaps: Floats, low: Floats, high: Floats) -> Ints:
    """How many of these reach over each gap."""
    return np.searchsorted(np.sort(low), gaps) - np.searchsorted(np.sort(high), gaps)


# -- moving everything into its column ---------------------------------------------------------------------------------


class _Folder:
    """Column c shows the heights from `begin[c]` to `begin[c + 1]`."""

    def __init__(self, drawing: Drawing, placed: Placement, cuts: Floats) -> None:
        self.drawing, self.placed, self.cuts = drawing, placed, cuts
        self.begin = np.concatenate(([0.0], cuts, [placed.height]))
        self.step = placed.width + BETWEEN
        self.shift = np.column_stack((np.arange(len(cuts) + 1) * self.step, STUBS - self.begin[:-1]))
        self.stubs: dict[tuple[int, bool], list[list[float]]] = {}
        self.level_of: dict[tuple[int, bool, float], int] = {}

    def columns(self) -> PageColumns:
        placed, count = self.placed, len(self.cuts) + 1
        column = self._column(placed.y)
        points, starts, edge = self._edges()
        frames, frame = self._frames()
        moved = replace(
            placed,
            x=placed.x + column * self.step,
            y=placed.y - self.begin[column] + STUBS,
            points=points,
            starts=starts,
            frames=frames,
            width=count * self.step - BETWEEN,
            height=float(np.diff(self.begin).max()) + 2 * STUBS,
        )
        return PageColumns(moved, count, edge, frame)

    def _column(self, y: Floats) -> Ints:
        return np.searchsorted(self.cuts, y).astype(np.int64)

    def _edges(self) -> tuple[Floats, Ints, Ints]:
        """Points of all edges in their columns, then those of the second pieces, and whose these are."""
        placed, counts = self.placed, np.diff(self.placed.starts)
        drawn = np.flatnonzero(counts)
        ends = np.zeros((2, len(counts)), np.int64)
        ends[:, drawn] = self._column(placed.points[np.stack((placed.starts[drawn], placed.starts[drawn + 1] - 1)), 1])
        column, last = ends
        of_point = np.repeat(column, counts)
        y = np.clip(placed.points[:, 1], self.begin[of_point], self.begin[of_point + 1])
        points = np.column_stack((placed.points[:, 0], y)) + self.shift[of_point]
        kept: list[Floats] = []
        extra: list[Floats] = []
        done = 0
        cut = np.flatnonzero(column != last)
        for i in cut.tolist():
            start, end = placed.starts[i : i + 2].tolist()
            whole = placed.points[start:end]
            kept += [points[done:start], self._until_cut(whole, int(column[i]))]
            extra.append(self._until_cut(whole[::-1], int(last[i]))[::-1])
            counts[i] = len(kept[-1])
            done = end
        joined = np.concatenate((*kept, points[done:], *extra))
        sizes = np.concatenate((counts, [len(piece) for piece in extra]))
        return joined, np.append(0, np.cumsum(sizes)).astype(np.int64), cut

    def _until_cut(self, points: Floats, column: int) -> Floats:
        """A line from its start to where it leaves its column, and a stub beyond, in place."""
        low, high = self.begin[column], self.begin[column + 1]
        outside = np.flatnonzero((points[:, 1] < low) | (points[:, 1] > high))
        first = int(outside[0])  # the line does not begin there
        (x0, y0), (x1, y1) = points[first - 1], points[first]
        downwards = bool(y1 > high)
        border = high if downwards else low
        x = x0 + (x1 - x0) * (border - y0) / (y1 - y0)
        length = STUB + LEVEL * self._level(float(x), column, downwards)
        ending = np.array([(x, border), (x, border + length if downwards else border - length)])
        moved: Floats = np.concatenate((points[:first], ending)) + self.shift[column]
        return moved

    def _level(self, x: float, column: int, below: bool) -> int:
        """Which of the lengths a stub gets: one that no stub close to it has, where there is one. Lines of one trunk share it."""
        known = self.level_of.get((column, below, round(x)))
        if known is not None:
            return known
        levels = self.stubs.setdefault((column, below), [[] for _ in range(LEVELS)])
        free = (i for i, ends in enumerate(levels) if all(abs(end - x) >= NEIGHBOURS for end in ends[-CROWD:]))
        level = next(free, min(range(LEVELS), key=lambda i: len(levels[i])))
        levels[level].append(x)
        self.level_of[column, below, round(x)] = level
        return level

    def _frames(self) -> tuple[tuple[Rect, ...], Ints]:
        first: list[Rect] = []
        extra: list[Rect] = []
        of: list[int] = []
        for i, frame in enumerate(self.placed.frames):
            begin, end = self._column(np.array([frame.y, frame.y + frame.height])).tolist()
            pieces = [self._piece(frame, column) for column in range(begin, end + 1)]
            first.append(pieces[0])
            extra += pieces[1:]
            of += [i] * (len(pieces) - 1)
        return (*first, *extra), np.array(of, np.int64)

    def _piece(self, frame: Rect, column: int) -> Rect:
        top = max(frame.y, float(self.begin[column]) - BORDER)
        bottom = min(frame.y + frame.height, float(self.begin[column + 1]) + BORDER)
        x = frame.x + column * self.step
        return Rect(x, top - float(self.begin[column]) + STUBS, frame.width, bottom - top)
