"""The layered graph: every edge cut into pieces from row to row, with a bend point in each row that it passes.

Long edges have bend points only within a budget; the rest is left for the side channels. Knows rows and half widths,
no coordinates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradviz.layout.layered.adjacency import Mask, counts, ranges, starts_of
from gradviz.layout.layered.columns import NONE
from gradviz.layout.layered.sheet import Sheet
from gradviz.layout.model import Floats, Ints

BEND_HALF_WIDTH = 2.0
BEND_GAP = 0.6  # of the gap between boxes, between two lines
LEAST_BUDGET = 20_000  # bend points that any drawing may have
BUDGET_PER_NODE = 2


@dataclass(frozen=True, eq=False)
class Layers:
    """Points are the boxes 0..n-1, then the bend points; pieces join a point to one in the next row."""

    boxes: int
    row: Ints  # (points,) within the component
    component: Ints  # (points,)
    components: int
    half: Floats  # (points,) half widths
    above: Ints  # (pieces,)
    below: Ints  # (pieces,)
    above_offset: Floats  # (pieces,) where the piece meets a box, from its middle
    below_offset: Floats
    kind: Ints  # (pieces,) MAIN .. NONE, of the edge that the piece is part of
    bend_edge: Ints  # (bends,) the edge of each bend point; bends of one edge lie together, from above to below
    left_out: Ints  # edges over the budget
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
    def ported(self) -> bool:
        """Whether any piece meets its box elsewhere than in the middle."""
        return bool(self.above_offset.any() or self.below_offset.any())

    @cached_property
    def first_line(self) -> Ints:
        """Lines number the rows of all components through: row r of component c is line first_line[c] + r."""
        rows = np.zeros(self.components, np.int64)
        np.maximum.at(rows, self.component, self.row + 1)
        return starts_of(rows)

    @cached_property
    def line(self) -> Ints:
        """Line of every point."""
        return self.first_line[self.component] + self.row

    @cached_property
    def packed_width(self) -> Floats:
        """Per component, the width that its fullest row needs at least."""
        need = 2 * self.half + np.where(self.bend, self.gap * BEND_GAP, self.gap)
        per_line = np.bincount(self.line, weights=need, minlength=int(self.first_line[-1])).astype(np.float64)
        if not self.components:
            return per_line
        widest: Floats = np.maximum.reduceat(per_line, self.first_line[:-1])
        return widest


def separation(half: Floats, bend: Mask, gap: float, left: Ints) -> Floats:
    """Least distance between the middles of `left` and of their right neighbours; arrays are in row order."""
    both_bends = bend[left] & bend[left + 1]
    return half[left] + half[left + 1] + np.where(both_bends, gap * BEND_GAP, gap)


def cut_into_layers(sheet: Sheet, row: Ints, component: Ints, components: int, kind: Ints) -> Layers:
    """Cut the edges of a sheet into pieces."""
    n = sheet.size
    span = row[sheet.below] - row[sheet.above]
    within = _within_budget(span, n)
    short, long = np.flatnonzero(span == 1), np.flatnonzero(within & (span > 1))
    owner, step = ranges(np.zeros(len(long), np.int64), span[long] - 1)
    bend_edge = long[owner]
    bends = n + np.arange(len(bend_edge))
    first = n + np.cumsum(span[long] - 1) - (span[long] - 1)
    following = bends + 1
    last = first + span[long] - 2 - n
    following[last] = sheet.below[long]
    below_offset = np.zeros(len(bends))
    below_offset[last] = sheet.below_offset[long]
    nothing = np.zeros(len(long))
    ported = sheet.pin != 0
    return Layers(
        boxes=n,
        row=np.concatenate((row, row[sheet.above[bend_edge]] + 1 + step)),
        component=np.concatenate((component, component[sheet.above[bend_edge]])),
        components=components,
        half=np.concatenate(
            (np.where(ported, BEND_HALF_WIDTH, sheet.widths / 2), np.full(len(bends), BEND_HALF_WIDTH))
        ),
        above=np.concatenate((sheet.above[short], sheet.above[long], bends)),
        below=np.concatenate((sheet.below[short], first, following)),
        above_offset=np.concatenate((sheet.above_offset[short], sheet.above_offset[long], np.zeros(len(bends)))),
        below_offset=np.concatenate((sheet.below_offset[short], nothing, below_offset)),
        kind=np.concatenate((kind[short], kind[long], kind[bend_edge])),
        bend_edge=bend_edge,
        left_out=np.flatnonzero(~within),
        gap=sheet.gap,
    )


def _within_budget(span: Ints, nodes: int) -> Mask:
    """Edges that get bend points in every row they pass: the shortest first, until the budget is spent."""
    order = np.argsort(span, kind="stable")
    spent = np.cumsum(span[order] - 1)
    within = np.zeros(len(span), np.bool_)
    within[order[spent <= max(LEAST_BUDGET, BUDGET_PER_NODE * nodes)]] = True
    return within


def chain_pieces(layers: Layers) -> Mask:
    """Pieces that should be straight: parts of ways, between bend points, or the only ones at both of their ends."""
    return (layers.kind < NONE) | inner_pieces(layers) | lone_pieces(layers)


def inner_pieces(layers: Layers) -> Mask:
    """Pieces between two bend points."""
    return (layers.above >= layers.boxes) & (layers.below >= layers.boxes)


def lone_pieces(layers: Layers) -> Mask:
    """Pieces that are the only one down from the point above and the only one up from the point below."""
    down, up = counts(layers.above, layers.size), counts(layers.below, layers.size)
    lone: Mask = (down[layers.above] == 1) & (up[layers.below] == 1)
    return lone
