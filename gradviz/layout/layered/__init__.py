"""Our own layout engine for large drawings: rows from top to bottom, close to linear in boxes and edges.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981): rows, order within rows, coordinates. What makes them fast and keeps deep drawings narrow is said in `ranks`,
`ordering` and `coordinates`. Nothing here knows of graphs, ops or text, and nothing walks a graph by recursion.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradviz.layout.layered.frames import place_with_frames
from gradviz.layout.layered.grouping import distinct
from gradviz.layout.layered.layers import plain_sheet
from gradviz.layout.layered.leaf_grids import Grids, leaf_routes, make_grids
from gradviz.layout.layered.routes import Routes, joined
from gradviz.layout.layered.sheets import PHASES, place_sheet
from gradviz.layout.model import Drawing, Floats, Ints, Placement
from gradviz.stages import Stage, phase


def place(drawing: Drawing) -> Placement:
    """Place boxes in rows from top to bottom.

    Raises Cycle when the edges form one; an edge from a box to itself is allowed and gets no points.
    """
    with Stage("layout"):
        phase("grids", of=PHASES + 2)  # with frames it turns out to be more
        edges, which = _distinct_edges(drawing)
        widths, heights = (np.asarray(size, np.float64) for size in (drawing.widths, drawing.heights))
        frame_of = np.asarray(drawing.frame_of, np.int64)
        grids = make_grids(replace(drawing, widths=widths, heights=heights, edges=edges, frame_of=frame_of))
        placed = place_with_frames(grids.outside) if drawing.frames else _place_flat(grids.outside)
        phase("joining")
        x, y = placed.x[grids.box], placed.y[grids.box]
        x[grids.leaf] += grids.dx
        y[grids.leaf] += grids.dy
        routes = _whole_routes(grids, placed, x, y, heights, which)
        return replace(placed, x=x, y=y, points=routes.points, starts=routes.starts)


def _place_flat(drawing: Drawing) -> Placement:
    placed = place_sheet(plain_sheet(drawing))
    size = float(placed.widths[0]), float(placed.heights[0])
    return Placement(placed.x, placed.y, placed.points, placed.starts, (), *size, "layered")


def _distinct_edges(drawing: Drawing) -> tuple[Ints, Ints]:
    """Edges without repetitions and self-loops, and for every edge of the drawing which of them it is, or -1."""
    edges = np.asarray(drawing.edges, np.int64).reshape(-1, 2)
    which = np.full(len(edges), -1, np.int64)
    proper = np.flatnonzero(edges[:, 0] != edges[:, 1])
    size = max(drawing.size, 1)
    keys, which[proper] = distinct(edges[proper, 0] * size + edges[proper, 1])
    return np.column_stack((keys // size, keys % size)), which


def _whole_routes(grids: Grids, placed: Placement, x: Floats, y: Floats, heights: Floats, which: Ints) -> Routes:
    """Routes of all edges of the drawing; those from grids begin, or end, inside them."""
    inner = leaf_routes(grids, x[grids.leaf], y[grids.leaf], heights[grids.leaf])
    every = Routes(
        np.concatenate((placed.points, inner.points)),
        np.concatenate((placed.starts[:-1], len(placed.points) + inner.starts)),
    )
    inside = np.full((len(grids.edge), 3), -1, np.int64)  # pieces before, outside and after
    inside[:, 1] = grids.edge
    inside[grids.leaf_edge, np.where(grids.flipped, 2, 0)] = len(placed.starts) - 1 + np.arange(len(grids.leaf))
    drawn = np.flatnonzero(which >= 0)
    pieces = inside[which[drawn]]
    return joined(every, np.repeat(drawn, (pieces >= 0).sum(axis=1)), pieces[pieces >= 0], len(which))
