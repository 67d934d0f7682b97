"""Makes a picture of a graph: sizes the scene's boxes, has them placed, and puts title,
legend and footer around them.

This module joins scene, layout and texts, and says whether the result fits the page; it
knows no picture format.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gradviz.draw import typesetting, wire_labels, wires
from gradviz.draw.details import LONGEST, details
from gradviz.draw.options import Options
from gradviz.draw.scene import FLOWS, Box, Link, Scene, scene
from gradviz.draw.summary import counts_line
from gradviz.draw.typesetting import (
    PAD_X,
    SIZES,
    Block,
    FrameBlock,
    Sized,
    TextColumn,
    Words,
    frame_titles,
    shorten,
    text_width,
    title_width,
)
from gradviz.draw.wires import Curves
from gradviz.fold.fold import PAGE
from gradviz.fold.folding import Folding
from gradviz.fold.opening import Limits
from gradviz.fold.sizes import Size
from gradviz.graph.folders import without_folders
from gradviz.layout import Drawing, Floats, Ints, LayoutFrame, Placement, Rect, layered
from gradviz.layout.layered.frames import TITLE_ROOM
from gradviz.wording import clip


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
LEAST_LETTERS = 6  # of a title
AIR = 4.0  # beside a label
PART_GAP = 12.0  # between title, legend, boxes and footer
LEAST_ROOM = 520.0  # for the texts around a small drawing
GAP, RANK_GAP = 18.0, 18.0
SHEETS = ((1600.0, 900.0, 1.0), (1100.0, 1500.0, 0.8))
"""Pixels of a slide, and of a page, and what each is worth: a picture is shown more
often than printed.
"""
ROOM = 925.0
"""Pixels of a slide's height that title, legend and footer leave."""
U_HEIGHT = 1.2  # how much a pixel of a U counts when it is measured
MAX_TOOLTIPS = 10_000  # boxes; above, only what does not fit its box has one


class Sketch:
    """How a folding is drawn, made as far as a format needs it: what is shown, where that
    goes in a direction, the picture. Each is made once, so that a picture that was
    measured is drawn as it is.
    """

    def __init__(
        self, folding: Folding, options: Options, tried: set[bool] | None = None
    ) -> None:
        self.folding, self.options = folding, options
        self._pages: dict[tuple[bool, float], Page] = {}
        # whether pictures of the graph were measured that run sideways, or down
        self._tried = set[bool]() if tried is None else tried

    @cached_property
    def scene(self) -> Scene:
        """What is shown."""
        return scene(self.folding, self.options)

    def page(self, *, is_flat: bool, room: float = math.inf) -> Page:
        """Where it goes in a direction."""
        way = is_flat, -room
        if way not in self._pages:
            # a U leads down and up again, so a reader who asks for a direction gets none
            u_shapes = self.options.direction == "auto"
            self._pages[way] = Page(
                self.scene, room, is_flat=is_flat, u_shapes=u_shapes
            )
            self._tried.add(is_flat)
        return self._pages[way]

    def picture(self) -> Picture:
        """The picture, in the direction that is asked for; by itself, in the one that a
        page or a slide shows larger.
        """
        if self.options.direction != "auto":
            page = self.page(is_flat=self.options.direction == "right")
            return compose(self.folding, self.scene, page)

        if not self._pages:
            self.page(is_flat=False)
        (page, *others) = [self._pages[way] for way in sorted(self._pages)]
        # it is made smaller on a page: perhaps less so when it runs sideways
        is_few = len(self.scene.boxes) <= MOST_OF_SLIDE
        is_free = not page.placement.is_u and True not in self._tried
        if is_few and is_free and _shown(page) < 1.0:
            others.append(self.page(is_flat=True))
        for other in others:
            # folding has seen to it that the other way fits
            if other.width <= PAGE.width and _shown(other) > _shown(page):
                page = other
        return compose(self.folding, self.scene, page)

    def measured(self, sheet: Limits) -> Size | None:
        """How large the picture is on a sheet, across and along the flow of data; None
        where it is drawn in another direction than that of the sheet.
        """
        if self.options.direction == ("down" if sheet.is_flat else "right"):
            return None
        # no page holds it, whatever its size is
        if (
            self.folding.size > MOST_TO_MEASURE
            or len(self.scene.boxes) > MOST_TO_MEASURE
        ):
            return Size(math.inf, math.inf)

        room = ROOM if sheet.columns > 1 else math.inf
        page = self.page(is_flat=sheet.is_flat, room=room)
        if page.is_flat:
            # a U only leads down and up again
            is_u = page.placement.is_u
            return None if is_u else Size(page.height, page.width)
        # nobody reads a U in parts, so it is kept lower than other pictures
        is_u = page.placement.is_u
        return Size(page.width, page.height * (U_HEIGHT if is_u else 1.0))


