"""The text of one box: which line looks how, where it stands, and how large the box must be to hold it.

This module knows the scene's boxes and the font; it knows nothing of layouts or formats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from gradviz.draw.geometry import Tone, Words
from gradviz.draw.margins import NOTE_SIZE
from gradviz.draw.metrics import cells, shorten, text_width
from gradviz.draw.scene import Box
from gradviz.layout.model import Rect
from gradviz.report.labels import names_text, one_line

STRONG_SIZE, PLAIN_SIZE = 12.0, 11.0
LINE = 15.0
PAD_X, PAD_Y = 10.0, 5.0
BASELINE = 11.5  # of a line, below its upper edge
MAX_CELLS = 48  # longer lines are shortened in the middle; the tooltip has them in full
FRAME_NAME = 44  # cells of one line in a frame's title
FRAME_TITLE, FRAME_LINE = 18.0, 13.0  # px: height of a frame's title, and of each further line of it
FRAME_WIDE = 28  # cells: a longer title is broken, so that frames are hardly wider than what they hold
_FACT = re.compile(r", (?![^(]*\))")  # not the commas of a shape


class Sized(NamedTuple):
    """Lines of one box with their looks, and the size that holds them. `cut` when a line had to be shortened."""

    lines: tuple[tuple[str, Tone, float], ...]
    width: float
    height: float
    cut: bool


def measured_all(boxes: Iterable[Box]) -> list[Sized]:
    """`measured` of every box. Boxes that read the same share one result, as most do in a large graph."""
    known: dict[Hashable, Sized] = {}
    found: list[Sized] = []
    for box in boxes:
        key = (box.lines, box.flags, box.names)
        if key not in known:
            known[key] = measured(box)
        found.append(known[key])
    return found


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


class Title(NamedTuple):
    """A frame's title as it is drawn: its lines, and the size of them all."""

    lines: tuple[str, ...]
    width: float
    height: float


def frame_title(title: str) -> Title:
    """A frame's title: in one line when it is short, else broken between facts, the name in a line of its own."""
    name, *facts = (shorten(fact, FRAME_NAME) for fact in _FACT.split(one_line(title)))
    lines = [", ".join((name, *facts))]
    if cells(lines[0]) > FRAME_WIDE and facts:
        lines = [name, facts[0]]
        for fact in facts[1:]:
            joined = f"{lines[-1]}, {fact}"
            lines[-1:] = [joined] if cells(joined) <= FRAME_WIDE else [lines[-1], fact]
    width = max(text_width(line, NOTE_SIZE) for line in lines)
    return Title(tuple(lines), width, FRAME_TITLE + FRAME_LINE * (len(lines) - 1))


def tooltip(pairs: Sequence[tuple[str, str]]) -> str:
    """Facts as lines of text."""
    return "\n".join(f"{word}: {text}" for word, text in pairs)


def _even(size: float) -> float:
    return 2.0 * math.ceil(size / 2)
