"""Long drawings in columns, as text is: where the edges of few boxes go on, the rest may
stand beside what came before.

They turn below the last box of a column, run up between the two, each source in a lane
of its own, and part above the first box of the next.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gradviz.layout import Floats
from gradviz.layout.layered.grouping import counts
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.routes import SAME, TURN, as_routes
from gradviz.layout.layered.rows import LayerPlacement, Rows
from gradviz.layout.layered.sheet import BOTTOM, Sheet

LONG, LONGEST = 1_000.0, 8_000.0  # px: what is broken into columns
OF_SLIDE = 1_500.0  # px, above which two lanes are better than a picture that is longer
EDGES = 2_000  # of a sheet, above which nobody reads it line by line
SHORTEST = 600.0  # px: a column on average
MOST = 6  # columns
LANES = 3  # sources of edges that go on, where no place has one alone
STUMP = 0.25  # of the length of a column, what the last one has at least
WORTH = 0.75  # of the length, what the longest column may have
CHANNEL = 3.0  # of the gap between boxes, between two columns
LANE = 8.0  # px between two lines that go on


def in_columns(sheet: Sheet, layers: Layers, placed: LayerPlacement) -> LayerPlacement:
    """The same with every long component in columns, where edges leave a place to break
    it.
    """
    height = placed.rows.height
    if not 0 < len(sheet.above) <= EDGES:
        return placed

    is_long = (height > LONG) & (height < LONGEST)
    for component in np.flatnonzero(is_long).tolist():
        last = _last_lines(sheet, layers, placed, component, 1)
        if not last and height[component] > OF_SLIDE:
            last = _last_lines(sheet, layers, placed, component, LANES)
        if last:
            placed = _broken(sheet, layers, placed, component, last)
    return placed


def _last_lines(
    sheet: Sheet, layers: Layers, placed: LayerPlacement, component: int, lanes: int
) -> list[int]:
    """The lines that columns end with; none where more sources than that go on
    everywhere, or columns would hardly be shorter.
    """
    x, rows, _ = placed
    first, end = layers.first_line[component : component + 2].tolist()
    left, right = layers.borders(x)
    width = float(right[component] - left[component])
    height = float(rows.height[component])
    count = round((height / (width + CHANNEL * sheet.gap)) ** 0.5)
    count = min(count, int(height / SHORTEST), MOST)

    pieces = zip(
        layers.pieces.above.tolist(), np.rint(layers.pieces.above_offset).tolist()
    )
    points = np.array([point for point, _ in set(pieces)], np.int64)
    sources = counts(layers.line[points], layers.lines)
    free = first + 1 + np.flatnonzero(sources[first + 1 : end - 2] <= lanes)
    if count < 2 or not len(free):
        return []

    ends = [0.0, *rows.bottom[free].tolist(), height]
    length = max(height / count, *(after - before for before, after in pairwise(ends)))
    last = _filled(ends, length)
    while last and height - ends[last[-1]] < STUMP * length:
        length *= 1.05
        last = _filled(ends, length)

    longest = max(np.diff([0.0, *(ends[place] for place in last), height]))
    return free[np.array(last) - 1].tolist() if longest <= WORTH * height else []


def _filled(ends: list[float], length: float) -> list[int]:
    """Where columns end that are filled as lines of a text are, each with what goes
    into it; not the last one.
    """
    last, start = list[int](), 0.0
    for place, (end, following) in enumerate(pairwise(ends)):
        if following > start + length + SAME:
            last.append(place)
            start = end
    return last


class _Break:
    """Where edges go on from one column to the next: each source in a lane, that of the
    rightmost one innermost.
    """

    def __init__(self, rows: Rows, last: int) -> None:
        self.bottom, self.top = float(rows.bottom[last]), float(rows.top[last + 1])
        self._sources: set[float] = set()

    def add(self, line: Floats) -> None:
        """Let an edge go on there."""
        self._sources.add(round(self.below(line), 1))

    def below(self, line: Floats) -> float:
        """Where a line leaves the column."""
        return float(np.interp(self.bottom, line[:, 1], line[:, 0]))

    def above(self, line: Floats) -> float:
        """Where it enters the next one."""
        return float(np.interp(self.top, line[:, 1], line[:, 0]))

    def aside(self, line: Floats) -> float:
        """How far its lane lies outside of the innermost one."""
        lanes = sorted(self._sources, reverse=True)
        return LANE * lanes.index(round(self.below(line), 1))

    @property
    def room(self) -> float:
        """What the lanes take."""
        return LANE * max(len(self._sources) - 1, 0)


def _with_ends(line: Floats, breaks: list[_Break]) -> Floats:
    """A line with a point wherever a column that it goes through ends or begins."""
    ends = [y for one in breaks for y in (one.bottom, one.top)]
    y = np.array([y for y in ends if line[0, 1] < y < line[-1, 1]])
    points = np.column_stack((np.interp(y, line[:, 1], line[:, 0]), y))
    every = np.concatenate([line, points])
    return every[np.argsort(every[:, 1], kind="stable")]


def _narrowed(x: Floats, half: Floats, most: float) -> tuple[Floats, Floats]:
    """What a column no longer needs between its boxes, without those that stood beside
    them in another: places from left to right, and where these go.
    """
    order = np.argsort(x - half)
    left = (x - half)[order]
    right = np.maximum.accumulate((x + half)[order])
    lost = np.cumsum(np.maximum(left[1:] - right[:-1] - most, 0.0))
    moved = np.append(0.0, lost)
    ends = np.column_stack((left, right)).ravel()
    return ends, ends - np.repeat(moved, 2)


def _move_across(
    lines: list[Floats], begin: float, end: float, ways: tuple[Floats, Floats]
) -> None:
    """Move the points of lines between two heights to where their places go."""
    for line in lines:
        here = (line[:, 1] >= begin) & (line[:, 1] < end)
        line[here, 0] = np.interp(line[here, 0], *ways)


def _broken(
    sheet: Sheet,
    layers: Layers,
    placed: LayerPlacement,
    component: int,
    last: list[int],
) -> LayerPlacement:
    """One component in columns that end with these lines."""
    x, rows, routes = placed
    inside = layers.component == component
    column = np.searchsorted(last, layers.line)
    lines = np.split(routes.points, routes.starts[1:-1])
    edges = np.flatnonzero(inside[sheet.above]).tolist()
    breaks = [_Break(rows, line) for line in last]
    for edge in edges:
        lines[edge] = _with_ends(lines[edge], breaks)
    begins = [-np.inf, *(one.top - SAME for one in breaks), np.inf]
    own = [lines[edge] for edge in edges]
    for number, (begin, end) in enumerate(pairwise(begins)):
        points = inside & (column == number)
        ways = _narrowed(x[points], layers.half[points], 2 * sheet.gap)
        x = np.where(points, np.interp(x, *ways), x)
        _move_across(own, begin, end, ways)
    for edge in edges:
        for number in range(column[sheet.above[edge]], column[sheet.below[edge]]):
            breaks[number].add(lines[edge])

    channel = CHANNEL * sheet.gap
    move, right = np.zeros((len(last) + 1, 2)), np.zeros(len(last) + 1)
    for number in range(len(last) + 1):
        points = inside & (column == number)
        left = (x[points] - layers.half[points]).min()
        if number:
            before = breaks[number - 1]
            across = right[number - 1] + channel + before.room - left
            move[number] = across, TURN + before.room - before.top
        right[number] = (x[points] + layers.half[points]).max() + move[number, 0]

    end = rows.height[component] + move[-1, 1]
    lowest = [b.bottom + m + b.room + TURN for b, m in zip(breaks, move[:, 1])]
    height = rows.height.copy()
    height[component] = max(*lowest, end)

    # ports at the bottom of the last column stand on the border
    more = np.where(sheet.pin == BOTTOM, height[component] - end, 0.0)
    boxes, of_box = inside[: layers.boxes], column[: layers.boxes]
    y = np.where(boxes, rows.y + move[of_box, 1] + more, rows.y)

    for edge in edges:
        line, final = lines[edge], sheet.below[edge]
        pieces, start = list[Floats](), -np.inf
        for number in range(column[sheet.above[edge]], column[final]):
            before, shift = breaks[number], move[number]
            part = line[(line[:, 1] >= start) & (line[:, 1] <= before.bottom)]
            aside = before.aside(line)
            foot = before.bottom + shift[1] + aside
            middle = right[number] + channel / 2 + aside
            head = TURN + before.room - aside
            down = [before.below(line) + shift[0], foot], [middle, foot]
            up = [middle, head], [before.above(line) + move[number + 1, 0], head]
            pieces += [part + shift, np.array([*down, *up])]
            start = before.top - SAME
        rest = line[line[:, 1] >= start] + move[column[final]]
        lines[edge] = np.concatenate([*pieces, rest])
        lines[edge][-1, 1] += more[final]

    x = np.where(inside, x + move[column, 0], x)
    return LayerPlacement(x, rows._replace(y=y, height=height), as_routes(lines))