def _shown(page: Page) -> float:
    """How large a picture is on the sheet that suits it, as a part of its own size."""
    return max(
        part * min(1.0, width / page.width, height / page.height)
        for width, height, part in SHEETS
    )


class Page:
    """Where the boxes of a scene and the texts around them go, in columns where boxes
    take more than their room. `is_flat`: data flows to the right instead of down.
    """

    def __init__(
        self,
        drawn: Scene,
        room: float = math.inf,
        *,
        is_flat: bool = False,
        u_shapes: bool = True,
    ) -> None:
        self.is_flat = is_flat
        self.boxes = list(map(typesetting.measured, drawn.boxes))
        self.titles = [frame_titles(frame.title) for frame in drawn.frames]
        drawing = _drawing(drawn, self.boxes, self.titles, is_flat)
        # lines run on as those of a text do; a column that runs up again is no skip, but
        # looks like one, so these are only made where a slide has no room without
        u_shapes = u_shapes and not is_flat
        drawing = replace(drawing, u_shapes=u_shapes, columns=is_flat, room=room)
        placed = _place(drawing, drawn.ran, is_flat)
        placement = wires.with_loops(placed, drawn, self.boxes, flat=is_flat)

        room = max(placement.width, LEAST_ROOM)
        self.texts = TextColumn(MARGIN, MARGIN, room)
        top = self._above(drawn)
        bottom = self._below(drawn.footer, top + placement.height)
        inner = max(
            placement.width,
            self.texts.width,
            wires.loop_width(drawn, self.boxes, placement),
        )
        left = MARGIN + float(round((inner - placement.width) / 2))

        self.width = math.ceil(inner + 2 * MARGIN)
        self.height = math.ceil(bottom + MARGIN)
        self.around = Rect(0.0, top, inner + 2 * MARGIN, placement.height)
        self.placement = wires.moved(placement, left, top)

    def _above(self, drawn: Scene) -> float:
        """Sets title and legend, and returns where the drawing begins."""
        texts = self.texts
        if drawn.title:
            texts.lines([drawn.title], "title")
        entries = [*drawn.legend, *([(None, drawn.dtype)] if drawn.dtype else [])]
        if texts.words and entries:
            texts.y += PART_GAP / 2
        texts.legend(entries)
        return texts.y + (PART_GAP if texts.words else 0.0)

    def _below(self, footer: Sequence[str], bottom: float) -> float:
        """Sets what is said below the drawing, and returns where that ends."""
        self.texts.y = bottom + (PART_GAP if footer else 0.0)
        self.texts.lines(footer)
        return self.texts.y


def compose(folding: Folding, drawn: Scene, page: Page) -> Picture:
    """The picture of a scene, with the boxes where they are on `page`."""
    links = drawn.links
    pointed = [link.style in FLOWS for link in links]
    curves = wires.with_heads(page.placement, pointed)
    blocks = PlacedBoxes(folding, drawn.boxes, page.boxes, page.placement)
    frames = _frames(drawn, page)
    texts = [link.label for link in links]
    room = page.around
    room = Rect(room.x + AIR, room.y, room.width - 2 * AIR, room.height)
    labels = wire_labels.label_words(texts, curves, blocks.rects, room, frames)

    return Picture(
        width=page.width,
        height=page.height,
        title=clip(folding.graph.title, LONGEST) or "Autograd graph",
        description=_description(folding, drawn, page.is_flat),
        words=tuple(page.texts.words),
        swatches=tuple(page.texts.swatches),
        frames=frames,
        blocks=blocks,
        curves=curves,
        wires=links,
        wire_words=tuple(labels),
    )


