"""The layered graph of a sheet: every edge is cut into pieces from row to row, with a
bend point in each row that it passes.

Long edges that leave a box at one point share a trunk of bend points, from which each
branches off just above its end: what one box sends to many is one line. Bend points are
made within a budget; edges over it are straight lines. Knows rows and half widths, no
coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, by_key, ranges, starts_of, unsorted
from gradviz.layout.layered.sheet import Sheet

BEND_HALF_WIDTH = 2.0
BEND_GAP = 0.6  # of the gap between boxes, between two lines
LEAST_BUDGET = 100_000  # bend points that any drawing may have
BUDGET_PER_NODE = 2


class Bends(NamedTuple):
    """Bend points, those of one trunk together, from above to below."""

    edge: Ints  # (bends,) the longest edge through each
    step: Ints  # (bends,) how many of its trunk are above each
    long: Ints  # edges with bend points, sorted
    # (long,) the first bend of each; it goes through as many as rows lie between its
    # ends
    first: Ints


class Pieces(NamedTuple):
    """What joins a point to one in the next row."""

    above: Ints  # (pieces,)
    below: Ints  # (pieces,)
    above_offset: Floats  # (pieces,) where it meets a box, from its middle
    below_offset: Floats  # (pieces,)
    main: Mask  # (pieces,) whether it is part of the longest way through its component


@dataclass(frozen=True, eq=False)
class Layers:
    """Points are the boxes 0..n-1, then the bend points."""

    boxes: int
    row: Ints  # (points,) within the component
    component: Ints  # (points,)
    components: int
    half: Floats  # (points,) half widths
    pieces: Pieces
    bends: Bends

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.row)

    @cached_property
    def first_line(self) -> Ints:
        """Lines number the rows of all components through: row r of component c is line
        first_line[c] + r.
        """
        return starts_of(
            by_key(np.maximum, self.row + 1, self.component, self.components, 0)
        )

    @property
    def lines(self) -> int:
        """Number of lines."""
        return int(self.first_line[-1])

    @cached_property
    def line(self) -> Ints:
        """Line of every point."""
        return self.first_line[self.component] + self.row

    def borders(self, x: Floats) -> tuple[Floats, Floats]:
        """The left and the right border of every component; `x` are the middles of all
        points.
        """
        keys = self.component, self.components
        left = by_key(np.minimum, x - self.half, *keys, np.inf)
        return left, by_key(np.maximum, x + self.half, *keys, -np.inf)


def cut_into_layers(
    sheet: Sheet, row: Ints, component: Ints, components: int, main: Mask
) -> Layers:
    """Cut the edges of a sheet into pieces."""
    bends = _make_bends(sheet, row, main)
    source = sheet.above[bends.edge]
    bend_half = np.full(len(source), BEND_HALF_WIDTH)
    return Layers(
        boxes=sheet.size,
        row=np.append(row, row[source] + 1 + bends.step),
        component=np.append(component, component[source]),
        components=components,
        half=np.append(np.maximum(sheet.widths / 2, BEND_HALF_WIDTH), bend_half),
        pieces=_make_pieces(sheet, row, main, bends),
        bends=bends,
    )


def _make_bends(sheet: Sheet, row: Ints, main: Mask) -> Bends:
    """The bend points of all edges that are in the budget."""
    span = row[sheet.below] - row[sheet.above]
    trunk = _trunks(sheet, main)
    long = np.flatnonzero((span > 1) & _within_budget(span, trunk, sheet.size))
    longest = np.full(len(span), -1)
    by_span = long[np.argsort(span[long], kind="stable")]
    longest[trunk[by_span]] = by_span  # of several edges the last remains
    length = np.where(longest < 0, 0, span[longest] - 1)
    owner, step = ranges(length)
    return Bends(longest[owner], step, long, starts_of(length)[trunk[long]])


def _trunks(sheet: Sheet, main: Mask) -> Ints:
    """For every edge a number that edges have in common which leave one box at one
    point. The longest way is drawn straight, so it shares its bends with no other.
    """
    keys = np.array([sheet.above_offset, main, sheet.above])
    order = np.lexsort(keys)
    is_first = np.diff(keys[:, order], prepend=-1).any(axis=0)
    return unsorted(is_first.cumsum() - 1, order)


def _within_budget(span: Ints, trunk: Ints, nodes: int) -> Mask:
    """Edges that get bend points in every row they pass: all, or where these would be
    too many the short ones.
    """
    # a bend in every row for every edge would be millions
    budget = max(LEAST_BUDGET, BUDGET_PER_NODE * nodes)
    bends = by_key(np.maximum, span, trunk, len(span), 0).sum()
    is_few = bool(bends <= budget)
    within: Mask = (span <= budget / max(len(span), 1)) | is_few
    return within


def _make_pieces(sheet: Sheet, row: Ints, main: Mask, bends: Bends) -> Pieces:
    """The pieces of all edges that lead to the next row or have bend points."""
    begin, end = sheet.above_offset, sheet.below_offset
    span = row[sheet.below] - row[sheet.above]
    short, long, edge = np.flatnonzero(span == 1), bends.long, bends.edge
    bend = sheet.size + np.arange(len(edge))
    is_first = bends.step == 0
    last = sheet.size + bends.first + span[long] - 2
    parts = (
        # from box to box, to each bend from the one above or a box, from bends to boxes
        (sheet.above[short], sheet.below[short], begin[short], end[short], main[short]),
        (
            np.where(is_first, sheet.above[edge], bend - 1),
            bend,
            np.where(is_first, begin[edge], 0.0),
            np.zeros(len(bend)),
            main[edge],
        ),
        (last, sheet.below[long], np.zeros(len(long)), end[long], main[long]),
    )
    return Pieces(*(np.concatenate(column) for column in zip(*parts)))
