"""How texts are set: the lines of a box, the title of a frame, and title, legend and footer around the boxes.

Each is laid out alone, and moved into place later. This module knows the scene's boxes and the font; it knows nothing of layouts
or formats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from gradviz.draw.geometry import Block, Tone, Words
from gradviz.draw.metrics import ADVANCE, cells, shorten, text_width
from gradviz.draw.palette import BoxKind
from gradviz.draw.scene import Box
from gradviz.layout import Rect
from gradviz.report.labels import names_text
from gradviz.wording import one_line

TITLE_SIZE, NOTE_SIZE = 15.0, 10.5
TITLE_LINE, NOTE_LINE = 21.0, 16.0
SWATCH = 10.0
ENTRY_GAP = 18.0
BAR_LENGTH = 120.0  # of the longest one
ENTRY_INDENT = SWATCH + 6.0


class Strip(NamedTuple):
    """Texts and swatches laid out from the origin, and the room they take."""

    words: tuple[Words, ...] = ()
    swatches: tuple[Block, ...] = ()
    width: float = 0.0
    height: float = 0.0

    def moved(self, x: float, y: float) -> Strip:
        """The same strip elsewhere."""
        words = tuple(w._replace(x=w.x + x, y=w.y + y) for w in self.words)
        rects = [s.rect._replace(x=s.rect.x + x, y=s.rect.y + y) for s in self.swatches]
        swatches = tuple(s._replace(rect=rect) for s, rect in zip(self.swatches, rects))
        return self._replace(words=words, swatches=swatches)


def lines_strip(texts: Iterable[str], room: float, tone: Tone = "dim") -> Strip:
    """Sentences below each other, broken between words where they are wider than `room`."""
    size, line = (TITLE_SIZE, TITLE_LINE) if tone == "title" else (NOTE_SIZE, NOTE_LINE)
    limit = max(int(room / (ADVANCE * size)), 8)
    lines = [piece for text in texts for piece in wrap(text, limit)]
    words = tuple(
        Words(0.0, line * (i + 0.75), text, tone, text_width(text, size), centred=False) for i, text in enumerate(lines)
    )
    return Strip(words, (), max((w.width for w in words), default=0.0), line * len(lines))


def stacked(strips: Iterable[Strip], gap: float, *, before: float = 0.0, after: float = 0.0) -> Strip:
    """Strips below each other with a gap between them; empty ones take no room, and none at all make none."""
    strips = [strip for strip in strips if strip.height]
    if not strips:
        return Strip()
    y = before
    moved: list[Strip] = []
    for strip in strips:
        moved.append(strip.moved(0.0, y))
        y += strip.height + gap
    words = tuple(w for strip in moved for w in strip.words)
    swatches = tuple(s for strip in moved for s in strip.swatches)
    return Strip(words, swatches, max(strip.width for strip in moved), y - gap + after)


def legend_strip(entries: Sequence[tuple[BoxKind, str]], room: float) -> Strip:
    """Coloured squares with their meaning side by side, in as many rows as `room` asks for."""
    words: list[Words] = []
    swatches: list[Block] = []
    x = y = widest = 0.0
    for kind, text in entries:
        width = ENTRY_INDENT + text_width(text, NOTE_SIZE)
        if x and x + width > room:
            x, y = 0.0, y + NOTE_LINE
        swatches.append(Block(Rect(x, y + 3.0, SWATCH, SWATCH), kind))
        words.append(Words(x + ENTRY_INDENT, y + 0.75 * NOTE_LINE, text, "dim", width - ENTRY_INDENT, centred=False))
        widest = max(widest, x + width)
        x += width + ENTRY_GAP
    return Strip(tuple(words), tuple(swatches), widest, y + NOTE_LINE if entries else 0.0)


def bars_strip(title: str, bars: Sequence[tuple[float, str]], room: float) -> Strip:
    """A bar chart: a title, then a bar for each part of the longest one, with its text beside it."""
    head = lines_strip([title] if bars else [], room)
    words, swatches = list(head.words), []
    y, indent = head.height, BAR_LENGTH + 8.0
    for part, text in bars:
        if part:
            length = max(1.0, float(round(BAR_LENGTH * part)))
            swatches.append(Block(Rect(BAR_LENGTH - length, y + 3.0, length, SWATCH), "op"))
        beside = lines_strip([text], room - indent).moved(indent, y)
        words += beside.words
        y += beside.height
    return Strip(tuple(words), tuple(swatches), max((line.x + line.width for line in words), default=0.0), y)


def wrap(text: str, limit: int) -> list[str]:
    """The text in lines of at most `limit` cells, broken at spaces, and inside a word that is longer than a line."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if cells(longer) <= limit:
            line = longer
            continue
        if line:
            lines.append(line)
        *full, line = _chopped(word, limit)
        lines.extend(full)
    return [*lines, line] if line else lines


