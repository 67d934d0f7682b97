"""Places a drawing: by Graphviz dot where that is quick and better, else by the layered layout, which always ends.

dot draws small graphs without frames better. With frames it bends the main stream of a network and runs edges through
titles, and its time grows far faster than a graph does. Here are the estimate of that time, the step from one engine to the other,
and what dot reads and writes; how Graphviz is started is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from gradviz.errors import FormatError, GraphvizNotFound, LayoutError, LayoutTimeout, did_you_mean
from gradviz.layout import (
    CycleError,
    Drawing,
    Floats,
    LayoutFrame,
    Placement,
    Rect,
    graphviz,
    layered,
    leading_back,
    turned,
    turned_back,
)
from gradviz.layout.layered.ranks import heights, neighbours
from gradviz.stages import Stage

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
    except CycleError:
        back = leading_back(drawing)
        return turned_back(_place(turned(drawing, back), engine, timeout), back)


def _place(drawing: Drawing, engine: Engine, timeout: float) -> Placement:
    """Place a drawing; raises Cycle, of which `place` gets rid."""
    if engine == "layered" or (engine == "auto" and (drawing.frames or size_for_dot(drawing) > LARGEST_FOR_DOT)):
        return _layered(drawing)
    if len(leading_back(drawing)):
        raise CycleError
    limit = min(timeout, AUTO_LIMIT) if engine == "auto" else timeout
    try:
        placed = place_by_dot(drawing, timeout=limit)
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


# -- dot: the smallest DOT text that says it all, and positions read back -------------------------------------------------

# dot sees opaque names, fixed sizes and nothing else, so no text of the user's reaches it and fonts play no part. One pixel
# is one point (1/72 inch) here.

PER_INCH = 72.0
FRAME_MARGIN = 8  # px between a frame's border and what is in it
SNAP = 2.0  # px
SMALLEST = 0.72  # px: dot refuses sizes below 0.01 inch


def place_by_dot(drawing: Drawing, *, timeout: float = 20.0) -> Placement:
    """Positions by dot, within `timeout` seconds.

    Raises `LayoutTimeout` if dot does not finish, `LayoutError` if it fails or is not there.
    """
    if not drawing.size:
        none, starts = np.zeros((0, 2)), np.zeros(len(drawing.edges) + 1, np.int64)
        return Placement(none[:, 0], none[:, 1], none, starts, _no_rects(drawing), 0.0, 0.0, "dot", curved=True)
    with Stage("layout", doing=f"waiting for dot, at most {timeout:g} s"):
        answer = graphviz.run(to_dot(drawing), format="json", timeout=timeout)
        return from_json(drawing, answer)


def to_dot(drawing: Drawing) -> str:
    """The drawing as DOT text: boxes n0, n1, ..., frames as clusters, edges with their row number as id."""
    lines = [
        "digraph {",
        f"graph [rankdir=TB, nodesep={_inches(drawing.gap)}, ranksep={_inches(drawing.rank_gap)}];",
        'node [shape=box, fixedsize=true, label=""];',
        "edge [dir=none];",
        *_boxes(drawing),
    ]
    for row, (above, below) in enumerate(drawing.edges.tolist()):
        if above != below:
            lines.append(f"n{above} -> n{below} [id={row}];")
    lines.append("}")
    return "\n".join(lines)


def from_json(drawing: Drawing, answer: bytes) -> Placement:
    """Read what `dot -Tjson` wrote for `to_dot(drawing)`.

    Read from its drawing instructions: they have two decimals, while the attribute `pos` has five digits in all, which is
    too few in a drawing taller than 100,000 px.
    """
    try:
        drawn: dict[str, Any] = json.loads(answer)
        centres, frames = _places(drawing, drawn.get("objects", ()))
        routes = _routes(drawing, drawn.get("edges", ()), centres)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise LayoutError(f"Graphviz dot gave positions that cannot be read: {error!r}") from error
    halves = np.column_stack((drawing.widths, drawing.heights)) / 2
    everything = np.concatenate([centres - halves, centres + halves, *frames.values(), *routes])
    corner, far = everything.min(axis=0), everything.max(axis=0)
    rects = list(_no_rects(drawing))
    for index, border in frames.items():
        rects[index] = Rect(*(border.min(axis=0) - corner).tolist(), *np.ptp(border, axis=0).tolist())
    starts = np.cumsum([0, *map(len, routes)])
    points = np.concatenate([np.zeros((0, 2)), *routes]) - corner
    x, y = (centres - corner).T.copy()
    width, height = (far - corner).tolist()
    return Placement(x, y, points, starts, tuple(rects), width, height, "dot", curved=True)


def _places(drawing: Drawing, objects: Iterable[dict[str, Any]]) -> tuple[Floats, dict[int, Floats]]:
    """Centres of all boxes, and the corners of the frames that dot placed."""
    centres = np.full((drawing.size, 2), np.nan)
    frames = {}
    for thing in objects:
        name = thing["name"]
        border = _points(thing, "pP")
        if border is None:
            continue
        if name.startswith("cluster_"):
            frames[int(name[8:])] = border
        else:
            centres[int(name[1:])] = (border.min(axis=0) + border.max(axis=0)) / 2
    if np.isnan(centres).any():
        raise ValueError("boxes without a position")
    return centres, frames


def _routes(drawing: Drawing, edges: Iterable[dict[str, Any]], centres: Floats) -> list[Floats]:
    """Control points of every edge, from border to border. An edge that dot lost gets a straight line."""
    drawn = {int(edge["id"]): _points(edge, "bB") for edge in edges}
    routes = []
    for row, (above, below) in enumerate(drawing.edges.tolist()):
        if above == below:
            routes.append(np.zeros((0, 2)))
            continue
        lower = centres[above, 1] + drawing.heights[above] / 2
        upper = centres[below, 1] - drawing.heights[below] / 2
        route = drawn.get(row)
        if route is None:
            start, end = (centres[above, 0], lower), (centres[below, 0], upper)
            route = np.linspace(start, end, 4)
        # dot rounds sizes to whole points: let ends that fell beside a border by that much meet it
        if abs(route[0, 1] - lower) < SNAP:
            route[0, 1] = lower
        if abs(route[-1, 1] - upper) < SNAP:
            route[-1, 1] = upper
        routes.append(route)
    return routes


def _boxes(drawing: Drawing) -> Iterator[str]:
    """Lines that declare every box inside its frame. A title is an empty table of the title's size: no font is asked."""
    inside: list[list[int]] = [[] for _ in drawing.frames]
    for box, frame in enumerate(drawing.frame_of.tolist()):
        if frame < 0:
            yield _box(drawing, box)
        else:
            inside[frame].append(box)
    children: list[list[int]] = [[] for _ in drawing.frames]
    pending: list[int] = []  # a negative number ends the frame before it
    for index, frame_ in enumerate(drawing.frames):
        (pending if frame_.parent is None else children[frame_.parent]).append(index)
    pending.reverse()
    while pending:
        index = pending.pop()
        if index < 0:
            yield "}"
            continue
        yield f"subgraph cluster_{index} {{"
        yield f"graph [margin={FRAME_MARGIN}, labeljust=l, label={_title(drawing.frames[index])}];"
        for box in inside[index]:
            yield _box(drawing, box)
        pending.append(-1)
        pending.extend(reversed(children[index]))


def _box(drawing: Drawing, box: int) -> str:
    width, height = drawing.widths[box], drawing.heights[box]
    return f"n{box} [width={_inches(width)}, height={_inches(height)}];"


def _title(frame: LayoutFrame) -> str:
    width, height = int(np.ceil(frame.title_width)), int(np.ceil(frame.title_height))
    if width <= 0 or height <= 0:
        return '""'
    return (
        f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR><TD FIXEDSIZE="TRUE" '
        f'WIDTH="{width}" HEIGHT="{height}"></TD></TR></TABLE>>'
    )


def _no_rects(drawing: Drawing) -> tuple[Rect, ...]:
    """What a frame with nothing in it gets: dot does not place those."""
    return (Rect(0.0, 0.0, 0.0, 0.0),) * len(drawing.frames)


def _inches(pixels: float) -> str:
    return f"{max(pixels, SMALLEST) / PER_INCH:.5f}"


def _points(thing: dict[str, Any], kinds: str) -> Floats | None:
    """Points of the first instruction of these kinds that draws the thing. dot's y grows upwards, ours downwards."""
    for instruction in thing.get("_draw_", ()):
        if instruction["op"] in kinds:
            return np.array(instruction["points"], dtype=np.float64) * (1.0, -1.0)
    return None
