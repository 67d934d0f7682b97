"""Makes a picture of a graph: sizes the scene's boxes, has them placed, and puts title, legend and footer around them.

This module joins scene, layout and page; it knows no picture format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gradviz.draw import (
    curves,
    ports,
    wire_labels,
)
from gradviz.draw import margins as text
from gradviz.draw.details import Blocks, tooltip_note
from gradviz.draw.footer import BARS_TITLE
from gradviz.draw.geometry import FrameBlock, Picture, Words
from gradviz.draw.metrics import text_width
from gradviz.draw.options import Direction, LinkSource, Options
from gradviz.draw.scene import Scene, scene
from gradviz.draw.sizing import (
    FRAME_LINE,
    FRAME_TITLE,
    PAD_X,
    Sized,
    Title,
    frame_title,
    measured_all,
)
from gradviz.graph import Graph
from gradviz.layout.choose import place
from gradviz.layout.model import (
    Drawing,
    Frame,
    Placement,
    Rect,
)
from gradviz.layout.page_columns import side_by_side
from gradviz.report.labels import one_line

MARGIN = 16.0
PART_GAP = 12.0  # between title, legend, boxes and footer
LEAST_ROOM = 520.0  # for the texts around a small drawing
FAR = 20e6  # pixels; Chromium misplaces things by 2 pixels at 27 million, and loses them from 33.5 million on
GAP, RANK_GAP, SIDE_RANK_GAP = 18.0, 34.0, 44.0

Placer = Callable[[Drawing], Placement]


def picture(graph: Graph, options: Options) -> Picture:
    """The picture of a graph. Raises LayoutError when no layout engine can place it."""
    return compose(graph, scene(graph, options), options.direction, _placer(options), options.link_source)


def size(drawn: Scene, options: Options) -> tuple[int, int]:
    """Width and height in pixels that the picture of a scene has. Raises LayoutError when no layout engine can place it."""
    page = _Page(drawn, options.direction, _placer(options))
    return page.width, page.height


def _placer(options: Options) -> Placer:
    def placer(drawing: Drawing) -> Placement:
        return place(drawing, engine=options.layout, timeout=options.layout_timeout)

    return placer


class _Page:
    """Where the boxes of a scene and the texts around them go."""

    def __init__(self, drawn: Scene, direction: Direction, placer: Placer) -> None:
        self.sizes = measured_all(drawn.boxes)
        self.titles = [frame_title(frame.title) for frame in drawn.frames]
        self.laid = laid = _place(_drawing(drawn, self.sizes, self.titles, direction), direction, placer)
        placement = ports.drawn(laid.placement, drawn, self.sizes, flat=direction in ("left", "right"))
        room = max(placement.width, LEAST_ROOM)
        how_cut = _columns_note(laid, direction)
        above = _above(drawn, room, _too_far(placement) or how_cut)  # the footer may be far away
        self.notes = (*placement.notes, how_cut) if how_cut else placement.notes
        below = _below(drawn, self.notes, room)
        inner = max(placement.width, above.width, below.width)
        left, top = MARGIN + float(round((inner - placement.width) / 2)), MARGIN + above.height
        self.width = math.ceil(inner + 2 * MARGIN)
        self.height = math.ceil(top + placement.height + below.height + MARGIN)
        self.around = Rect(0.0, top, inner + 2 * MARGIN, placement.height)
        self.above, self.below = above.moved(MARGIN, MARGIN), below.moved(MARGIN, top + placement.height)
        self.placement = curves.moved(placement, left, top)


def compose(graph: Graph, drawn: Scene, direction: Direction, placer: Placer, link: LinkSource = "none") -> Picture:
    """The picture of a scene, with the boxes where `placer` puts them."""
    page = _Page(drawn, direction, placer)
    laid, placement = page.laid, page.placement
    links = (*drawn.links, *(drawn.links[i] for i in laid.edge)) if laid.edge else drawn.links
    pointed = [link.style == "data" for link in links]
    for i in laid.edge:
        pointed[i] = False
    found = curves.with_heads(placement, pointed)
    blocks = Blocks(graph, drawn.boxes, page.sizes, placement.x, placement.y, link)
    labels = (*(link.label for link in drawn.links), *("" for _ in laid.edge))
    tips = (*(link.tip or link.label for link in drawn.links), *("" for _ in laid.edge))
    frames = _frames(drawn, page.titles, placement, direction, laid.frame)
    return Picture(
        width=page.width,
        height=page.height,
        title=one_line(drawn.title) or "Autograd graph",
        description=_description(drawn, direction),
        words=page.above.words + page.below.words,
        swatches=(*page.above.swatches, *page.below.swatches),
        frames=frames,
        blocks=blocks,
        curves=found,
        wires=tuple(link.style for link in links),
        wire_ends=tuple((link.source, link.target) for link in links),
        wire_tips=tips,
        wire_words=(
            *wire_labels.label_words(labels, found, blocks.rects(), page.around, frames),
            *wire_labels.stub_words(found, laid.edge),
        ),
        notes=page.notes,
    )


# -- layout ----------------------------------------------------------------------------------------------------------


def _drawing(drawn: Scene, sizes: list[Sized], titles: list[Title], direction: Direction) -> Drawing:
    flat = direction in ("left", "right")
    labels = [
        text_width(link.label, wire_labels.SIZE) if flat else wire_labels.SIZE for link in drawn.links if link.label
    ]
    frames = zip(drawn.frames, titles)
    room = ports.rooms(drawn)
    drawing = Drawing(
        widths=np.array([size.width for size in sizes], dtype=np.float64) + (0.0 if flat else room),
        heights=np.array([size.height for size in sizes], dtype=np.float64) + (room if flat else 0.0),
        edges=np.array([(link.source, link.target) for link in drawn.links], dtype=np.int64).reshape(-1, 2),
        frame_of=np.array([-1 if box.frame is None else box.frame for box in drawn.boxes], dtype=np.int64),
        frames=tuple(Frame(frame.parent, title.width + 2 * PAD_X, title.height) for frame, title in frames),
        gap=GAP,
        rank_gap=(SIDE_RANK_GAP if flat else RANK_GAP) + max(labels, default=0.0),
    )
    return curves.sideways(drawing) if flat else drawing


class _Laid(NamedTuple):
    """A placement in `columns`, and of which link and frame the pieces are that stand behind those of the scene."""

    placement: Placement
    columns: int = 1
    edge: tuple[int, ...] = ()
    frame: tuple[int, ...] = ()


def _place(drawing: Drawing, direction: Direction, placer: Placer) -> _Laid:
    """The placement in its direction, on whole pixels, as curves; in columns when it is too long to be shown."""
    if not drawing.size:
        nothing = np.zeros(0)
        starts = np.zeros(1, dtype=np.int64)
        return _Laid(Placement(nothing, nothing, np.zeros((0, 2)), starts, (), 0.0, 0.0, "none", True))
    found = ports.spread(drawing, placer(drawing))
    if found.height <= FAR or found.curved:
        return _Laid(_finished(found, direction))
    cut = side_by_side(drawing, found)
    return _Laid(_finished(cut.placement, direction), cut.columns, tuple(cut.edge.tolist()), tuple(cut.frame.tolist()))


def _finished(found: Placement, direction: Direction) -> Placement:
    points = found.points if found.curved else np.rint(found.points)
    width, height = (float(np.ceil(size)) for size in (found.width, found.height))
    found = replace(found, x=np.rint(found.x), y=np.rint(found.y), points=points, width=width, height=height)
    return curves.turn(curves.smooth(found), direction)


# -- frames -------------------------------------------------------------------------------------------------------


def _frames(
    drawn: Scene,
    titles: list[Title],
    placement: Placement,
    direction: Direction,
    more: Sequence[int] = (),
) -> tuple[FrameBlock, ...]:
    """Frames with their titles, outer ones first. A frame with nothing in it has no size and is not drawn.

    The last places are pieces of the frames in `more`, which were cut; only a frame's first piece has a title.
    """
    depths: list[int] = []
    for frame in drawn.frames:  # a parent comes before its children
        depths.append(0 if frame.parent is None else depths[frame.parent] + 1)
    made = [
        FrameBlock(rect, _frame_words(rect, title, direction), one_line(frame.full or frame.title), depth)
        for frame, title, rect, depth in zip(drawn.frames, titles, placement.frames, depths)
        if rect.width and rect.height
    ]
    made += [
        FrameBlock(rect, (), one_line(drawn.frames[i].full or drawn.frames[i].title), depths[i])
        for i, rect in zip(more, placement.frames[len(drawn.frames) :])
    ]
    return tuple(sorted(made, key=lambda frame: frame.depth))


def _frame_words(rect: Rect, title: Title, direction: Direction) -> tuple[Words, ...]:
    """The title where the layout left room for it: at the side that data comes from, in its upper or left corner."""
    x = rect.x + rect.width - PAD_X - title.width if direction == "left" else rect.x + PAD_X
    top = rect.y + rect.height - title.height if direction == "up" else rect.y
    return tuple(
        Words(x, top + FRAME_TITLE - 5.0 + FRAME_LINE * i, line, "dim", text_width(line, text.NOTE_SIZE), centred=False)
        for i, line in enumerate(title.lines)
    )


# -- words -----------------------------------------------------------------------------------------------------------


def _above(drawn: Scene, room: float, warning: str) -> text.Strip:
    title = text.lines_strip([one_line(drawn.title)], room, "title")
    warned = text.lines_strip([warning] if warning else [], room)
    legend = text.legend_strip([(entry.kind, entry.text) for entry in drawn.legend], room)
    return text.stacked([title, warned, legend], PART_GAP / 2, after=PART_GAP)


def _too_far(placement: Placement) -> str:
    """What to say above a drawing that no browser shows to its end."""
    size = max(placement.width, placement.height)
    if size <= FAR:
        return ""
    return (
        f"This drawing is {size / 1e6:.0f} million pixels long. Browsers misplace or leave out what lies beyond "
        f"{FAR / 1e6:.0f} million: fold it with --depth, or write it as txt or json."
    )


def _columns_note(laid: _Laid, direction: Direction) -> str:
    """How to read a drawing that was cut into columns."""
    if laid.columns == 1:
        return ""
    what = "rows, from top to bottom" if direction in ("left", "right") else "columns, from left to right"
    return (
        f"too long for one piece, so drawn in {laid.columns:,} {what}; lines that end in the same number are one line"
    )


def _below(drawn: Scene, notes: tuple[str, ...], room: float) -> text.Strip:
    texts = (*drawn.footer, *notes, tooltip_note(len(drawn.boxes)))
    lines = text.lines_strip([one_line(line) for line in texts if line], room)
    bars = text.bars_strip(BARS_TITLE, drawn.bars, room)
    return text.stacked([lines, bars], PART_GAP, before=PART_GAP)


def _description(drawn: Scene, direction: Direction) -> str:
    towards = {"down": "downwards", "up": "upwards", "right": "to the right", "left": "to the left"}[direction]
    return (
        ". ".join(
            (f"Data flows {towards}, from the leaves to the outputs", *drawn.footer, *(one.text for one in drawn.bars))
        )
        + "."
    )