def _chopped(word: str, limit: int) -> list[str]:
    """The word in pieces of at most `limit` cells; at least one piece."""
    pieces = [""]
    used = 0
    for c in word:
        if used + cells(c) > limit:
            pieces.append("")
            used = 0
        pieces[-1] += c
        used += cells(c)
    return pieces


STRONG_SIZE, PLAIN_SIZE = 12.0, 11.0
LINE = 15.0
PAD_X, PAD_Y = 10.0, 5.0
BASELINE = 11.5  # of a line, below its upper edge
MAX_CELLS = 48  # longer lines are shortened in the middle; the tooltip has them in full
FRAME_NAME = 44  # cells of one line in a frame's title
FRAME_TITLE, FRAME_LINE = 18.0, 13.0  # px: height of a frame's title, and of each further line of it
FRAME_WIDE = 28  # cells: a longer title is broken, so that frames are hardly wider than what they hold
_BETWEEN = re.compile(r", (?![^(]*\))")  # not the commas of a shape


class Sized(NamedTuple):
    """Lines of one box with their looks, and the size that holds them. `cut` when a line had to be shortened."""

    lines: tuple[tuple[str, Tone, float], ...]
    width: float
    height: float
    cut: bool


def measured_all(boxes: Iterable[Box]) -> list[Sized]:
    """`measured` of every box. Boxes that read the same share one result, as most do in a large graph."""
    known: dict[Hashable, Sized] = {}
    sized: list[Sized] = []
    for box in boxes:
        key = (box.lines, box.flags, box.names)
        if key not in known:
            known[key] = measured(box)
        sized.append(known[key])
    return sized


def measured(box: Box) -> Sized:
    """The box's lines as they will be drawn, and its size in whole, even pixels, so that its middle is a whole one."""
    lines = list(_toned(box))
    widths = [width for _, _, width in lines]
    cut = any(text not in box.lines for text, tone, _ in lines if tone != "warning")
    return Sized(tuple(lines), _even(max(widths, default=0.0) + 2 * PAD_X), _even(LINE * len(lines) + 2 * PAD_Y), cut)


def _toned(box: Box) -> list[tuple[str, Tone, float]]:
    """Each line with its look and its width."""
    toned: list[tuple[str, Tone]] = [(line, _tone(box, i)) for i, line in enumerate(box.lines)]
    if box.flags:
        toned.append((", ".join(box.flags), "warning"))
    short = [(shorten(text, MAX_CELLS), tone) for text, tone in toned]
    return [(text, tone, text_width(text, tone_size(tone))) for text, tone in short]


def _tone(box: Box, index: int) -> Tone:
    """The look of one line: the title stands out, and so do the names that the user's code has for what a node made."""
    if not index:
        return "strong"
    names = {names_text([name]) for name in box.names}
    return "name" if names.issuperset(box.lines[index].split(" = ")) else "plain"


def tone_size(tone: Tone) -> float:
    """Font size of a line in a box."""
    return STRONG_SIZE if tone == "strong" else PLAIN_SIZE


def placed(sized: Sized, rect: Rect) -> tuple[Words, ...]:
    """The lines in the middle of a box."""
    x = rect.x + rect.width / 2
    top = rect.y + (rect.height - LINE * len(sized.lines)) / 2 + BASELINE
    return tuple(Words(x, top + LINE * i, text, tone, width) for i, (text, tone, width) in enumerate(sized.lines))


class FrameTitle(NamedTuple):
    """A frame's title as it is drawn: its lines, and the size of them all."""

    lines: tuple[str, ...]
    width: float
    height: float


def frame_title(title: str) -> FrameTitle:
    """A frame's title: in one line when it is short, else broken between facts, the name in a line of its own."""
    name, *parts = (shorten(part, FRAME_NAME) for part in _BETWEEN.split(one_line(title)))
    lines = [", ".join((name, *parts))]
    if cells(lines[0]) > FRAME_WIDE and parts:
        lines = [name, parts[0]]
        for part in parts[1:]:
            joined = f"{lines[-1]}, {part}"
            lines[-1:] = [joined] if cells(joined) <= FRAME_WIDE else [lines[-1], part]
    width = max(text_width(line, NOTE_SIZE) for line in lines)
    return FrameTitle(tuple(lines), width, FRAME_TITLE + FRAME_LINE * (len(lines) - 1))


def _even(size: float) -> float:
    return 2.0 * math.ceil(size / 2)
