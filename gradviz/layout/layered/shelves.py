"""Shelves: the components of a drawing beside and below each other."""

from __future__ import annotations

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, group, sizes_of
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.rows import LayerPlacement
from gradviz.layout.layered.sheet import FREE, Sheet, SheetPlacement

ASPECT = 1.6  # width to height that shelves aim at


def on_shelves(sheet: Sheet, layers: Layers, placed: LayerPlacement) -> SheetPlacement:
    """Move every component to its place in its drawing."""
    x, rows, routes = placed
    component = layers.component[: sheet.size]
    left, right = layers.borders(x)
    sizes = np.column_stack((right - left, rows.height))
    move, drawing_sizes = _corners(sheet, component, sizes)
    move[:, 0] -= left
    owner = np.repeat(component[sheet.above], sizes_of(routes.starts))
    middles = np.column_stack((x[: sheet.size], rows.y)) + move[component]
    moved = routes._replace(points=routes.points + move[owner])
    return SheetPlacement(middles, moved, drawing_sizes)


def _corners(sheet: Sheet, component: Ints, sizes: Floats) -> tuple[Floats, Floats]:
    """Upper left corner of every component of these sizes in its drawing, and the sizes
    of drawings.
    """
    side = np.zeros(len(sizes), np.int64)
    ends = np.flatnonzero(sheet.side)
    side[component[ends]] = sheet.side[ends]
    is_first = side != 0
    is_first[component[sheet.pin != FREE]] = True

    part = np.zeros(len(sizes), np.int64)
    part[component] = sheet.part
    members = group(part, sheet.parts)
    corners, drawing_sizes = np.zeros_like(sizes), np.zeros((sheet.parts, 2))
    drawing_sizes[part] = sizes  # where it is the only one
    for p in np.flatnonzero(sizes_of(members.start) > 1).tolist():
        inside = members.of(p)
        inside = inside[np.argsort(side[inside] == 0, kind="stable")]
        rooms = sizes[inside] + np.array([2 * sheet.gap, 0.0])
        corner, size = _arranged(rooms, is_first[inside], sheet.rank_gap)
        size[0] -= 2 * sheet.gap
        if (side[inside] == 1).any():
            corner[:, 0] = size[0] - corner[:, 0] - sizes[inside, 0]
        corners[inside], drawing_sizes[p] = corner, size
    return corners, drawing_sizes


def _arranged(rooms: Floats, is_first: Mask, rank_gap: float) -> tuple[Floats, Floats]:
    """Where components of one drawing go, and what they take together.

    The highest first, but before them, side by side at the top, those with ports, so
    that nothing lies between them and the border below, and what a skip of a U joins,
    which stands next to its channel.
    """
    corners = np.zeros_like(rooms)
    corners[is_first], right, bottom = _in_rows(rooms[is_first], np.inf, rank_gap)
    rest = np.flatnonzero(~is_first)
    if len(rest):
        wide, high = rooms[rest].T
        # the width of a rectangle of this area in the aspect that is aimed at
        area = float((wide * (high + rank_gap)).sum())
        limit = max(float(wide.max()), (area * ASPECT) ** 0.5)
        rest = rest[np.argsort(-high, kind="stable")]
        below, width, low = _in_rows(rooms[rest], limit, rank_gap)
        corners[rest] = below + np.array([right, 0.0])
        right, bottom = right + width, max(bottom, low)
    return corners, np.array([right, bottom])


def _in_rows(
    rooms: Floats, limit: float, rank_gap: float
) -> tuple[Floats, float, float]:
    """Where components of these sizes go in rows that are no wider than the limit; the
    furthest right and the lowest point.
    """
    corners = np.zeros((len(rooms), 2))
    x = y = tallest = furthest = 0.0
    for number, (wide, high) in enumerate(rooms.tolist()):
        if x and x + wide > limit:
            x, y, tallest = 0.0, y + tallest + rank_gap, 0.0
        corners[number] = x, y
        x += wide
        furthest, tallest = max(furthest, x), max(tallest, high)
    return corners, furthest, y + tallest
