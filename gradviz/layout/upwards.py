"""Drawings whose edges form a cycle: which edges have to run upwards, so that every drawing can be placed.

An engine is given those edges the other way round, and what it drew is turned back. Knows positions only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gradviz.layout.model import Drawing, Ints, Placement


class Cycle(ValueError):
    """Edges form a cycle, so the boxes cannot be placed in rows."""


def leading_back(drawing: Drawing) -> Ints:
    """Rows of edges that lead back, each of them on a cycle: without them there is none. Empty without cycles. Linear time.

    They are those that a depth-first walk from the boxes without inputs meets on its own way (Tarjan, 1972).

    >>> from gradviz.layout.model import Drawing
    >>> ring = Drawing(np.ones(3), np.ones(3), np.array([[0, 1], [1, 2], [2, 0]]), np.full(3, -1))
    >>> leading_back(ring).tolist()
    [2]
    """
    pairs = drawing.edges.tolist()
    down: list[list[tuple[int, int]]] = [[] for _ in range(drawing.size)]
    has_inputs = bytearray(drawing.size)
    for row, (above, below) in enumerate(pairs):
        if above != below:
            down[above].append((row, below))
            has_inputs[below] = 1
    fresh, on_the_way, left = 0, 1, 2
    state = bytearray(drawing.size)
    back: list[int] = []
    for start in sorted(range(drawing.size), key=has_inputs.__getitem__):
        if state[start] != fresh:
            continue
        state[start] = on_the_way
        way = [(start, iter(down[start]))]
        while way:
            box, rest = way[-1]
            for row, below in rest:
                if state[below] == on_the_way:
                    back.append(row)
                elif state[below] == fresh:
                    state[below] = on_the_way
                    way.append((below, iter(down[below])))
                    break
            else:
                state[box] = left
                way.pop()
    return np.array(back, np.int64)


def turned(drawing: Drawing, rows: Ints) -> Drawing:
    """The drawing with these edges the other way round."""
    edges = drawing.edges.copy()
    edges[rows] = edges[rows, ::-1]
    return replace(drawing, edges=edges)


def turned_back(placement: Placement, rows: Ints) -> Placement:
    """The placement of a turned drawing, with the routes of these edges from their own beginnings to their own ends."""
    points = placement.points.copy()
    for start, end in zip(placement.starts[rows].tolist(), placement.starts[rows + 1].tolist()):
        points[start:end] = placement.points[start:end][::-1]
    lines = "1 line runs" if len(rows) == 1 else f"{len(rows):,} lines run"
    note = f"{lines} against the direction of the others, because the boxes there wait for each other"
    return replace(placement, points=points, notes=(*placement.notes, note))
