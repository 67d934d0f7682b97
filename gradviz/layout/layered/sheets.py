"""One run over a sheet: rows, first order, fewer crossings, x, y, routes, shelves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.columns import in_columns
from gradviz.layout.layered.coordinates import (
    first_coordinates,
    pieces_by_place,
    relax,
    spacing,
)
from gradviz.layout.layered.grouping import components, counts, group
from gradviz.layout.layered.layers import FREE, TOP, Layers, Sheet, cut_into_layers
from gradviz.layout.layered.ordering import Order, best_order
from gradviz.layout.layered.ranks import (
    depth_order,
    given_order,
    longest_ways,
    neighbours,
    rank_nodes,
    rows_by_component,
    with_siblings_level,
)
from gradviz.layout.layered.routes import Routes, Rows, edge_routes, place_rows
from gradviz.stages import phase

ASPECT = 1.6  # width to height that shelves aim at
PHASES = 5
"""Phases that one run begins."""


class SheetPlacement(NamedTuple):
    """Where a sheet's boxes went. Every drawing has its own origin, the upper left
    corner of what is in it.
    """

    middles: Floats  # (n, 2)
    routes: Routes
    sizes: Floats  # (parts, 2)


def place_sheet(sheet: Sheet) -> SheetPlacement:
    """Place everything on a sheet."""
    phase("rows")
    ends = np.array([sheet.above, sheet.below])
    component, count = components(sheet.size, *ends)
    near = neighbours(sheet.size, *ends)
    rank = rank_nodes(near, component)
    rank = with_siblings_level(rank, near, sheet.heights, component)
    row = rows_by_component(rank, component, count, sheet.pin)
    main = longest_ways(near, component, sheet.pin == TOP)
    layers = cut_into_layers(sheet, row, component, count, main)
    phase("ordering")
    # two first orders, since crossings are only ever improved from where one begins
    starts = (
        lambda: depth_order(near, row, sheet.pin != FREE, main),
        lambda: given_order(near),
    )
    order = best_order(layers, starts)
    _mirror(order, layers, sheet)
    order.sort(order.place + layers.side * layers.size)
    phase("columns")
    pieces, room = pieces_by_place(order), spacing(order)
    x_of_place, straight = first_coordinates(order, pieces, room)
    x = relax(x_of_place, pieces, straight, room)[order.place]
    phase("routes")
    rows = place_rows(sheet, layers, x)
    routes = edge_routes(sheet, layers, x, rows)
    phase("shelves")
    if sheet.columns:
        x, rows, routes = in_columns(sheet, layers, (x, rows, routes))

    return _on_shelves(sheet, layers, x, rows, routes)


def _mirror(order: Order, layers: Layers, sheet: Sheet) -> None:
    """Turn components round in which more boxes that are alike stand against the order
    in which they were given than in it: those of one row and height that have inputs.
    """
    inner = np.flatnonzero(counts(sheet.below, sheet.size))
    keys = order.place[inner], sheet.heights[inner], layers.line[inner]
    alike = inner[np.lexsort(keys)]
    same_row = layers.line[alike[1:]] == layers.line[alike[:-1]]
    same = same_row & (np.diff(sheet.heights[alike]) == 0)
    way = np.where(same, np.sign(np.diff(alike)), 0)
    ways = np.bincount(layers.component[alike[1:]], way, layers.components)
    is_against = ways[layers.component] < 0
    order.sort(np.where(is_against, -order.place, order.place))


def _on_shelves(
    sheet: Sheet, layers: Layers, x: Floats, rows: Rows, routes: Routes
) -> SheetPlacement:
    """Move every component to its place in its drawing."""
    component = layers.component[: sheet.size]
    left, right = layers.borders(x)
    move, sizes = _shelves(sheet, component, right - left, rows.height)
    move[:, 0] -= left
    owner = np.repeat(component[sheet.above], np.diff(routes.starts))
    middles = np.column_stack((x[: sheet.size], rows.y))
    moved = routes._replace(points=routes.points + move[owner])
    return SheetPlacement(middles + move[component], moved, sizes)


def _shelves(
    sheet: Sheet, component: Ints, widths: Floats, heights: Floats
) -> tuple[Floats, Floats]:
    """Upper left corner of every component in its drawing, and the size of every
    drawing.

    Components of one drawing stand beside and below each other, the highest first.
    Those with ports stand side by side at the top, so that nothing lies between them
    and the border below, and what a skip of a U joins stands next to its channel.
    """
    ends = np.flatnonzero(sheet.levels.side)
    channel = np.zeros(len(widths), np.int64)  # 1 on the right of it, -1 on the left
    channel[component[ends]] = sheet.levels.side[ends]
    ported = channel != 0
    ported[component[sheet.pin != FREE]] = True
    part = np.zeros(len(widths), np.int64)
    part[component] = sheet.part
    corner = np.zeros((len(widths), 2))
    sizes = np.zeros((sheet.parts, 2))
    members = group(part, sheet.parts)
    size = np.diff(members.start)
    alone = np.flatnonzero(size[part] == 1)
    sizes[part[alone]] = np.column_stack((widths[alone], heights[alone]))
    rooms = np.column_stack((widths + 2 * sheet.gap, heights))
    for p in np.flatnonzero(size > 1).tolist():
        inside = members.of(p)
        inside = inside[np.argsort(channel[inside] == 0, kind="stable")]
        first, rest = inside[ported[inside]], inside[~ported[inside]]
        corner[first], right, bottom = _in_rows(rooms[first], np.inf, sheet.rank_gap)
        if len(rest):
            wide, high = rooms[rest, 0], heights[rest] + sheet.rank_gap
            # the width of a rectangle of this area in the aspect that is aimed at
            area = float((wide * high).sum())
            limit = max(float(wide.max()), (area * ASPECT) ** 0.5)
            rest = rest[np.argsort(-heights[rest], kind="stable")]
            corners, more, low = _in_rows(rooms[rest], limit, sheet.rank_gap)
            corner[rest] = corners + np.array([right, 0.0])
            right, bottom = right + more, max(bottom, low)
        sizes[p] = right - 2 * sheet.gap, bottom
        if (channel[inside] == 1).any():
            corner[inside, 0] = sizes[p, 0] - corner[inside, 0] - widths[inside]
    return corner, sizes


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