# -- boxes -----------------------------------------------------------------------------


class PlacedBoxes:
    """Block i is box i of the scene with its middle where the placement says. Each is
    made when it is asked for: a million with their texts take gigabytes.
    """

    def __init__(
        self,
        folding: Folding,
        boxes: Sequence[Box],
        texts: Sequence[Sized],
        placement: Placement,
    ) -> None:
        self._folding, self._boxes, self._texts = folding, boxes, texts
        self._clean = without_folders(folding.graph)
        sizes = np.array([text[1:3] for text in texts]).reshape(-1, 2)
        middles = np.column_stack([placement.x, placement.y])
        self.rects = np.column_stack([middles - sizes / 2, sizes])

    def __len__(self) -> int:
        return len(self._boxes)

    def __iter__(self) -> Iterator[Block]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Block:
        box, sized = self._boxes[index], self._texts[index]
        rect = Rect(*self.rects[index].tolist())
        if sized.cut or len(self) <= MAX_TOOLTIPS:
            facts = details(self._folding, box.about)
        else:
            facts = ()

        tip = self._clean("\n".join(f"{word}: {text}" for word, text in facts))
        words = typesetting.placed(sized, rect)
        return Block(rect, box.kind, words, tip, bool(box.flags))


# -- layout ----------------------------------------------------------------------------


def _drawing(
    drawn: Scene, boxes: list[Sized], titles: Sequence[Sequence[str]], is_flat: bool
) -> Drawing:
    """The drawing as a layout sees it, which always runs downwards: where data flows
    sideways, widths and heights are exchanged.
    """
    words = np.zeros(len(boxes))

    for link in drawn.links:
        if link.label:
            if is_flat:
                room = text_width(link.label, wire_labels.SIZE)
            else:
                room = wire_labels.SIZE
            # a label stands below its source, so the gap there must hold it
            words[link.source] = max(words[link.source], room)

    sides = [
        np.array([box.width for box in boxes]),
        np.array([box.height for box in boxes]),
    ]
    frames = [
        LayoutFrame(frame.parent, title_width(name))
        for frame, (*_, name) in zip(drawn.frames, titles)
    ]
    if is_flat:
        # the layout only knows downwards
        sides.reverse()
        frames = [
            frame._replace(title=0.0, side=frame.title + 2 * PAD_X) for frame in frames
        ]

    return Drawing(
        widths=sides[0],
        heights=sides[1],
        edges=np.array(
            [(link.source, link.target) for link in drawn.links], dtype=np.int64
        ).reshape(-1, 2),
        frame_of=np.array(
            [-1 if box.frame is None else box.frame for box in drawn.boxes],
            dtype=np.int64,
        ),
        frames=tuple(frames),
        gap=GAP,
        rank_gap=RANK_GAP,
        words=words,
    )


def _place(drawing: Drawing, ran: Sequence[int], is_flat: bool) -> Placement:
    """The placement in its direction, on whole pixels, as curves."""
    ordered, place, frame_place = _in_order(drawing, ran)
    found = layered.place(ordered)
    rects = [found.frames[number] for number in frame_place[:-1].tolist()]
    back = replace(found, x=found.x[place], y=found.y[place], frames=tuple(rects))
    placed = wires.spread(drawing, back, flat=is_flat)
    rounded = replace(
        placed,
        x=np.rint(placed.x),
        y=np.rint(placed.y),
        points=np.rint(placed.points),
        width=float(math.ceil(placed.width)),
        height=float(math.ceil(placed.height)),
    )
    smooth = wires.smooth(rounded)
    return wires.turned(smooth) if is_flat else smooth


