"""Draws links from a box to itself, which no layout engine does: a loop at the side of the box.

The layout is asked for boxes with room for the loop on both sides, so that the box itself stays in the middle.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradviz.layout.model import Floats, Placement
from gradviz.render.scene import Scene
from gradviz.render.sizing import Sized

ROOM = 26.0  # between a box and the outermost point of its loop


def rooms(drawn: Scene) -> Floats:
    """How much wider each box must be placed, for the loops on it."""
    found = np.zeros(len(drawn.boxes))
    found[[link.source for link in drawn.links if link.source == link.target]] = 2 * ROOM
    return found


def drawn(placement: Placement, scene: Scene, sizes: list[Sized], *, flat: bool) -> Placement:
    """The placement with a curve for each loop: at the right of its box, or below it where data flows sideways.

    Other lines of such a box end at the box itself, and not at the room around it.
    """
    looped = {link.source for link in scene.links if link.source == link.target}
    if not looped:
        return placement
    pieces = np.split(placement.points.copy(), placement.starts[1:-1])
    for i, link in enumerate(scene.links):
        if link.source == link.target:
            pieces[i] = _curve(placement.x[link.source], placement.y[link.source], sizes[link.source], flat)
            continue
        for box, end in ((link.source, 0), (link.target, -1)):
            if box in looped and len(pieces[i]):
                _attach(pieces[i][end], placement.x[box], placement.y[box], sizes[box], flat)
    starts = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    return replace(placement, points=np.concatenate(pieces), starts=starts)


def _attach(end: Floats, x: float, y: float, size: Sized, flat: bool) -> None:
    """Moves the end of a line sideways onto its box."""
    axis, middle, half = (1, y, size.height / 2) if flat else (0, x, size.width / 2)
    end[axis] = min(max(end[axis], middle - half), middle + half)


def _curve(x: float, y: float, size: Sized, flat: bool) -> Floats:
    """Control points of two cubic pieces: out of the box near one corner, and back into it near the next."""
    along, out = (size.width, size.height) if flat else (size.height, size.width)
    reach, half, edge = ROOM * 0.8, along * 0.3, out / 2
    points = [(edge, half), (edge + reach * 0.6, half), (edge + reach, half * 0.6), (edge + reach, 0.0)]
    points += [(edge + reach, -half * 0.6), (edge + reach * 0.6, -half), (edge, -half)]
    shape = np.array(points)
    return np.column_stack([x + shape[:, 1], y + shape[:, 0]] if flat else [x + shape[:, 0], y + shape[:, 1]])
