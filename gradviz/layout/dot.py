"""Places a drawing with Graphviz `dot`: writes the smallest DOT text that says it all, and reads positions back.

dot sees opaque names, fixed sizes and nothing else, so no text of the user's reaches it and fonts play no part. One pixel
is one point (1/72 inch) here. How Graphviz is started, and what happens when it fails, is not known here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gradviz.errors import LayoutError
from gradviz.layout import (
    Drawing,
    Floats,
    Placement,
    Rect,
    graphviz,
)
from gradviz.stages import Stage

PER_INCH = 72.0
FRAME_MARGIN = 8  # px between a frame's border and what is in it
SNAP = 2.0  # px
SMALLEST = 0.72  # px: dot refuses sizes below 0.01 inch


def place(drawing: Drawing, *, timeout: float = 20.0) -> Placement:
    """Positions by dot, within `timeout` seconds.

    Raises `LayoutTimeout` if dot does not finish, `LayoutError` if it fails or is not there.
    """
    if not drawing.size:
        none = np.zeros(0)
        starts = np.zeros(len(drawing.edges) + 1, dtype=np.int64)
        return Placement(none, none, np.zeros((0, 2)), starts, _no_rects(drawing), 0.0, 0.0, "dot", curved=True)
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
    halves = np.stack([drawing.widths, drawing.heights], axis=1) / 2
    everything = np.concatenate([centres - halves, centres + halves, *frames.values(), *routes])
    corner, far = everything.min(axis=0), everything.max(axis=0)
    rects = list(_no_rects(drawing))
    for index, border in frames.items():
        x, y = border.min(axis=0) - corner
        rects[index] = Rect(float(x), float(y), float(np.ptp(border[:, 0])), float(np.ptp(border[:, 1])))
    starts = np.zeros(len(routes) + 1, dtype=np.int64)
    np.cumsum([len(route) for route in routes], out=starts[1:])
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
        frame_ = drawing.frames[index]
        width, height = int(np.ceil(frame_.title_width)), int(np.ceil(frame_.title_height))
        yield f"subgraph cluster_{index} {{"
        yield f"graph [margin={FRAME_MARGIN}, labeljust=l, label={_title(width, height)}];"
        for box in inside[index]:
            yield _box(drawing, box)
        pending.append(-1)
        pending.extend(reversed(children[index]))


def _box(drawing: Drawing, box: int) -> str:
    width, height = drawing.widths[box], drawing.heights[box]
    return f"n{box} [width={_inches(width)}, height={_inches(height)}];"


def _title(width: int, height: int) -> str:
    if width <= 0 or height <= 0:
        return '""'
    return (
        f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="0"><TR><TD FIXEDSIZE="TRUE" '
        f'WIDTH="{width}" HEIGHT="{height}"></TD></TR></TABLE>>'
    )


def _no_rects(drawing: Drawing) -> tuple[Rect, ...]:
    """What a frame with nothing in it gets: dot does not place those."""
    return tuple(Rect(0.0, 0.0, 0.0, 0.0) for _ in drawing.frames)


def _inches(pixels: float) -> str:
    return f"{max(pixels, SMALLEST) / PER_INCH:.5f}"


def _points(thing: dict[str, Any], kinds: str) -> Floats | None:
    """Points of the first instruction of these kinds that draws the thing. dot's y grows upwards, ours downwards."""
    for instruction in thing.get("_draw_", ()):
        if instruction["op"] in kinds:
            return np.array(instruction["points"], dtype=np.float64) * (1.0, -1.0)
    return None
