"""What one run of the layout works on: a sheet of boxes without frames, possibly many
drawings at once, and its layered graph.

All drawings of one nesting level are laid out in one run, so that a thousand little
frames cost no more than one large drawing. They never touch each other.

In the layered graph every edge is cut into pieces from row to row, with a bend point in
each row that it passes. Long edges that leave a box at one point share a trunk of bend
points, from which each branches off just above its end: what one box sends to many is
one line. Bend points are made within a budget; edges over it are straight lines.
Knows rows and half widths, no coordinates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, by_key, ranges, starts_of, unsorted

FREE, TOP, BOTTOM = 0, -1, 1


class Levels(NamedTuple):
    """Level lines between boxes of two drawings, the halves of a U. The right half will
    be turned upside down.
    """

    side: Ints  # (n,) 1 for boxes that stand at the right of their rows, -1 at the left
    offset: Floats  # (n,) how far below the middle of a box its line is
    ends: Sequence[Ints]  # for every U, (k, 2) boxes, from its highest line down


def no_levels(size: int) -> Levels:
    """Those of a sheet without a U."""
    return Levels(np.zeros(size, np.int64), np.zeros(size), ())


@dataclass(frozen=True, eq=False)
class Sheet:
    """Boxes and edges from `above[i]` down to `below[i]`, without cycles and without
    self-loops.

    An edge meets its box at an offset from the middle: 0, or where its line passes
    through a frame's border.
    """

    widths: Floats  # (n,)
    heights: Floats  # (n,)
    above: Ints  # (m,)
    below: Ints  # (m,)
    above_offset: Floats  # (m,)
    below_offset: Floats  # (m,)
    part: Ints  # (n,) which drawing a box belongs to
    parts: int
    # (n,) TOP and BOTTOM are ports: where lines pass through the border of the drawing
    pin: Ints
    gap: float
    rank_gap: float
    words: Floats  # (n,) room below a box for words beside its edges
    levels: Levels
    columns: bool = False  # whether a long drawing may stand in several

    @property
    def size(self) -> int:
        """Number of boxes, ports included."""
        return len(self.widths)


# -- the layered graph -----------------------------------------------------------------

BEND_HALF_WIDTH = 2.0
BEND_GAP = 0.6  # of the gap between boxes, between two lines
LEAST_BUDGET = 100_000  # bend points that any drawing may have
BUDGET_PER_NODE = 2


@dataclass(frozen=True, eq=False)
class Layers:
    """Points are the boxes 0..n-1, then the bend points; pieces join a point to one in
    the next row.
    """

    boxes: int
    row: Ints  # (points,) within the component
    component: Ints  # (points,)
    components: int
    half: Floats  # (points,) half widths
    side: Ints  # (points,) which side of its row a point keeps to
    above: Ints  # (pieces,)
    below: Ints  # (pieces,)
    above_offset: Floats  # (pieces,) where the piece meets a box, from its middle
    below_offset: Floats
    # (pieces,) whether the piece is part of the longest way through its component
    main: Mask
    # (bends,) the longest edge through each bend point; bends of one trunk lie
    # together, from above to below
    bend_edge: Ints
    long: Ints  # edges with bend points, sorted
    # (long,) the place of the first among the bends; an edge goes through as many as
    # rows lie between its ends
    first_bend: Ints
    gap: float

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.row)

    @cached_property
    def bend(self) -> Mask:
        """True for bend points."""
        return np.arange(self.size) >= self.boxes

    @cached_property
    def first_line(self) -> Ints:
        """Lines number the rows of all components through: row r of component c is line
        first_line[c] + r.
        """
        return starts_of(
            by_key(np.maximum, self.row + 1, self.component, self.components, 0)
        )

    def borders(self, x: Floats) -> tuple[Floats, Floats]:
        """The left and the right border of every component; `x` are the middles of all
        points.
        """
        keys = self.component, self.components
        left = by_key(np.minimum, x - self.half, *keys, np.inf)
        return left, by_key(np.maximum, x + self.half, *keys, -np.inf)

    @property
    def lines(self) -> int:
        """Number of lines."""
        return int(self.first_line[-1])

    @cached_property
    def line(self) -> Ints:
        """Line of every point."""
        return self.first_line[self.component] + self.row


def cut_into_layers(
    sheet: Sheet, row: Ints, component: Ints, components: int, main: Mask
) -> Layers:
    """Cut the edges of a sheet into pieces."""
    n = sheet.size
    span = row[sheet.below] - row[sheet.above]
    # edges that leave at one point share their bends, and part where they turn off
    trunk = _trunks(sheet, main)
    # a bend in every row for every edge would be millions
    within = _within_budget(span, trunk, n)
    short = np.flatnonzero(span == 1)
    long = np.flatnonzero(within & (span > 1))
    leader, first = _trunk_bends(span[long], trunk[long])
    longest = long[leader]  # edge of every trunk
    owner, step = ranges(span[longest] - 1)
    bend_edge = longest[owner]
    inner = np.flatnonzero(step > 0)  # bends that another one is above of
    begin = np.flatnonzero(step == 0)
    # what leads from row to row, to the first bend of a trunk, inside it, and off it
    pieces = (
        (
            sheet.above[short],
            sheet.below[short],
            sheet.above_offset[short],
            sheet.below_offset[short],
            main[short],
        ),
        (
            sheet.above[longest],
            n + begin,
            sheet.above_offset[longest],
            np.zeros(len(longest)),
            main[longest],
        ),
        (n + inner - 1, n + inner, *np.zeros((2, len(inner))), main[bend_edge[inner]]),
        (
            n + first + span[long] - 2,
            sheet.below[long],
            np.zeros(len(long)),
            sheet.below_offset[long],
            main[long],
        ),
    )
    upper, lower, upper_offset, lower_offset, straight = (
        np.concatenate(column) for column in zip(*pieces)
    )
    bend_half = np.full(len(bend_edge), BEND_HALF_WIDTH)
    source = sheet.above[bend_edge]

    return Layers(
        boxes=n,
        row=np.append(row, row[source] + 1 + step),
        component=np.append(component, component[source]),
        components=components,
        half=np.concatenate((np.maximum(sheet.widths / 2, BEND_HALF_WIDTH), bend_half)),
        side=np.append(sheet.levels.side, np.zeros(len(bend_edge), np.int64)),
        above=upper,
        below=lower,
        above_offset=upper_offset,
        below_offset=lower_offset,
        main=straight,
        bend_edge=bend_edge,
        long=long,
        first_bend=first,
        gap=sheet.gap,
    )


def _trunks(sheet: Sheet, main: Mask) -> Ints:
    """For every edge a number that edges have in common which leave one box at one
    point; main ones have their own.
    """
    edges = len(sheet.above)
    order = np.lexsort((np.arange(edges), sheet.above_offset, main, sheet.above))
    above, offset = sheet.above[order], sheet.above_offset[order]
    begins = np.ones(edges, np.bool_)
    begins[1:] = (np.diff(above) != 0) | (np.diff(offset) != 0)
    # the longest way is drawn straight, so it shares its bends with no other
    begins[1:] |= main[order][1:] | main[order][:-1]

    return unsorted(np.cumsum(begins) - 1, order)


def _trunk_bends(span: Ints, trunk: Ints) -> tuple[Ints, Ints]:
    """The longest edge of every trunk, and for every edge where the bends of its trunk
    begin.
    """
    order = np.lexsort((span, trunk))
    ends = np.ones(len(order), np.bool_)
    ends[:-1] = np.diff(trunk[order]) != 0
    leader = order[ends]
    number = unsorted(np.cumsum(ends) - ends, order)
    return leader, starts_of(span[leader] - 1)[number]


def _within_budget(span: Ints, trunk: Ints, nodes: int) -> Mask:
    """Edges that get bend points in every row they pass: all, or where these would be
    too many the short ones.
    """
    budget = max(LEAST_BUDGET, BUDGET_PER_NODE * nodes)
    bends = by_key(np.maximum, span, trunk, len(span), 0).sum()
    is_few = bool(bends <= budget)
    within: Mask = (span <= budget / max(len(span), 1)) | is_few
    return within
