"""Long drawings in columns, as text is: where the edges of few boxes go on, the rest may
stand beside what came before.

They turn below the last box of a column, run up between the two, each source in a lane
of its own, and part above the first box of the next.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, counts
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.routes import SAME, TURN, as_routes
from gradviz.layout.layered.rows import LayerPlacement
from gradviz.layout.layered.sheet import BOTTOM, Sheet

LONG, LONGEST = 1_000.0, 8_000.0  # px: what is broken into columns
OF_SLIDE = 1_500.0  # px, above which two lanes are better than a picture that is longer
EDGES = 2_000  # of a sheet, above which nobody reads it line by line
SHORTEST = 600.0  # px: a column on average
MOST = 6  # columns
SHORT = 180.0  # px: the longest column at least
LANES = 3  # sources of edges that go on, where no place has one alone
STUMP = 0.25  # of the length of a column, what the last one has at least
WORTH = 0.75  # of the length, what the longest column may have
COLUMN_GAPS = 3.0  # gaps between boxes that are between two columns
BETWEEN_LINES = 8.0  # px between two that go on


def in_columns(
    sheet: Sheet, layers: Layers, placed: LayerPlacement, rooms: Floats
) -> LayerPlacement:
    """The same with every component that is long, or has less room, in columns, where
    edges leave a place to break it.
    """
    height = placed.rows.height
    if not 0 < len(sheet.above) <= EDGES:
        return placed

    channel = COLUMN_GAPS * sheet.gap
    sources = _sources(layers)
    is_long = (height > np.minimum(rooms, LONG)) & (height < LONGEST)
    for component in np.flatnonzero(is_long).tolist():
        room = float(rooms[component])
        last = _last_lines(layers, placed, component, channel, sources <= 1, room)
        if not last and height[component] > min(OF_SLIDE, room):
            is_free = sources <= LANES
            last = _last_lines(layers, placed, component, channel, is_free, room)
        if last:
            placed = _broken(sheet, layers, placed, component, np.array(last))
    return placed


# -- where columns end -----------------------------------------------------------------


def _last_lines(
    layers: Layers,
    placed: LayerPlacement,
    component: int,
    channel: float,
    is_free: Mask,
    room: float,
) -> list[int]:
    """The lines that columns end with, which must be free; none where columns would
    hardly be shorter.
    """
    left, right = layers.borders(placed.x)
    width = float(right[component] - left[component])
    height = float(placed.rows.height[component])
    count = min(
        round((height / (width + channel)) ** 0.5), int(height / SHORTEST), MOST
    )
    first, end = layers.first_line[component : component + 2].tolist()
    free = first + 1 + np.flatnonzero(is_free[first + 1 : max(end - 2, 0)])
    bottoms = placed.rows.bottom[free].tolist()
    if room < np.inf and bottoms:
        return [int(free[place]) for place in _within(bottoms, height, room)]
    if count < 2 or not bottoms:
        return []

    ends = [0.0, *bottoms, height]
    length = max(height / count, *(after - before for before, after in pairwise(ends)))
    last = _filled(ends, length)
    while last and height - ends[last[-1]] < STUMP * length:
        length *= 1.05
        last = _filled(ends, length)

    longest = max(np.diff([0.0, *(ends[place] for place in last), height]))
    return free[np.array(last) - 1].tolist() if longest <= WORTH * height else []


def _sources(layers: Layers) -> Ints:
    """How many sources have edges that go on below each line."""
    pieces = layers.pieces
    ends = zip(pieces.above.tolist(), np.rint(pieces.above_offset).tolist())
    points = np.array([point for point, _ in set(ends)], np.int64)
    return counts(layers.line[points], layers.lines)


def _within(bottoms: list[float], height: float, room: float) -> list[int]:
    """Where columns end that are about even: as few as are no taller than the room, and
    none of them a stump.
    """
    for count in range(2, MOST):
        even = np.arange(1, count)[:, None] * height / count
        near: list[int] = sorted(set(abs(even - bottoms).argmin(axis=1).tolist()))
        columns = np.diff([0.0, *(bottoms[place] for place in near), height])
        longest, turns = columns.max(), TURN * min(count - 1, 2)
        if SHORT <= longest <= room - turns and columns.min() >= STUMP * longest:
            return near
    return []


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


# -- columns beside each other ---------------------------------------------------------


class _Column:
    """What lies between two heights of a component, and on its right a lane for each
    source of edges that go on to the next column, that of the rightmost one innermost.
    """

    def __init__(
        self, points: Ints, x: Floats, half: Floats, top: float, bottom: float
    ) -> None:
        self.points, self.top, self.bottom = points, top, bottom
        self.x, self.half = x[points], half[points]
        self.parts: dict[int, Floats] = {}  # of lines, by edge
        self.sources: list[float] = []  # x of those that go on, from the right
        self.move = np.zeros(2)

    @property
    def right(self) -> float:
        """Where it ends on the page."""
        return float((self.x + self.half).max() + self.move[0])

    @property
    def room(self) -> float:
        """What the lanes take."""
        return BETWEEN_LINES * (len(self.sources) - 1)

    def add(self, edge: int, line: Floats) -> None:
        """Take up the part of a line that lies in the column."""
        x, y = line.T
        ends = [min(max(end, y[0]), y[-1]) for end in (self.top, self.bottom)]
        begin_x, end_x = np.interp(ends, y, x)
        inner = line[(y > ends[0]) & (y < ends[1])]
        part = [(begin_x, ends[0]), *inner.tolist(), (end_x, ends[1])]
        self.parts[edge] = np.array(part)

    def narrow(self, most: float) -> None:
        """Take away what the column no longer needs between its boxes, without those
        that stood beside them in another.
        """
        order = np.argsort(self.x - self.half)
        left = (self.x - self.half)[order]
        right = np.maximum.accumulate((self.x + self.half)[order])
        lost = np.cumsum(np.maximum(left[1:] - right[:-1] - most, 0.0))
        ends = np.column_stack((left, right)).ravel()
        moved_ends = ends - np.repeat(np.append(0.0, lost), 2)
        self.x = np.interp(self.x, ends, moved_ends)
        for part in self.parts.values():
            part[:, 0] = np.interp(part[:, 0], ends, moved_ends)

    def go_on(self, following: _Column, channel: float) -> None:
        """Make lanes for what goes on to the next column, and put that beside them."""
        going = self.parts.keys() & following.parts.keys()
        sources = {round(self.parts[edge][-1, 0], 1) for edge in going}
        self.sources = sorted(sources, reverse=True)
        across = self.right + channel + self.room - (following.x - following.half).min()
        following.move = np.array([across, TURN + self.room - following.top])

    def turn(self, edge: int, following: _Column, channel: float) -> Floats:
        """The way of an edge to above the next column."""
        x, end_x = self.parts[edge][-1, 0], following.parts[edge][0, 0]
        aside = BETWEEN_LINES * self.sources.index(round(x, 1))
        foot, head = self.bottom + self.move[1] + aside, TURN + self.room - aside
        middle = self.right + channel / 2 + aside
        down = [x + self.move[0], foot], [middle, foot]
        return np.array([*down, [middle, head], [end_x + following.move[0], head]])


def _broken(
    sheet: Sheet, layers: Layers, placed: LayerPlacement, component: int, last: Ints
) -> LayerPlacement:
    """One component in columns that end with these lines."""
    columns = _cut_into_columns(layers, placed, component, last)
    column_of = np.searchsorted(last, layers.line)
    lines = np.split(placed.routes.points, placed.routes.starts[1:-1])
    ways: dict[int, list[_Column]] = {}
    is_inside = layers.component[: sheet.size] == component
    for edge in np.flatnonzero(is_inside[sheet.above]).tolist():
        first, final = column_of[[sheet.above[edge], sheet.below[edge]]]
        ways[edge] = columns[first : final + 1]
        for column in ways[edge]:
            column.add(edge, lines[edge])

    channel = COLUMN_GAPS * sheet.gap
    for column in columns:
        column.narrow(2 * sheet.gap)
    for column, following in pairwise(columns):
        column.go_on(following, channel)

    x, rows, _ = placed
    x, y, height = x.copy(), rows.y.copy(), rows.height.copy()
    for column in columns:
        boxes = column.points[column.points < layers.boxes]
        x[column.points] = column.x + column.move[0]
        y[boxes] += column.move[1]
    for edge, way in ways.items():
        lines[edge] = _line_through(way, edge, channel)
    end = height[component] + columns[-1].move[1]
    lowest = [c.bottom + c.move[1] + c.room + TURN for c in columns[:-1]]
    height[component] = max(*lowest, end)
    # ports at the bottom of the last column stand on the border
    is_port = is_inside & (sheet.pin == BOTTOM)
    y[is_port] += height[component] - end
    for edge in np.flatnonzero(is_port[sheet.below]).tolist():
        lines[edge][-1, 1] += height[component] - end

    return LayerPlacement(x, rows._replace(y=y, height=height), as_routes(lines))


def _line_through(way: list[_Column], edge: int, channel: float) -> Floats:
    """The line of an edge through columns that have their places."""
    line = [way[0].parts[edge] + way[0].move]
    for column, following in pairwise(way):
        line.append(column.turn(edge, following, channel))
        line.append(following.parts[edge] + following.move)
    return np.concatenate(line)


def _cut_into_columns(
    layers: Layers, placed: LayerPlacement, component: int, last: Ints
) -> list[_Column]:
    """The columns that end with these lines, where they still are below each other."""
    x, rows, _ = placed
    tops, bottoms = [0.0, *rows.top[last + 1]], [*rows.bottom[last], np.inf]
    column = np.searchsorted(last, layers.line)
    column[layers.component != component] = -1
    return [
        _Column(np.flatnonzero(column == number), x, layers.half, top, bottom)
        for number, (top, bottom) in enumerate(zip(tops, bottoms))
    ]
