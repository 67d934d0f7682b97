"""One run of the layout over a sheet: rows, first order, fewer crossings, x, y, routes, shelves."""

from __future__ import annotations

import numpy as np

from gradviz.layout.layered.coordinates import first_coordinates, pieces_by_place, polish, spacing
from gradviz.layout.layered.crossings import depth_order, given_order, level_order
from gradviz.layout.layered.grouping import components, extremes, group
from gradviz.layout.layered.layers import TOP, Layers, Sheet, SheetPlacement, chain_pieces, cut_into_layers
from gradviz.layout.layered.ordering import best_order
from gradviz.layout.layered.ranks import Neighbours, neighbours, rank_nodes, rows_by_component, straight_edges
from gradviz.layout.layered.routes import Routes, Rows, channel_coordinates, edge_routes, place_rows
from gradviz.layout.model import Floats, Ints
from gradviz.stages import phase

ASPECT = 1.6  # width to height that shelves aim at
PHASES = 5
"""Phases that one run begins."""


def place_sheet(sheet: Sheet) -> SheetPlacement:
    """Place everything on a sheet. Raises Cycle when the edges form one."""
    phase("rows")
    near = neighbours(sheet.size, sheet.above, sheet.below)
    layers = _layers(sheet, near)
    x = _across(sheet, layers, near)
    phase("routes")
    rows = place_rows(sheet, layers, x)
    channel_x = channel_coordinates(sheet, layers, x)
    routes = edge_routes(sheet, layers, x, rows, channel_x)
    phase("shelves")
    return _on_shelves(sheet, layers, x, rows, routes, channel_x)


def _layers(sheet: Sheet, near: Neighbours) -> Layers:
    n, above, below = sheet.size, sheet.above, sheet.below
    component, count = components(n, above, below)
    ranking = rank_nodes(near)
    row = rows_by_component(ranking.rank, component, count, sheet.pin)
    kind = straight_edges(n, above, below, near, ranking.upwards, component, sheet.pin == TOP)
    return cut_into_layers(sheet, row, component, count, kind)


def _across(sheet: Sheet, layers: Layers, near: Neighbours) -> Floats:
    """x of every point; each component has its own origin."""
    n, above, below = sheet.size, sheet.above, sheet.below
    starts = (
        lambda: depth_order(n, above, below, layers.row[:n], sheet.pin != 0),
        lambda: level_order(below, near),
        lambda: given_order(n, above),
    )
    phase("ordering")
    order = best_order(layers, starts)
    phase("columns")
    pieces, room = pieces_by_place(order), spacing(order)
    x, straight = first_coordinates(order, pieces, room)
    return polish(x, pieces, np.flatnonzero(chain_pieces(layers) & straight), room)[order.place]


def _on_shelves(
    sheet: Sheet, layers: Layers, x: Floats, rows: Rows, routes: Routes, channel_x: Floats
) -> SheetPlacement:
    """Move every component to its place in its drawing."""
    component = layers.component[: sheet.size]
    left, _ = extremes(x - layers.half, layers.component, layers.components)
    _, right = extremes(x + layers.half, layers.component, layers.components)
    np.maximum.at(right, component[sheet.above[layers.left_out]], channel_x)
    shelf_x, shelf_y, widths, heights = _shelves(sheet, component, right - left, rows.height)
    move_x, move_y = shelf_x - left, shelf_y
    of_edge = component[sheet.above].repeat(np.diff(routes.starts))
    points = routes.points + np.column_stack((move_x[of_edge], move_y[of_edge]))
    x, y = x[: sheet.size] + move_x[component], rows.y + move_y[component]
    return SheetPlacement(x, y, points, routes.starts, widths, heights)


def _shelves(sheet: Sheet, component: Ints, widths: Floats, heights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Upper left corner of every component in its drawing, and the size of every drawing.

    Components of one drawing stand beside and below each other, the highest first. Those with ports stand side by side at the top,
    so that nothing lies between them and the border below.
    """
    ported = np.zeros(len(widths), np.bool_)
    ported[component[sheet.pin != 0]] = True
    part = np.zeros(len(widths), np.int64)
    part[component] = sheet.part
    x_of, y_of, whole_width, whole_height = (np.zeros(n) for n in (len(widths), len(widths), sheet.parts, sheet.parts))

    def in_rows(members: Ints, left: float, limit: float) -> tuple[float, float]:
        """Place components from x = `left` on. Returns the furthest right (a gap on) and lowest points."""
        x = y = tallest = furthest = 0.0
        for number in members.tolist():
            wide = float(widths[number]) + 2 * sheet.gap
            if x and x + wide > limit:
                x, y, tallest = 0.0, y + tallest + sheet.rank_gap, 0.0
            x_of[number], y_of[number] = left + x, y
            x += wide
            furthest, tallest = max(furthest, x), max(tallest, float(heights[number]))
        return left + furthest, y + tallest

    members = group(part, sheet.parts)
    size = np.diff(members.start)
    alone = members.order[members.start[:-1][size == 1]]
    whole_width[part[alone]], whole_height[part[alone]] = widths[alone], heights[alone]
    for p in np.flatnonzero(size > 1).tolist():
        here = members.order[members.start[p] : members.start[p + 1]]
        right, bottom = in_rows(here[ported[here]], 0.0, np.inf)
        rest = here[~ported[here]]
        if len(rest):
            area = float(((widths[rest] + 2 * sheet.gap) * (heights[rest] + sheet.rank_gap)).sum())
            limit = max(float(widths[rest].max()) + 2 * sheet.gap, (area * ASPECT) ** 0.5)
            right, low = in_rows(rest[np.argsort(-heights[rest], kind="stable")], right, limit)
            bottom = max(bottom, low)
        whole_width[p], whole_height[p] = right - 2 * sheet.gap, bottom
    return x_of, y_of, whole_width, whole_height
