"""Hundreds of leaves into one box are drawn as a grid instead of a row thousands of pixels wide.

A grid takes the place of its leaves as one box. Inside, a bus runs under every row of leaves to a trunk in the middle,
which ends at the foot of the grid; from there all of them share one edge. Boxes that only hang below one box get the
same grid upside down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import (
    Mask,
    counts,
    distinct,
    place_in_group,
    starts_of,
)
from gradviz.layout.layered.routes import Routes
from gradviz.layout.model import Floats, Ints

MOST_IN_A_ROW = 24  # more leaves than this make a grid
ASPECT = 2.5  # width to height that a grid aims at


class Boxes(NamedTuple):
    """Boxes and distinct edges (above, below) between them; `frame` is the frame that a box lies in."""

    widths: Floats
    heights: Floats
    edges: Ints
    frame: Ints


@dataclass(frozen=True, eq=False)
class Grids:
    """What was put into grids. Boxes of `outside` are numbered anew: the boxes that stayed, then the grids."""

    outside: Boxes
    box: Ints  # (n,) number outside of every box, or of its grid
    edge: Ints  # (m,) number outside of every edge
    leaf: Ints  # (k,) the boxes inside grids
    leaf_edge: Ints  # (k,) and the edge of each
    flipped: Mask  # (k,) hangs below its box
    dx: Floats  # (k,) from the middle of the grid
    dy: Floats
    bus: Floats  # (k,) y of the bus below or above the leaf, from the middle of the grid
    foot: Floats  # (k,) y where the trunk ends, from the middle of the grid


def make_grids(boxes: Boxes, gap: float, rank_gap: float) -> Grids:
    """Put leaves into grids wherever one box has more of them, in one frame, than fit a row."""
    leaf, edge, flipped = _leaves(boxes)
    partner = np.where(flipped, boxes.edges[edge, 0], boxes.edges[edge, 1])
    key = (partner * 2 + flipped) * (int(boxes.frame.max(initial=0)) + 2) + boxes.frame[leaf] + 1
    groups, index = distinct(key)
    many = (counts(index, len(groups)) > MOST_IN_A_ROW)[index]
    leaf, edge, flipped = leaf[many], edge[many], flipped[many]
    groups, index = distinct(key[many])
    return _Arranger(boxes, gap, rank_gap, leaf, edge, flipped, index, len(groups)).grids()


def _leaves(boxes: Boxes) -> tuple[Ints, Ints, Mask]:
    """Boxes with a single edge, that edge, and whether the box is the lower end of it."""
    n = len(boxes.widths)
    above, below = boxes.edges[:, 0], boxes.edges[:, 1]
    single = counts(above, n) + counts(below, n) == 1
    pair = single[above] & single[below]  # two boxes and nothing else: no grid
    down, up = np.flatnonzero(single[above] & ~pair), np.flatnonzero(single[below] & ~pair)
    flipped = np.zeros(len(down) + len(up), np.bool_)
    flipped[len(down) :] = True
    return np.concatenate((above[down], below[up])), np.concatenate((down, up)), flipped


class _Arranger:
    """Arranges the leaves of all grids at once; `index` is the grid of every leaf."""

    def __init__(
        self,
        boxes: Boxes,
        gap: float,
        rank_gap: float,
        leaf: Ints,
        edge: Ints,
        flipped: Mask,
        index: Ints,
        count: int,
    ) -> None:
        self.boxes, self.leaf, self.edge, self.flipped = boxes, leaf, edge, flipped
        self.index, self.count = index, count
        members = counts(index, count)
        wide, tall = np.zeros(count), np.zeros(count)
        np.maximum.at(wide, index, boxes.widths[leaf])
        np.maximum.at(tall, index, boxes.heights[leaf])
        self.cell_width, self.cell_height = wide + gap, tall + rank_gap
        half = np.ceil(np.sqrt(members * self.cell_height * ASPECT / self.cell_width) / 2)
        self.columns = 2 * np.maximum(half, 1).astype(np.int64)  # even, so that the trunk has a gap to run in
        self.rows = -(-members // self.columns)
        self.rank_gap = rank_gap

    def grids(self) -> Grids:
        """Where every leaf goes, and what the rest of the layout sees."""
        place = place_in_group(self.index)
        column, row = place % self.columns[self.index], place // self.columns[self.index]
        dx = (column - (self.columns[self.index] - 1) / 2) * self.cell_width[self.index]
        cell = self.cell_height[self.index]
        top = (row - self.rows[self.index] / 2) * cell
        tall = cell - self.rank_gap
        dy, bus = top + tall / 2, top + tall + self.rank_gap / 2
        sign = np.where(self.flipped, -1.0, 1.0)
        outside, box, edge = self._outside()
        foot = self.rows[self.index] * cell / 2
        inner = (dx, dy * sign, bus * sign, foot * sign)
        return Grids(outside, box, edge, self.leaf, self.edge, self.flipped, *inner)

    def _outside(self) -> tuple[Boxes, Ints, Ints]:
        """The boxes and edges that are left, with one box and one edge for every grid."""
        boxes, n, m = self.boxes, len(self.boxes.widths), len(self.boxes.edges)
        stays, edge_stays = np.ones(n, np.bool_), np.ones(m, np.bool_)
        stays[self.leaf], edge_stays[self.edge] = False, False
        box, edge = np.cumsum(stays) - 1, np.cumsum(edge_stays) - 1
        box[self.leaf] = int(stays.sum()) + self.index
        edge[self.edge] = int(edge_stays.sum()) + self.index
        first = np.zeros(self.count, np.int64)
        first[self.index[::-1]] = np.arange(len(self.index))[::-1]
        outside = Boxes(
            np.concatenate((boxes.widths[stays], self.columns * self.cell_width)),
            np.concatenate((boxes.heights[stays], self.rows * self.cell_height)),
            box[np.concatenate((boxes.edges[edge_stays], boxes.edges[self.edge[first]]))],
            np.concatenate((boxes.frame[stays], boxes.frame[self.leaf[first]])),
        )
        return outside, box, edge


def leaf_routes(grids: Grids, x: Floats, y: Floats, heights: Floats) -> Routes:
    """The part of each leaf's edge that lies inside its grid, from above to below.

    `x` and `y` are the middles of the leaves, `heights` their heights.
    """
    sign = np.where(grids.flipped, -1.0, 1.0)
    trunk, bus = x - grids.dx, y - grids.dy + grids.bus
    foot = y - grids.dy + grids.foot
    across, down = np.stack((x, x, trunk, trunk), 1), np.stack((y + sign * heights / 2, bus, bus, foot), 1)
    points = np.stack((across, down), 2)
    points[grids.flipped] = points[grids.flipped, ::-1]
    return Routes(points.reshape(-1, 2), starts_of(np.full(len(x), 4)))
