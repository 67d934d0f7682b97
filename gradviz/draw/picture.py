"""Makes a picture of a graph: sizes the scene's boxes, has them placed, and puts title,
legend and footer around them.

This module joins scene, layout and texts, and says whether the result fits the page; it
knows no picture format.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gradviz.draw import typesetting, wire_labels, wires
from gradviz.draw.details import details
from gradviz.draw.options import Direction, Options
from gradviz.draw.scene import FLOWS, Box, Link, Scene, scene, subject
from gradviz.draw.summary import counts_line
from gradviz.draw.typesetting import (
    FRAME_LINE,
    FRAME_TITLE,
    PAD_X,
    Block,
    FrameBlock,
    FrameTitle,
    Sized,
    Strip,
    Words,
    frame_title,
    measured_all,
    text_width,
)
from gradviz.draw.wires import Curves
from gradviz.fold.opening import Limits
from gradviz.fold.sizes import Size
from gradviz.graph import Graph
from gradviz.graph.folders import without_folders
from gradviz.layout import Drawing, LayoutFrame, Placement, Rect, layered
from gradviz.wording import one_line


@dataclass(frozen=True, eq=False)
class Picture:
    """Everything to draw.

    Of curve i, `wires[i]` says which two blocks it joins, how it looks, and what its
    tooltip is.
    """

    width: float
    height: float
    title: str
    description: str
    words: tuple[Words, ...]  # title, legend and footer
    swatches: tuple[Block, ...]  # the legend's colours
    frames: tuple[FrameBlock, ...]  # outer ones first
    blocks: PlacedBoxes
    curves: Curves
    wires: tuple[Link, ...]
    wire_words: tuple[Words, ...] = ()


MOST_TO_MEASURE = 400
"""Boxes above which a picture is too large without a measurement: so many of the
smallest ones cover the page.
"""
MOST_OF_SLIDE = 120
"""Boxes above which no slide holds a picture, whatever its direction."""
MARGIN = 16.0
PART_GAP = 12.0  # between title, legend, boxes and footer
LEAST_ROOM = 520.0  # for the texts around a small drawing
# pixels; Chromium misplaces things by 2 pixels at 27 million, and loses them from 33.5
# million on
FAR = 20e6
GAP, RANK_GAP = 18.0, 22.0
SHEETS = ((1600.0, 900.0, 1.0), (1100.0, 1500.0, 0.8))
"""Pixels of a slide, and of a page, and what each is worth: a picture is shown more
often than printed.
"""
U_HEIGHT = 1.5  # how much a pixel of a U counts when it is measured
MAX_TOOLTIPS = 10_000  # boxes; above, only what does not fit its box has one


def picture(graph: Graph, options: Options) -> Picture:
    """The picture of a graph."""
    placed = _placed.get(id(graph))
    if placed is not None and placed.options == options:
        return _composed(graph, placed.drawn, options, placed.page)
    return _composed(graph, scene(graph, options), options)


def _composed(
    graph: Graph, drawn: Scene, options: Options, page: _Page | None = None
) -> Picture:
    """The picture in the direction that is asked for; by itself, in the one that a page
    or a slide shows larger.
    """
    page = page or _page(drawn, options)
    down, right = (replace(options, direction=way) for way in ("down", "right"))
    if page.placement.is_u and options.direction != "up":
        return compose(graph, drawn, down, page)
    if options.direction != "auto":
        return compose(graph, drawn, options, page)

    # it is made smaller on a page: perhaps less so when it runs sideways
    if len(drawn.boxes) <= MOST_OF_SLIDE and _shown(page) < 1.0:
        flat = _Page(drawn, right)
        # folding has seen to it that the other way fits
        if flat.width <= Limits().width and _shown(flat) > _shown(page):
            return compose(graph, drawn, right, flat)
    return compose(graph, drawn, down, page)


def _page(drawn: Scene, options: Options) -> _Page:
    """The page in the direction of the options; a U stays upright, since it leads from
    the left to the right as it is.
    """
    if _is_sideways(options.direction):
        upright = _Page(drawn, replace(options, direction="down"))
        if upright.placement.is_u:
            return upright
    return _Page(drawn, options)


def _shown(page: _Page) -> float:
    """How large a picture is on the sheet that suits it, as a part of its own size."""
    return max(
        part * min(1.0, width / page.width, height / page.height)
        for width, height, part in SHEETS
    )


def measured(graph: Graph, options: Options) -> Size:
    """How large the picture of this graph is, across and along the flow of data."""
    # no page holds it, whatever its size is
    if len(graph.nodes) > MOST_TO_MEASURE:
        return Size(math.inf, math.inf)

    drawn = scene(graph, options)
    if len(drawn.boxes) > MOST_TO_MEASURE:
        return Size(math.inf, math.inf)

    page = _page(drawn, options)
    key = id(graph)
    _placed[key] = _Placed(
        drawn,
        page,
        options,
        # folding measures graphs that nobody draws then, and an id may come again
        weakref.ref(graph, lambda _: _placed.pop(key, None)),
    )
    # nobody reads a U in parts, so it is kept to what a slide shows
    if page.placement.is_u:
        return Size(page.width, page.height * U_HEIGHT)

    sides = (page.width, page.height)
    return Size(*(sides[::-1] if _is_sideways(options.direction) else sides))


def _is_sideways(direction: Direction) -> bool:
    return direction in ("left", "right")


class _Page:
    """Where the boxes of a scene and the texts around them go."""

    def __init__(self, drawn: Scene, options: Options) -> None:
        direction = "down" if options.direction == "auto" else options.direction
        self.boxes = measured_all(drawn.boxes)
        self.titles = [frame_title(frame.title) for frame in drawn.frames]
        placed = _place(
            _drawing(drawn, self.boxes, self.titles, direction),
            direction,
        )
        placement = wires.with_loops(
            placed, drawn, self.boxes, flat=_is_sideways(direction)
        )
        room = max(placement.width, LEAST_ROOM)
        above = _above(drawn, room, _too_far(placement))  # the footer may be far away
        below = _below(drawn, placement.notes, room)
        inner = max(
            placement.width,
            above.width,
            below.width,
            wires.loop_width(drawn, self.boxes, placement),
        )
        left, top = (
            MARGIN + float(round((inner - placement.width) / 2)),
            MARGIN + above.height,
        )
        self.width = math.ceil(inner + 2 * MARGIN)
        self.height = math.ceil(top + placement.height + below.height + MARGIN)
        self.around = Rect(
            0.0,
            top,
            inner + 2 * MARGIN,
            placement.height,
        )
        self.above, self.below = (
            above.moved(MARGIN, MARGIN),
            below.moved(MARGIN, top + placement.height),
        )
        self.placement = wires.moved(placement, left, top)


class _Placed(NamedTuple):
    """A scene that was measured, for whoever draws it next."""

    drawn: Scene
    page: _Page
    options: Options
    graph: weakref.ref[Graph]


_placed: dict[int, _Placed] = {}
"""By id of a graph, as long as that is alive."""


def compose(
    graph: Graph, drawn: Scene, options: Options, page: _Page | None = None
) -> Picture:
    """The picture of a scene, with the boxes where the layout puts them, or where they
    are on `page`.
    """
    page = page or _Page(drawn, options)
    placement, links = page.placement, drawn.links
    curves = wires.with_heads(
        placement,
        [link.style in FLOWS for link in links],
    )
    blocks = PlacedBoxes(
        graph,
        drawn.boxes,
        page.boxes,
        placement,
    )
    frames = _frames(drawn, page.titles, placement, options.direction)

    return Picture(
        width=page.width,
        height=page.height,
        title=one_line(drawn.title) or "Autograd graph",
        description=_description(graph, drawn, options.direction),
        words=page.above.words + page.below.words,
        swatches=(*page.above.swatches, *page.below.swatches),
        frames=frames,
        blocks=blocks,
        curves=curves,
        wires=links,
        wire_words=tuple(
            wire_labels.label_words(
                [_texts(link) for link in links],
                curves,
                blocks.rects,
                page.around,
                frames,
            )
        ),
    )


def _texts(link: Link) -> tuple[str, ...]:
    """What to write on a line, and what else where that has no room."""
    return tuple(filter(None, (link.label, link.short)))


# -- boxes: each made when it is asked for, since a million with their texts take more m


def tooltip_note(count: int) -> str:
    """What to say about tooltips that are left out of a picture of that many boxes."""
    if count <= MAX_TOOLTIPS:
        return ""
    return f"tooltips only where text is shortened, since there are more than {MAX_TOOLTIPS:,} boxes"


class PlacedBoxes:
    """Block i is box i of the scene with its middle where the placement says."""

    def __init__(
        self,
        graph: Graph,
        boxes: Sequence[Box],
        texts: Sequence[Sized],
        placement: Placement,
    ) -> None:
        self._graph, self._boxes, self._texts = graph, boxes, texts
        sizes = np.array([text[1:3] for text in texts]).reshape(-1, 2)
        middles = np.column_stack([placement.x, placement.y])
        self.rects = np.column_stack([middles - sizes / 2, sizes])

    @cached_property
    def _clean(self) -> Callable[[str], str]:
        return without_folders(self._graph.original or self._graph)

    def __len__(self) -> int:
        return len(self._boxes)

    def __iter__(self) -> Iterator[Block]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Block:
        box, sized = self._boxes[index], self._texts[index]
        rect = Rect(*self.rects[index].tolist())
        about = subject(self._graph, box)
        if sized.cut or not tooltip_note(len(self)):
            facts = details(self._graph, about)
        else:
            facts = ()

        tip = self._clean("\n".join(f"{word}: {text}" for word, text in facts))
        words = typesetting.placed(sized, rect)
        return Block(
            rect,
            box.kind,
            words,
            tip,
            bool(box.flags),
        )


# -- layout ----------------------------------------------------------------------------


def _drawing(
    drawn: Scene,
    boxes: list[Sized],
    titles: list[FrameTitle],
    direction: Direction,
) -> Drawing:
    """The drawing as a layout sees it, which always runs downwards: where data flows
    sideways, widths and heights are exchanged.
    """
    flat = _is_sideways(direction)
    words = np.zeros(len(boxes))

    for link in drawn.links:
        if link.label:
            if flat:
                room = text_width(link.label, wire_labels.SIZE)
            else:
                room = wire_labels.SIZE
            # a label stands below its source, so the gap there must hold it
            words[link.source] = max(words[link.source], room)

    sides = [
        np.array([box.width for box in boxes]),
        np.array([box.height for box in boxes]),
    ]
    sizes = [(title.width + 2 * PAD_X, title.height) for title in titles]
    if flat:
        # the layout only knows downwards
        sides.reverse()
        sizes = [(height, width) for width, height in sizes]

    return Drawing(
        widths=sides[0] + wires.loop_rooms(drawn),
        heights=sides[1],
        edges=np.array(
            [(link.source, link.target) for link in drawn.links], dtype=np.int64
        ).reshape(-1, 2),
        frame_of=np.array(
            [-1 if box.frame is None else box.frame for box in drawn.boxes],
            dtype=np.int64,
        ),
        frames=tuple(
            LayoutFrame(frame.parent, *size) for frame, size in zip(drawn.frames, sizes)
        ),
        gap=GAP,
        rank_gap=RANK_GAP,
        words=words,
        u_shapes=not flat,
    )


def _place(drawing: Drawing, direction: Direction) -> Placement:
    """The placement in its direction, on whole pixels, as curves."""
    placed = wires.spread(drawing, layered.place(drawing))
    points = np.rint(placed.points)
    width, height = float(math.ceil(placed.width)), float(math.ceil(placed.height))
    rounded = replace(
        placed,
        x=np.rint(placed.x),
        y=np.rint(placed.y),
        points=points,
        width=width,
        height=height,
    )

    return wires.turn(wires.smooth(rounded), direction)


# -- frames ----------------------------------------------------------------------------


def _frames(
    drawn: Scene, titles: list[FrameTitle], placement: Placement, direction: Direction
) -> tuple[FrameBlock, ...]:
    """Frames with their titles, outer ones first. A frame with nothing in it has no
    size and is not drawn.
    """
    depths: list[int] = []
    for frame in drawn.frames:  # a parent comes before its children
        depths.append(0 if frame.parent is None else depths[frame.parent] + 1)

    blocks: list[FrameBlock] = []
    for frame, title, rect, depth in zip(
        drawn.frames, titles, placement.frames, depths
    ):
        if rect.width and rect.height:
            words = _frame_words(rect, title, direction)
            blocks.append(
                FrameBlock(rect, words, one_line(frame.full or frame.title), depth)
            )

    # an inner frame is painted over the outer one
    return tuple(sorted(blocks, key=lambda frame: frame.depth))


def _frame_words(
    rect: Rect, title: FrameTitle, direction: Direction
) -> tuple[Words, ...]:
    """The title where the layout left room for it: at the side that data comes from, in
    its upper or left corner.
    """
    if direction == "left":
        x = rect.x + rect.width - PAD_X - title.width
    else:
        x = rect.x + PAD_X

    top = rect.y + rect.height - title.height if direction == "up" else rect.y
    y = top + FRAME_TITLE - 5.0
    return tuple(
        typesetting.words(line, "dim", x, y + FRAME_LINE * i)
        for i, line in enumerate(title.lines)
    )


# -- words -----------------------------------------------------------------------------


def _above(drawn: Scene, room: float, warning: str) -> Strip:
    title = typesetting.lines_strip([one_line(drawn.title)], room, "title")
    warned = typesetting.lines_strip([warning] if warning else [], room)
    entries = [*drawn.legend, *([(None, drawn.dtype)] if drawn.dtype else [])]
    legend = typesetting.legend_strip(entries, room)
    return typesetting.stacked(
        [title, warned, legend],
        PART_GAP / 2,
        after=PART_GAP,
    )


def _too_far(placement: Placement) -> str:
    """What to say above a drawing that no browser shows to its end."""
    size = max(placement.width, placement.height)
    if size <= FAR:
        return ""
    return (
        f"This drawing is {size / 1e6:.0f} million pixels long. Browsers misplace or leave out what lies beyond "
        f"{FAR / 1e6:.0f} million: fold it with --depth, or write it as html, txt or json."
    )


def _below(
    drawn: Scene,
    notes: tuple[str, ...],
    room: float,
) -> Strip:
    texts = (*drawn.footer, *notes, tooltip_note(len(drawn.boxes)))
    lines = [one_line(line) for line in texts if line]
    strip = typesetting.lines_strip(lines, room)
    return typesetting.stacked([strip], PART_GAP, before=PART_GAP)


_TOWARDS: dict[Direction, str] = {
    "auto": "downwards",
    "down": "downwards",
    "up": "upwards",
    "right": "to the right",
    "left": "to the left",
}


def _description(graph: Graph, drawn: Scene, direction: Direction) -> str:
    flow = f"Data flows {_TOWARDS[direction]}, from the leaves to the outputs"
    sentences = (flow, counts_line(graph), *drawn.footer)
    return ". ".join(sentences) + "."
