"""What stands around the boxes of a picture: title and legend above them, footer below, all inside the picture.

Each part is laid out at the origin for a given width, and moved into place later. This module knows nothing of graphs
or layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gradviz.draw.geometry import Block, Tone, Words
from gradviz.draw.metrics import ADVANCE, cells, text_width
from gradviz.draw.palette import BoxKind
from gradviz.layout.model import Rect

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
    return Strip(tuple(words), tuple(swatches), max((one.x + one.width for one in words), default=0.0), y)


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
