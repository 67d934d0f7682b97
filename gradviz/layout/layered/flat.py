"""One run of the layout over a sheet: rows, first order, fewer crossings, x, y, routes, shelves."""

from __future__ import annotations

import numpy as np

from gradviz.layout.layered.adjacency import components
from gradviz.layout.layered.alignment import pieces_by_place, spacing
from gradviz.layout.layered.columns import straight_edges
from gradviz.layout.layered.compaction import first_coordinates
from gradviz.layout.layered.crossings import depth_order, given_order, level_order
from gradviz.layout.layered.layers import Layers, chain_pieces, cut_into_layers
from gradviz.layout.layered.ordering import best_order
from gradviz.layout.layered.packing import Shelves, pack_components, polish
from gradviz.layout.layered.ranks import (
    Neighbours,
    neighbours,
    rank_nodes,
    rows_by_component,
)
from gradviz.layout.layered.routes import Routes, Rows, channel_coordinates, edge_routes, place_rows
from gradviz.layout.layered.sheet import TOP, Sheet, SheetPlacement
from gradviz.layout.model import Floats
from gradviz.stages import phase

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
    ranking = rank_nodes(n, above, below, near)
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
    left, right = np.full(layers.components, np.inf), np.full(layers.components, -np.inf)
    np.minimum.at(left, layers.component, x - layers.half)
    np.maximum.at(right, layers.component, x + layers.half)
    np.maximum.at(right, component[sheet.above[layers.left_out]], channel_x)
    ported = np.zeros(layers.components, np.bool_)
    ported[component[sheet.pin != 0]] = True
    part = np.zeros(layers.components, np.int64)
    part[component] = sheet.part
    shelves: Shelves = pack_components(right - left, rows.height, ported, part, sheet.parts, sheet.gap, sheet.rank_gap)
    move_x, move_y = shelves.x - left, shelves.y
    of_edge = component[sheet.above].repeat(np.diff(routes.starts))
    points = routes.points + np.column_stack((move_x[of_edge], move_y[of_edge]))
    return SheetPlacement(
        x[: sheet.size] + move_x[component],
        rows.y + move_y[component],
        points,
        routes.starts,
        shelves.widths,
        shelves.heights,
    )
