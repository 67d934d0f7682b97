"""Hundreds of leaves into one box are drawn as a grid instead of a row thousands of pixels wide.

A grid takes the place of its leaves as one box. Inside, a bus runs under every row of leaves to a trunk in the middle,
which ends at the foot of the grid; from there all of them share one edge. Boxes that only hang below one box get the
same grid upside down.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradviz.layout.layered.grouping import Mask, by_key, counts, distinct, place_in_group, starts_of
from gradviz.layout.layered.routes import Routes
from gradviz.layout.model import Drawing, Floats, Ints

MOST_IN_A_ROW = 24  # more leaves than this make a grid
ASPECT = 2.5  # width to height that a grid aims at


@dataclass(frozen=True, eq=False)
class Grids:
    """What was put into grids. Boxes of `outside` are numbered anew: the boxes that stayed, then the grids."""

    outside: Drawing
    box: Ints  # (n,) number outside of every box, or of its grid
    edge: Ints  # (m,) number outside of every edge
    leaf: Ints  # (k,) the boxes inside grids
    leaf_edge: Ints  # (k,) and the edge of each
    flipped: Mask  # (k,) hangs below its box
    aside: Floats  # (k, 2) from the middle of the grid
    bus: Floats  # (k,) y of the bus below or above the leaf, from the middle of the grid
    foot: Floats  # (k,) y where the trunk ends, from the middle of the grid


def make_grids(boxes: Drawing) -> Grids:
    """Put leaves into grids wherever one box has more of them, in one frame, than fit a row. Edges must be distinct."""
    leaf, edge, flipped = _leaves(boxes)
    partner = np.where(flipped, boxes.edges[edge, 0], boxes.edges[edge, 1])
    key = (partner * 2 + flipped) * (len(boxes.frames) + 1) + boxes.frame_of[leaf] + 1
    alike, which = distinct(key)
    many = (counts(which, len(alike)) > MOST_IN_A_ROW)[which]
    leaf, edge, flipped = leaf[many], edge[many], flipped[many]
    alike, grid = distinct(key[many])
    members = counts(grid, len(alike))
    width = by_key(np.maximum, boxes.widths[leaf], grid, len(alike), 0) + boxes.gap  # of a cell
    height = by_key(np.maximum, boxes.heights[leaf], grid, len(alike), 0) + boxes.rank_gap
    half = np.ceil(np.sqrt(members * height * ASPECT / width) / 2)
    across = 2 * np.maximum(half, 1).astype(np.int64)  # even, so that the trunk has a gap to run in
    down = -(-members // across)
    outside, box, edge_outside = _outside(boxes, leaf, edge, grid, across * width, down * height)
    place, sign, cell = place_in_group(grid), np.where(flipped, -1.0, 1.0), height[grid]
    column, row = place % across[grid], place // across[grid]
    foot = down[grid] * cell / 2
    top = row * cell - foot
    tall = cell - boxes.rank_gap
    dx = (column - (across[grid] - 1) / 2) * width[grid]
    dy, bus = top + tall / 2, top + tall + boxes.rank_gap / 2
    aside = np.column_stack((dx, dy * sign))
    return Grids(outside, box, edge_outside, leaf, edge, flipped, aside, bus * sign, foot * sign)


def _leaves(boxes: Drawing) -> tuple[Ints, Ints, Mask]:
    """Boxes with a single edge, that edge, and whether the box is the lower end of it."""
    n, above, below = boxes.size, boxes.edges[:, 0], boxes.edges[:, 1]
    single = counts(above, n) + counts(below, n) == 1
    pair = single[above] & single[below]  # two boxes and nothing else: no grid
    down, up = np.flatnonzero(single[above] & ~pair), np.flatnonzero(single[below] & ~pair)
    flipped = np.zeros(len(down) + len(up), np.bool_)
    flipped[len(down) :] = True
    return np.concatenate((above[down], below[up])), np.concatenate((down, up)), flipped


def _outside(
    boxes: Drawing, leaf: Ints, edge: Ints, grid: Ints, widths: Floats, heights: Floats
) -> tuple[Drawing, Ints, Ints]:
    """What the rest of the layout sees, with one box and one edge for every grid; and the numbers there of all boxes and edges."""
    stays, edge_stays = np.ones(boxes.size, np.bool_), np.ones(len(boxes.edges), np.bool_)
    stays[leaf], edge_stays[edge] = False, False
    box, edge_outside = np.cumsum(stays) - 1, np.cumsum(edge_stays) - 1
    box[leaf] = int(stays.sum()) + grid
    edge_outside[edge] = int(edge_stays.sum()) + grid
    first = np.zeros(len(widths), np.int64)  # leaf of every grid
    first[grid[::-1]] = np.arange(len(grid))[::-1]
    outside = replace(
        boxes,
        widths=np.concatenate((boxes.widths[stays], widths)),
        heights=np.concatenate((boxes.heights[stays], heights)),
        edges=box[np.concatenate((boxes.edges[edge_stays], boxes.edges[edge[first]]))],
        frame_of=np.concatenate((boxes.frame_of[stays], boxes.frame_of[leaf[first]])),
    )
    return outside, box, edge_outside


def leaf_routes(grids: Grids, middles: Floats, heights: Floats) -> Routes:
    """The part of each leaf's edge that lies inside its grid, from above to below, by middles and heights of all boxes."""
    (x, y), (trunk, middle) = middles[grids.leaf].T, (middles[grids.leaf] - grids.aside).T
    start = y + np.where(grids.flipped, -1.0, 1.0) * heights[grids.leaf] / 2
    bus, foot = middle + grids.bus, middle + grids.foot
    points = np.stack((np.stack((x, x, trunk, trunk), 1), np.stack((start, bus, bus, foot), 1)), 2)
    points[grids.flipped] = points[grids.flipped, ::-1]
    return Routes(points.reshape(-1, 2), starts_of(np.full(len(x), 4)))
