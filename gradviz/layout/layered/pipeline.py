"""One run over a sheet: rows, first order, fewer crossings, x, y with routes, columns,
shelves.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout.layered.columns import in_columns
from gradviz.layout.layered.coordinates import x_of_points
from gradviz.layout.layered.first_orders import depth_order, given_order
from gradviz.layout.layered.grouping import components, counts
from gradviz.layout.layered.layers import Layers, cut_into_layers
from gradviz.layout.layered.neighbours import Neighbours
from gradviz.layout.layered.ordering import Order, best_order
from gradviz.layout.layered.ranks import choose_rows, longest_ways
from gradviz.layout.layered.rows import place_layers
from gradviz.layout.layered.sheet import FREE, TOP, Sheet, SheetPlacement
from gradviz.layout.layered.shelves import on_shelves
from gradviz.stages import phase

PHASES = 5
"""Phases that one run begins."""


def place_sheet(sheet: Sheet) -> SheetPlacement:
    """Place everything on a sheet."""
    phase("rows")
    near = Neighbours(sheet.size, sheet.above, sheet.below)
    component, count = components(sheet.size, sheet.above, sheet.below)
    row = choose_rows(near, component, sheet.heights, sheet.pin)
    main = longest_ways(near, component, sheet.pin == TOP)
    layers = cut_into_layers(sheet, row, component, count, main)

    phase("ordering")
    # two first orders, since crossings are only ever improved from where one begins
    bend_edge = layers.bends.edge
    by_depth = depth_order(near, bend_edge, row, sheet.pin != FREE, main)
    order = best_order(layers, (by_depth, given_order(near, bend_edge)))
    _mirror(order, layers, sheet)
    key = order.place.copy()
    key[: sheet.size] += sheet.side * layers.size
    order.sort(key)

    phase("columns")
    x = x_of_points(order, sheet.gap)
    phase("routes")
    placed = place_layers(sheet, layers, x)
    phase("shelves")
    if sheet.rooms is not None:
        rooms = np.zeros(layers.components)
        rooms[layers.component[: sheet.size]] = sheet.rooms[sheet.part]
        placed = in_columns(sheet, layers, placed, rooms)
    return on_shelves(sheet, layers, placed)


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
