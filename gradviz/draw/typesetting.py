"""How texts are set: the room that letters take, the lines of boxes, the titles of
frames, and what stands around a drawing.

Sizes are pixels, x to the right, y downwards. Letters have the widths that they have in
the fonts named here, so that viewers draw what was measured; wide characters (East
Asian, emoji) take two cells of `ADVANCE` em. Each text is laid out alone, and moved
into place later. This module knows the scene's boxes; it knows nothing of layouts or
formats.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from textwrap import wrap
from typing import Literal, NamedTuple

from rich.cells import cell_len

from gradviz.draw.palette import BoxKind
from gradviz.draw.scene import Box
from gradviz.layout import Rect
from gradviz.wording import one_line

FONTS = (
    "Helvetica",
    "Arial",
    "Liberation Sans",
    "DejaVu Sans Condensed",
    "DejaVu Sans",
    "sans-serif",
)
"""In order of preference; the first three have letters of the same widths. A PNG has
the fourth, which comes with gradviz.
"""

_REGULAR = (
    "286 360 414 754 572 889 702 247 351 351 450 754 286 333 286 303 572 572 572 "
    "572 572 572 572 572 572 572 303 303 754 754 754 556 1015 667 667 722 722 667 "
    "611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 "
    "667 616 351 303 351 754 556 450 556 571 500 571 556 316 571 570 250 250 521 "
    "250 876 570 556 571 571 370 500 353 570 532 736 532 532 500 572 303 572 754"
)
_BOLD = (
    "313 410 474 754 626 901 785 275 411 411 470 754 342 374 342 329 626 626 626 "
    "626 626 626 626 626 626 626 360 360 754 754 754 611 975 722 722 722 747 667 "
    "615 778 753 334 556 722 611 896 753 778 667 778 722 667 614 730 696 993 694 "
    "667 652 411 329 411 754 556 450 607 644 556 644 610 391 644 641 308 308 598 "
    "308 938 641 618 644 644 444 556 430 641 586 831 580 586 523 641 329 641 754"
)
"""Widths of the letters from space to tilde in thousandths of an em: of Helvetica or
DejaVu Sans Condensed, the wider one.
"""

_FIRST = ord(" ")


def _widths(text: str) -> tuple[float, ...]:
    return tuple(int(width) / 1000 for width in text.split())


_WIDTHS = (_widths(_REGULAR), _widths(_BOLD))
_SIGNS = {
    "\u2026": 0.9,
    "\u00d7": 0.76,
    "\u2192": 0.76,
    "\u2190": 0.76,
    "\u00b7": 0.35,
    "\u2013": 0.45,
    "\u2014": 0.9,
}
ADVANCE = 0.67
"""em; a cell of any letter that is not in these tables."""
MEAN = 0.52
"""em; about the mean letter of a sentence."""
ELLIPSIS = "…"
# between the parts of a path, not inside a number
_DOT = re.compile(r"\.(?!(?<=[\d,.]\.)[\d,.]*\d)")
_NUMBER = re.compile(r"\d(?:[\d,.]*\d)?")


@lru_cache(maxsize=65536)
def text_width(text: str, size: float, bold: bool = False) -> float:
    """Width in pixels of one line at a font size.

    >>> round(text_width("abc", 10), 2), round(text_width("abc", 10, bold=True), 2)
    (16.27, 18.07)
    """
    widths = _WIDTHS[bold]
    count = len(widths)
    em = 0.0
    for letter in text:
        place = ord(letter) - _FIRST
        if 0 <= place < count:
            em += widths[place]
        else:
            em += _SIGNS.get(letter) or max(cell_len(letter), 1) * ADVANCE
    return em * size


def is_measured(text: str) -> bool:
    """Whether no letter is wider than its cells: Latin, Greek, the marks that labels
    use, East Asian and emoji.

    The letters of other scripts come from fonts that are not measured here.
    """
    return text.isascii() or all(
        c < "\u0300" or "\u0370" <= c < "\u0400" or c in "…×→←·–—" or cell_len(c) == 2
        for c in text
    )


@lru_cache(maxsize=65536)
def shorten(text: str, limit: int) -> str:
    """The text in at most `limit` letters: a path without its first parts, anything else
    without its end.

    A number is left out as a whole, since a part of it would be another number.

    >>> shorten("encoder.layers.11.self_attn.out_proj", 20)
    '…self_attn.out_proj'
    >>> shorten("layers.11.out_proj Linear", 17)
    '…out_proj Linear'
    >>> shorten("embedding, 109,483,778 parameters", 16)
    'embedding, …'
    """
    path, space, rest = text.partition(" ")
    parts = _DOT.split(path)
    # the end of a path says what it is, its beginning only where
    while len(text) > limit and len(parts) > 1:
        del parts[0]
        text = f"{ELLIPSIS}{'.'.join(parts)}{space}{rest}"

    if len(text) <= limit:
        return text

    head = text[: max(limit - 1, 0)]
    for number in _NUMBER.finditer(text):
        # half a number reads like another number
        if number.start() < len(head) < number.end():
            head = text[: number.start()]

    return f"{head}{ELLIPSIS}"


def broken(text: str, limit: int) -> list[str]:
    """The text in lines of at most `limit` letters, broken at spaces; of what is longer
    without one a path loses its first parts.

    >>> broken("encoder.embed_tokens.weight = lm_head.weight", 30)
    ['encoder.embed_tokens.weight =', 'lm_head.weight']
    >>> broken("binary_cross_entropy_with_logits", 20)
    ['binary_cross_entropy', '_with_logits']
    """
    if len(text) <= limit:
        return [text]

    words = (shorten(word, limit) if "." in word else word for word in text.split(" "))
    lines = wrapped(" ".join(words), limit)
    if len(lines) > MOST_LINES:
        last = shorten(f"{lines[MOST_LINES - 1]} {ELLIPSIS}", limit)
        lines[MOST_LINES - 1 :] = [last]
    return lines


# -- texts, boxes and frames as they are drawn -----------------------------------------

Tone = Literal["title", "strong", "name", "plain", "dim", "warning"]
"""How a text looks: the picture's title; in a box its first line, a name, other facts,
a flag; dim around the boxes.
"""


class Words(NamedTuple):
    """One line of text. `x` is its left end, or its middle; `y` is its baseline;
    `width` is the room measured for it.
    """

    x: float
    y: float
    text: str
    tone: Tone
    width: float
    centred: bool = False


def words(text: str, tone: Tone, x: float, y: float) -> Words:
    """A line of text that begins at `x`, with its room."""
    return Words(x, y, text, tone, text_width(text, SIZES[tone], tone in BOLD))


class Block(NamedTuple):
    """One box with its text. `marked` boxes have a dashed border: something about them
    is special, and a line says what.
    """

    rect: Rect
    kind: BoxKind
    words: tuple[Words, ...] = ()
    tooltip: str = ""
    marked: bool = False


class FrameBlock(NamedTuple):
    """A frame around boxes, with its title. `depth` counts the frames around it."""

    rect: Rect
    words: tuple[Words, ...]
    tooltip: str
    depth: int


BOLD: tuple[Tone, ...] = ("title", "strong", "name", "warning")
"""Looks in bold letters."""
SIZES: dict[Tone, float] = {
    "title": 13.0,
    "strong": 12.0,
    "name": 11.0,
    "plain": 11.0,
    "dim": 10.5,
    "warning": 11.0,
}
"""Font sizes."""


# -- title, legend and footer around the boxes -----------------------------------------

TITLE_LINE, NOTE_LINE = 19.0, 15.0
SWATCH = 10.0
ENTRY_GAP = 18.0
ENTRY_INDENT = SWATCH + 6.0


class TextColumn:
    """Texts and swatches below each other, from `y` down; `room` is how wide they
    should be.
    """

    def __init__(self, x: float, y: float, room: float) -> None:
        self.x, self.y, self.room = x, y, room
        self.words: list[Words] = []
        self.swatches: list[Block] = []

    @property
    def width(self) -> float:
        """Of the longest line."""
        ends = (words.x + words.width for words in self.words)
        return max(ends, default=self.x) - self.x

    def lines(self, texts: Iterable[str], tone: Tone = "dim") -> None:
        """Sentences, broken between words where they are wider than the room."""
        height = TITLE_LINE if tone == "title" else NOTE_LINE
        # in less than 8 letters, most words would be torn apart
        limit = max(int(self.room / (MEAN * SIZES[tone])), 8)
        for text in texts:
            for line in wrapped(one_line(text), limit):
                baseline = self.y + 0.75 * height
                self.words.append(words(line, tone, self.x, baseline))
                self.y += height

    def legend(self, entries: Sequence[tuple[BoxKind | None, str]]) -> None:
        """Coloured squares with their meaning side by side, in as many rows as there
        must be; text alone where there is no kind.
        """
        x = self.x
        for kind, text in entries:
            indent = ENTRY_INDENT if kind is not None else 0.0
            width = indent + text_width(text, SIZES["dim"])
            # an entry wider than the room still gets a row
            if x > self.x and x + width > self.x + self.room:
                x, self.y = self.x, self.y + NOTE_LINE
            if kind is not None:
                square = Rect(x, self.y + 3.0, SWATCH, SWATCH)
                self.swatches.append(Block(square, kind))
            baseline = self.y + 0.75 * NOTE_LINE
            self.words.append(words(text, "dim", x + indent, baseline))
            x += width + ENTRY_GAP

        if entries:
            self.y += NOTE_LINE


def wrapped(text: str, limit: int) -> list[str]:
    """The text in lines of at most `limit` letters, broken at spaces, and inside a word
    that is longer than a line.
    """
    return wrap(text, limit, break_on_hyphens=False)


# -- boxes and titles of frames --------------------------------------------------------

LINE = 15.0
PAD_X, PAD_Y = 10.0, 5.0
SMALL: tuple[BoxKind, ...] = ("activation", "norm", "shape")
"""Boxes that carry less of the work: drawn smaller."""
SMALL_PADS = (7.0, 3.0)
BASELINE = 11.5  # of a line, below its upper edge
MAX_LETTERS = 48  # longer lines are broken
MOST_LINES = 3  # of one text that is broken; the tooltip has it in full
FRAME_NAME = 44  # letters of the name in a frame's title
_FACTS = re.compile(r", (?=call \d|[\d,]+ (?:of|parameter)|frozen|takes )")
_CALL = re.compile(r"call \d[\d,]*(?<!,)")


class Sized(NamedTuple):
    """Lines of one box with their looks, and the size that holds them. `cut` when a
    line had to be shortened.
    """

    lines: tuple[tuple[str, Tone, float], ...]
    width: float
    height: float
    cut: bool = False


def measured(box: Box) -> Sized:
    """The box's lines as they will be drawn, and its size in whole, even pixels, so
    that its middle is a whole one.
    """
    return _measured(box.lines, box.flags, box.kind in SMALL)


@lru_cache(maxsize=65536)
def _measured(lines: tuple[str, ...], flags: tuple[str, ...], is_small: bool) -> Sized:
    # most boxes of a large graph read like many others
    title, *rest = lines
    toned: list[tuple[str, Tone]] = [(title, "name" if is_small else "strong")]
    toned += [(line, "plain") for line in rest]
    if flags:
        toned.append((", ".join(flags), "warning"))

    drawn: list[tuple[str, Tone, float]] = []
    cut = False
    for text, tone in toned:
        pieces = broken(text, MAX_LETTERS)
        cut = cut or " ".join(pieces) != text
        for piece in pieces:
            width = text_width(piece, SIZES[tone], tone in BOLD)
            drawn.append((piece, tone, width))

    widest = max(width for _, _, width in drawn)
    across, along = SMALL_PADS if is_small else (PAD_X, PAD_Y)
    return Sized(
        tuple(drawn),
        _even(widest + 2 * across),
        _even(LINE * len(drawn) + 2 * along),
        cut,
    )


def placed(sized: Sized, rect: Rect) -> tuple[Words, ...]:
    """The lines in the middle of a box."""
    x = rect.x + rect.width / 2
    top = rect.y + (rect.height - LINE * len(sized.lines)) / 2 + BASELINE

    return tuple(
        Words(x, top + LINE * i, text, tone, width, centred=True)
        for i, (text, tone, width) in enumerate(sized.lines)
    )


def frame_titles(title: str) -> tuple[str, ...]:
    """A frame's title, with a shorter name where that is long, and its name alone, for
    where there is no room. A loop keeps how often it ran, a module which call it is.

    >>> frame_titles("for block, skip in zip(self.decoder, reversed(skips)) ×3")[-1]
    'for block, skip in zip(self.decoder,… ×3'
    >>> frame_titles("encoder Encoder, call 2, 256 parameters")[-1]
    'encoder Encoder, call 2'
    """
    # and not at the commas of a loop's head
    name, *facts = _FACTS.split(one_line(title), maxsplit=1)
    call = _CALL.match(", ".join(facts))
    words, times, count = name.rpartition(" ×")
    short = shorten(name, FRAME_NAME)
    if times and short != name:
        short = shorten(words, FRAME_NAME - len(times + count))
        short = f"{short.rpartition(' ')[0]}{ELLIPSIS}{times}{count}"
    least = f"{short}, {call[0]}" if call else short
    return one_line(title), ", ".join((short, *facts)), least


def title_width(title: str) -> float:
    """Pixels of a frame's title."""
    return text_width(title, SIZES["dim"])


def _even(size: float) -> float:
    return 2.0 * math.ceil(size / 2)
