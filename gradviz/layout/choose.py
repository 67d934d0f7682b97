"""Chooses who places a drawing: dot where it is quick and better, else the layered layout, which always ends.

dot draws small graphs without frames better. With frames it bends the main stream of a network and runs edges through
titles, and its time grows far faster than a graph does. This module owns the estimate of that time and the
step from one engine to the other; it knows neither how Graphviz is started nor how anything is placed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from gradviz.errors import (
    FormatError,
    GraphvizNotFound,
    LayoutError,
    LayoutTimeout,
    did_you_mean,
)
from gradviz.layout import Cycle, Drawing, Ints, Placement, dot, layered
from gradviz.layout.layered.ranks import heights, neighbours

Engine = Literal["auto", "dot", "layered"]

# Calibration: 117 synthetic drawings (recurrent, bidirectional, transformer, residual, dense, U-shaped and random graphs,
# trees, chains, shared leaves, complete bipartite graphs; with and without frames), placed by Graphviz 2.43 and by 14.1 of
# the pygraphviz wheel on one busy core of two, the slower of both counted:
#     size          <= 300  <= 600  <= 900  <= 1250  <= 1700  <= 2500  <= 5000  larger
#     median, s       0.07    0.10    0.15     0.26     0.47     0.90     1.9      20+
#     slowest, s      0.20    0.24    0.32     0.45     1.0       20+      10+      20+
# Up to 1250 nothing took longer than 0.45 s. Of the 67 drawings that took less than 0.3 s, 4 are larger than that.
# A box weighs more than a place where an edge passes a row, and many edges between few boxes cost little each.
BOX, EDGE, PASSAGE = 0.75, 0.25, 0.5
LARGEST_FOR_DOT = 1250.0
# Along a stream with side branches dot drifts to the side, the further the longer it is.
WIDE, DRIFT = 1600.0, 2.0
AUTO_LIMIT = 3.0  # seconds: what `auto` gives dot at most, for when the estimate is wrong or the machine is slow


def place(drawing: Drawing, *, engine: Engine = "auto", timeout: float = 20.0) -> Placement:
    """Place a drawing. `timeout` is what dot may take, in seconds.

    `auto` takes dot for a drawing without frames if it should need well below a second, else the layered layout; that one also
    where dot's drawing is wider than a screen and more than twice as wide as it has to be. `dot` tries dot in any case.
    Whenever dot does not finish, fails or is not there, the layered layout is used and `notes` says why.

    Edges that form a cycle can be placed, too: as few of them as lead back run upwards, and `notes` says so.

    Raises `LayoutError` if no engine can place the drawing, `FormatError` for an unknown engine.
    """
    if engine not in get_args(Engine):
        raise FormatError(f"layout cannot be {engine!r}. {did_you_mean(engine, get_args(Engine), what='engines')}")
    try:
        return _place(drawing, engine, timeout)
    except Cycle:
        back = leading_back(drawing)
        return turned_back(_place(turned(drawing, back), engine, timeout), back)


def _place(drawing: Drawing, engine: Engine, timeout: float) -> Placement:
    """Place a drawing; raises Cycle, of which `place` gets rid."""
    if engine == "layered" or (engine == "auto" and (drawing.frames or size_for_dot(drawing) > LARGEST_FOR_DOT)):
        return _layered(drawing)
    if len(leading_back(drawing)):
        raise Cycle
    limit = min(timeout, AUTO_LIMIT) if engine == "auto" else timeout
    try:
        placed = dot.place(drawing, timeout=limit)
        return _narrower(drawing, placed) if engine == "auto" and placed.width > WIDE else placed
    except LayoutTimeout:
        reason = f"dot did not finish within {limit:g} s"
    except GraphvizNotFound as error:
        reason = str(error).partition(".")[0]
    except LayoutError as error:
        reason = str(error).partition("\n")[0].rstrip(".")
    return _layered(drawing, reason)


def _narrower(drawing: Drawing, placed: Placement) -> Placement:
    other = _layered(drawing)
    return other if placed.width > DRIFT * other.width else placed


def size_for_dot(drawing: Drawing) -> float:
    """How much work a drawing is for dot: its boxes, its edges, and the rows that edges pass on their way.

    Infinite once boxes and edges alone are too many. Linear time.

    >>> import numpy as np
    >>> from gradviz.layout import Drawing
    >>> two = Drawing(np.full(2, 60.0), np.full(2, 24.0), np.array([[0, 1]]), np.full(2, -1))
    >>> size_for_dot(two)
    1.75
    """
    size = BOX * drawing.size + EDGE * len(drawing.edges)
    return size + PASSAGE * _passages(drawing) if size <= LARGEST_FOR_DOT else float("inf")


def _layered(drawing: Drawing, reason: str = "") -> Placement:
    try:
        placed = layered.place(drawing)
    except Cycle:
        raise
    except (LayoutError, ValueError) as error:
        tried = f"{reason}, and the" if reason else "The"
        raise LayoutError(f"{tried} layered layout failed: {error}") from error
    if not reason:
        return placed
    return replace(placed, notes=(f"{reason}, so the layered layout was used", *placed.notes))


def _passages(drawing: Drawing) -> int:
    """Rows that edges pass without ending there, when every box stands as low as it can: just above what it leads to."""
    upper, lower = drawing.edges[drawing.edges[:, 0] != drawing.edges[:, 1]].T
    row = np.array(heights(neighbours(drawing.size, upper, lower))[0])
    return int(np.maximum(row[upper] - row[lower] - 1, 0).sum())


# -- edges that form a cycle: an engine is given as few as must run upwards the other way round, and what it drew is turned back --


def leading_back(drawing: Drawing) -> Ints:
    """Rows of edges that lead back, each of them on a cycle: without them there is none. Empty without cycles. Linear time.

    They are those that a depth-first walk from the boxes without inputs meets on its own way (Tarjan, 1972).

    >>> from gradviz.layout import Drawing
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
