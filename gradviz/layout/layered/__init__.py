"""The layout: rows from top to bottom, close to linear in boxes and edges.

To read in this order:

1. `place`, below, and `u_shapes`: which parts of a drawing are U-Nets, whose halves get
   frames of their own.
2. `nesting`: frames, and edges cut at their borders; `feedback`: frames that feed each
   other.
3. `frames`: every frame is laid out on its own, the innermost first, and is then one box
   in its parent, by `geometry`, which has sizes and places; `halves` places a U.
4. `sheet` and `pipeline`: what one run works on, and its steps, which are those of
   Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System
   Structures" (1981). Each is a module: `ranks` for rows, `layers`, `first_orders` and
   `ordering` for the order within rows, `coordinates` for x, `rows` for y and edges,
   `columns`, `shelves`. What makes them fast and keeps deep drawings narrow is said in
   `ranks`, `ordering` and `coordinates`.

Where things went, from the inside out:

=================  =================================  =====================================
type               made by                            counts from
=================  =================================  =====================================
`LayerPlacement`   `rows`, changed by `columns`       an origin for each component
`SheetPlacement`   `shelves`, for one run             the upper left corner of each drawing
`_HalfPlaces`      `halves`, for the two of a U       its left border, the middle of its left
`FramedPlacement`  `frames`, for boxes and frames     the upper left corner of the page
`Placement`        `place`, in terms of the drawing   the same
=================  =================================  =====================================

`grouping`, `neighbours` and `routes` are the data that all work on: arrays in groups, a
graph, polylines. Nothing here knows of graphs of autograd, ops or text, and nothing walks
a graph by recursion.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradviz.layout import Drawing, Floats, Ints, Placement, Rect
from gradviz.layout.layered.frames import place_with_frames
from gradviz.layout.layered.grouping import distinct_pairs
from gradviz.layout.layered.pipeline import PHASES
from gradviz.layout.layered.routes import joined
from gradviz.layout.layered.u_shapes import UShape, in_halves
from gradviz.stages import Stage, phase


def place(drawing: Drawing) -> Placement:
    """Place boxes in rows from top to bottom. An edge from a box to itself gets no
    points; of edges that form a cycle some run upwards.
    """
    with Stage("layout"):
        phase("joining", of=PHASES + 1)  # with frames it turns out to be more
        edges, which = _distinct_edges(drawing)
        distinct = replace(drawing, edges=edges)
        halved, shapes = in_halves(distinct) if drawing.u_shapes else (distinct, [])
        middles, sizes, routes = place_with_frames(halved, shapes)
        if not all(_is_level(halved, shape, middles) for shape in shapes):
            shapes = []
            middles, sizes, routes = place_with_frames(distinct, shapes)

        drawn = np.flatnonzero(which >= 0)
        points, starts = joined(routes, drawn, which[drawn], len(which))
        page = drawing.size
        x, y = middles[:page].T.copy()
        width, height = sizes[page].tolist()
        rects = np.column_stack((middles - sizes / 2, sizes))[page + 1 :].tolist()
        # the halves of a U are the last, and no frames of the drawing
        frames = tuple(Rect(*rect) for rect in rects[: len(drawing.frames)])
        return Placement(x, y, points, starts, frames, width, height, bool(shapes))


def _is_level(drawing: Drawing, shape: UShape, middles: Floats) -> bool:
    """Whether the skips of a U are: not where frames keep a box from its level."""
    ends = middles[drawing.edges[shape.skips], 1]
    return bool(np.all(np.abs(np.diff(ends)) < 0.5))


def _distinct_edges(drawing: Drawing) -> tuple[Ints, Ints]:
    """Edges without repetitions and self-loops, and for every edge of the drawing which
    of them it is, or -1.
    """
    edges = np.asarray(drawing.edges, np.int64).reshape(-1, 2)
    which = np.full(len(edges), -1, np.int64)
    proper = np.flatnonzero(edges[:, 0] != edges[:, 1])
    above, below, which[proper] = distinct_pairs(edges[proper].T, drawing.size)
    return np.column_stack((above, below)), which
