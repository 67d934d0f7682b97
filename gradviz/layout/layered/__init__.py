"""The layout: rows from top to bottom, close to linear in boxes and edges.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of
Hierarchical System Structures" (1981): rows, order within rows, coordinates. What makes
them fast and keeps deep drawings narrow is said in `ranks`, `ordering` and
`coordinates`. Every frame is laid out on its own, the innermost first, and is then one
box in its parent. Nothing here knows of graphs, ops or text, and nothing walks a graph
by recursion.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradviz.layout import Drawing, Ints, Placement
from gradviz.layout.layered.frames import place_with_frames
from gradviz.layout.layered.grouping import distinct_pairs
from gradviz.layout.layered.routes import Routes, joined
from gradviz.layout.layered.sheets import PHASES, SheetPlacement
from gradviz.layout.layered.u_shapes import in_halves
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
        placed, frames = place_with_frames(halved, shapes)
        for shape in shapes:
            placed = _with_skips(distinct, placed, shape.skips)

        drawn = np.flatnonzero(which >= 0)
        routes = joined(placed.routes, drawn, which[drawn], len(which))
        x, y = placed.middles.T.copy()
        width, height = placed.sizes[0].tolist()
        return Placement(
            x,
            y,
            routes.points,
            routes.starts,
            frames[: len(drawing.frames)],
            width,
            height,
            is_u=bool(shapes),
        )


def _with_skips(
    drawing: Drawing, placed: SheetPlacement, skips: Ints
) -> SheetPlacement:
    """The placement with a line from side to side for each skip."""
    box, other = drawing.edges[skips].T
    ends = placed.middles[np.column_stack((box, other))]
    ends[:, 0, 0] += drawing.widths[box] / 2
    ends[:, 1, 0] -= drawing.widths[other] / 2
    ends[:, 1, 1] = ends[:, 0, 1]

    points, starts = placed.routes
    lines = Routes(
        np.vstack((points, *ends)),
        np.append(starts, len(points) + 2 * np.arange(1, len(skips) + 1)),
    )
    owner = np.arange(len(drawing.edges))
    piece = owner.copy()
    piece[skips] = len(owner) + np.arange(len(skips))
    return placed._replace(routes=joined(lines, owner, piece, len(owner)))


def _distinct_edges(drawing: Drawing) -> tuple[Ints, Ints]:
    """Edges without repetitions and self-loops, and for every edge of the drawing which
    of them it is, or -1.
    """
    edges = np.asarray(drawing.edges, np.int64).reshape(-1, 2)
    which = np.full(len(edges), -1, np.int64)
    proper = np.flatnonzero(edges[:, 0] != edges[:, 1])
    above, below, which[proper] = distinct_pairs(edges[proper].T, drawing.size)
    return np.column_stack((above, below)), which
