"""The whole way from a drawing to a placement: what is drawn once, what goes into grids, how routes join."""

from __future__ import annotations

import numpy as np

from gradviz.layout.layered.adjacency import distinct
from gradviz.layout.layered.flat import PHASES, place_sheet
from gradviz.layout.layered.frames import FramedPlacement, place_with_frames
from gradviz.layout.layered.leaf_grids import (
    Boxes,
    Grids,
    leaf_routes,
    make_grids,
)
from gradviz.layout.layered.routes import Routes, joined
from gradviz.layout.layered.sheet import plain_sheet
from gradviz.layout.model import (
    Drawing,
    Floats,
    Ints,
    Placement,
)
from gradviz.stages import Stage, phase


def place(drawing: Drawing) -> Placement:
    """Place boxes in rows from top to bottom.

    Raises Cycle when the edges form one; an edge from a box to itself is allowed and gets no points.
    """
    with Stage("layout"):
        return _place(drawing)


def _place(drawing: Drawing) -> Placement:
    phase("grids", of=PHASES + 2)  # with frames it turns out to be more
    edges, which = _distinct_edges(drawing)
    boxes = Boxes(
        np.asarray(drawing.widths, np.float64),
        np.asarray(drawing.heights, np.float64),
        edges,
        np.asarray(drawing.frame_of, np.int64),
    )
    grids = make_grids(boxes, drawing.gap, drawing.rank_gap)
    placed = _place_boxes(grids.outside, drawing)
    phase("joining")
    x, y = _in_grids(grids, placed)
    routes = _whole_routes(grids, placed, x, y, boxes.heights, which)
    return Placement(
        x=x,
        y=y,
        points=routes.points,
        starts=routes.starts,
        frames=placed.frames,
        width=placed.width,
        height=placed.height,
        engine="layered",
    )


def _place_boxes(boxes: Boxes, drawing: Drawing) -> FramedPlacement:
    above, below = boxes.edges[:, 0], boxes.edges[:, 1]
    if drawing.frames:
        return place_with_frames(boxes, drawing.frames, drawing.gap, drawing.rank_gap)
    sheet = plain_sheet(boxes.widths, boxes.heights, above, below, drawing.gap, drawing.rank_gap)
    placed = place_sheet(sheet)
    routes = Routes(placed.points, placed.starts)
    return FramedPlacement(placed.x, placed.y, routes, (), float(placed.widths[0]), float(placed.heights[0]))


def _distinct_edges(drawing: Drawing) -> tuple[Ints, Ints]:
    """Edges without repetitions and self-loops, and for every edge of the drawing which of them it is, or -1."""
    edges = np.asarray(drawing.edges, np.int64).reshape(-1, 2)
    which = np.full(len(edges), -1, np.int64)
    proper = np.flatnonzero(edges[:, 0] != edges[:, 1])
    size = max(drawing.size, 1)
    keys, which[proper] = distinct(edges[proper, 0] * size + edges[proper, 1])
    return np.column_stack((keys // size, keys % size)), which


def _in_grids(grids: Grids, placed: FramedPlacement) -> tuple[Floats, Floats]:
    """Middles of all boxes, those inside grids too."""
    x, y = placed.x[grids.box], placed.y[grids.box]
    x[grids.leaf] += grids.dx
    y[grids.leaf] += grids.dy
    return x, y


def _whole_routes(grids: Grids, placed: FramedPlacement, x: Floats, y: Floats, heights: Floats, which: Ints) -> Routes:
    """Routes of all edges of the drawing; those from grids begin, or end, inside them."""
    inner = leaf_routes(grids, x[grids.leaf], y[grids.leaf], heights[grids.leaf])
    every = Routes(
        np.concatenate((placed.routes.points, inner.points)),
        np.concatenate((placed.routes.starts[:-1], len(placed.routes.points) + inner.starts)),
    )
    inside = np.full((len(grids.edge), 3), -1, np.int64)  # pieces before, outside and after
    inside[:, 1] = grids.edge
    inside[grids.leaf_edge, np.where(grids.flipped, 2, 0)] = len(placed.routes.starts) - 1 + np.arange(len(grids.leaf))
    drawn = np.flatnonzero(which >= 0)
    pieces = inside[which[drawn]]
    return joined(every, np.repeat(drawn, (pieces >= 0).sum(axis=1)), pieces[pieces >= 0], len(which))