def _in_order(drawing: Drawing, ran: Sequence[int]) -> tuple[Drawing, Ints, Ints]:
    """The drawing in the order in which its ops ran, which decides where a layout has a
    choice; and where each box and frame is in it.
    """
    keys = np.array(ran or range(drawing.size), np.int64)
    order = np.argsort(keys, kind="stable")
    place = np.argsort(order)

    # a frame runs when the first op in it does
    first = np.full(len(drawing.frames), np.iinfo(np.int64).max)
    framed = np.flatnonzero(drawing.frame_of >= 0)
    np.minimum.at(first, drawing.frame_of[framed], keys[framed])
    for number in reversed(range(len(first))):
        parent = drawing.frames[number].parent
        if parent is not None:
            first[parent] = min(first[parent], first[number])
    frame_order = np.argsort(first, kind="stable")
    frame_place = np.append(np.argsort(frame_order), -1)

    frames = []
    for frame in (drawing.frames[number] for number in frame_order.tolist()):
        parent = -1 if frame.parent is None else frame.parent
        around = int(frame_place[parent])
        frames.append(frame._replace(parent=None if around < 0 else around))
    sorted_drawing = replace(
        drawing,
        widths=drawing.widths[order],
        heights=drawing.heights[order],
        edges=place[drawing.edges],
        frame_of=frame_place[drawing.frame_of[order]],
        frames=tuple(frames),
        words=drawing.words[order],
    )
    return sorted_drawing, place, frame_place


# -- frames ----------------------------------------------------------------------------


def _frames(drawn: Scene, page: Page) -> tuple[FrameBlock, ...]:
    """Frames with their titles on their borders, outer ones first."""
    depths: list[int] = []
    blocks: list[FrameBlock] = []
    placement = page.placement
    crossings = wire_labels.Crossings(placement.points, placement.starts)
    places = zip(drawn.frames, page.titles, placement.frames)
    for frame, titles, rect in places:
        # a parent comes before its children
        parent = frame.parent
        depths.append(0 if parent is None else depths[parent] + 1)
        x, y, text = _on_border(rect, titles, crossings)
        baseline = y + 0.35 * SIZES["dim"]
        words = Words(x, baseline, text, "dim", title_width(text))
        tip = clip(frame.full or frame.title, LONGEST)
        blocks.append(FrameBlock(rect, (words,), tip, depths[-1]))

    # an inner frame is painted over the outer one
    return tuple(sorted(blocks, key=lambda frame: frame.depth))


def _on_border(
    rect: Rect, titles: Sequence[str], crossings: wire_labels.Crossings
) -> tuple[float, float, str]:
    """Where the first title begins that has room between the lines that pass the upper
    border of a frame, else the lower one; else of the last what goes where most room
    is.
    """
    path, space, kind = titles[-1].partition(" ")
    if space and " " not in kind:
        titles = [*titles, path]  # of a path and a class
    borders = rect.y, rect.y + rect.height
    for y in borders:
        begins, rooms = _rooms(rect, crossings.near(y))
        for title in titles:
            fitting = begins[rooms >= title_width(title)]
            if len(fitting):
                return float(fitting[0]), y, title
    begins, rooms = _rooms(rect, crossings.near(rect.y))
    widest, title = int(np.argmax(rooms)), titles[-1]
    letters = int(len(title) * rooms[widest] / title_width(title))
    text = shorten(title, max(letters, LEAST_LETTERS))
    return float(begins[widest]), rect.y, text


def _rooms(rect: Rect, crossings: Floats) -> tuple[Floats, Floats]:
    """Where stretches of a border begin on which no line passes, and their lengths."""
    left, right = rect.x + TITLE_ROOM, rect.x + rect.width - TITLE_ROOM
    starts, ends = crossings[np.argsort(crossings[:, 0])].T
    inside = (left < ends) & (starts < right)
    ends = np.maximum.accumulate(ends[inside])
    begins = np.append(left, ends + TITLE_ROOM / 2)
    room_ends = np.append(starts[inside] - TITLE_ROOM / 2, right)
    return begins, room_ends - begins


def _description(folding: Folding, drawn: Scene, is_flat: bool) -> str:
    towards = "to the right" if is_flat else "downwards"
    flow = f"Data flows {towards}, from the leaves to the outputs"
    sentences = (flow, counts_line(folding), *drawn.footer)
    return ". ".join(sentences) + "."
