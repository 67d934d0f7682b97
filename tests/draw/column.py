"""A layout that any test can foresee, and pictures made with it: what is tested is the picture, not a layout engine."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from gradviz.draw.options import Direction, Options
from gradviz.draw.picture import Page, Picture, compose
from gradviz.draw.scene import Scene
from gradviz.fold.folding import Folding
from gradviz.graph import Graph
from gradviz.layout import Drawing, Floats, Placement, Rect
from tests.drawn import folding, scene


def in_a_column(drawing: Drawing) -> Placement:
    """Boxes below each other, each edge one straight line at the side of them."""
    gap = drawing.rank_gap
    below = np.cumsum(drawing.heights + gap)
    y = below - gap - drawing.heights / 2
    width = float(drawing.widths.max(initial=0.0)) + 60.0
    x = np.full(drawing.size, width / 2)
    points = [((x[a], y[a]), (width - 5.0, (y[a] + y[b]) / 2), (x[b], y[b])) for a, b in drawing.edges.tolist()]
    starts = np.arange(len(points) + 1, dtype=np.int64) * 3
    inside = [drawing.frame_of == i for i in range(len(drawing.frames))]
    frames = tuple(_around(drawing, x, y, boxes) for boxes in inside)
    height = float(below[-1] - gap) if drawing.size else 0.0
    return Placement(x, y, np.array(points).reshape(-1, 2), starts, frames, width, height)


def _around(drawing: Drawing, x: Floats, y: Floats, boxes: npt.NDArray[np.bool_]) -> Rect:
    if not boxes.any():
        return Rect(0.0, 0.0, 0.0, 0.0)
    left, right = (x - drawing.widths / 2)[boxes].min() - 4, (x + drawing.widths / 2)[boxes].max() + 4
    top, bottom = (y - drawing.heights / 2)[boxes].min() - 18, (y + drawing.heights / 2)[boxes].max() + 4
    return Rect(left, top, right - left, bottom - top)


def drawn(graph: Graph | Folding, direction: Direction = "down", **options: object) -> Picture:
    made = scene(graph, Options.of({"direction": direction, **options}))
    return composed(graph, made, direction)


def composed(graph: Graph | Folding, drawn: Scene, direction: Direction = "down") -> Picture:
    """The picture of a scene, with the boxes in a column."""
    with patch("gradviz.layout.layered.place", in_a_column):
        return compose(folding(graph), drawn, Page(drawn, is_flat=direction == "right"))
