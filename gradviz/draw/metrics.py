"""How much room text takes: one monospace font, so that every viewer draws what was measured here.

Sizes are pixels. Letters of the fonts in `FONTS` are at most `ADVANCE` em wide; wide characters (East Asian, emoji) take
two such cells. This module knows nothing of boxes or formats.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rich.cells import cell_len

FONTS = ("DejaVu Sans Mono", "Menlo", "Consolas", "Liberation Mono", "monospace")
"""Fonts in order of preference. `ui-monospace` is left out: on a Mac it is wider than the others."""

ADVANCE = 0.602  # em; DejaVu Sans Mono and Menlo, the widest of FONTS
ELLIPSIS = "…"
_NUMBER = re.compile(r"\d(?:[\d,.]*\d)?")


@lru_cache(maxsize=65536)
def cells(text: str) -> int:
    """Width of one line in character cells, at least one for every code point.

    What joins or marks its neighbours takes no room where the font knows the whole, but shows apart where it does not.
    """
    return len(text) if text.isascii() else sum(max(cell_len(c), 1) for c in text)


def text_width(text: str, size: float) -> float:
    """Width in pixels of one line at a font size.

    >>> round(text_width("abc", 10), 2)
    18.06
    """
    return cells(text) * ADVANCE * size


def is_measured(text: str) -> bool:
    """Whether no letter is wider than its cells: Latin, Greek, the marks that labels use, East Asian and emoji.

    The letters of other scripts come from fonts that are not measured here.
    """
    return text.isascii() or all(
        c < "\u0300" or "\u0370" <= c < "\u0400" or c in "…×→←·–—" or cell_len(c) == 2 for c in text
    )


@lru_cache(maxsize=65536)
def shorten(text: str, limit: int) -> str:
    """The text in at most `limit` cells: its two ends, with an ellipsis for what was left out in between.

    A number is left out as a whole, since a part of it would be another number.

    >>> shorten("encoder.layers.11.self_attn.out_proj", 16)
    'encoder…out_proj'
    >>> shorten("embedding, 109,483,778 parameters", 26)
    'embedding, … parameters'
    """
    if cells(text) <= limit:
        return text
    room = max(limit - 1, 0)
    tail = _fitting(text[::-1], (room + 1) // 2)[::-1]
    head = _fitting(text, room - cells(tail))
    for number in _NUMBER.finditer(text):
        if number.start() < len(head) < number.end():
            head = text[: number.start()]
        if number.start() < len(text) - len(tail) < number.end():
            tail = text[number.end() :]
    return f"{head}{ELLIPSIS}{tail}"


def _fitting(text: str, limit: int) -> str:
    """The longest start of the text that takes at most `limit` cells."""
    end = min(len(text), limit)
    while cells(text[:end]) > limit:
        end -= 1
    return text[:end]
