"""Words for numbers, bytes, shapes and text that came from the user: what every output
of gradviz says alike.

Returns plain text. Of a graph it knows the facts of one tensor; nothing of formats, and
nothing of torch.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence, Sized
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradviz.graph import Shape, TensorInfo


_UNUSUAL = re.compile("[^\x20-\x7e]")
# Controls, formats (bidi, zero-width, tags), halves of pairs, line ends, nothing.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp", "Cn")
# Letters and marks that show nothing: fillers, joiners, and selectors of variants but
# for those of emoji.
_BLANK = frozenset(
    map(
        chr,
        (
            0x034F,
            0x115F,
            0x1160,
            0x17B4,
            0x17B5,
            *range(0x180B, 0x1810),
            0x3164,
            0xFFA0,
        ),
    )
)
_SELECTORS = frozenset(map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0))))
_JOINER = "\u200d"  # of emoji: woman and microscope make a scientist


# -- text ------------------------------------------------------------------------------


CELL = ", cell "
"""Between the path of a notebook and the number of a cell, in the name that the code of
the cell has as its file.
"""


CELLS: dict[str, int] = {}
"""The numbers of the cells that have run in this process's own notebook, by the names
that their code has as its file.
"""


def notebook_of(file: str) -> tuple[str, str]:
    """The notebook and the number of the cell whose code has this name as its file;
    ("", "") for any other file.

    A notebook that runs now has no name.

    >>> notebook_of("/home/me/train.ipynb, cell 3"), notebook_of("train.py")
    (('/home/me/train.ipynb', '3'), ('', ''))
    """
    notebook, _, number = file.rpartition(CELL)
    if notebook.endswith(".ipynb"):
        return notebook, number
    return "", str(CELLS.get(file.replace("\\", "/").rpartition("/")[2], ""))


def place_text(file: str, line: int) -> str:
    """`train.py:12`; `cell 3, line 2` in a notebook.

    >>> place_text("train.py", 12), place_text("train.ipynb, cell 3", 2)
    ('train.py:12', 'cell 3, line 2')
    """
    _, cell = notebook_of(file)
    return f"cell {cell}, line {line}" if cell else f"{file}:{line}"


def file_text(file: str) -> str:
    """A file as people know it: a cell of the notebook that runs now is `cell 3`."""
    notebook, cell = notebook_of(file)
    return f"cell {cell}" if cell and not notebook else one_line(file)


def line_text(file: str, line: int) -> str:
    """The same without the file's name: `line 12`."""
    return place_text(file, line) if notebook_of(file)[1] else f"line {line}"


def one_line(text: str) -> str:
    r"""The text with everything that would break or reorder a line, or that cannot be
    seen, written as its escape.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return text if text.isascii() and text.isprintable() else visible(text)


def visible(text: str, keep: str = "") -> str:
    r"""The same, but for characters to `keep`, such as the line ends of a text of
    several lines.

    Every writer of gradviz passes text of the user through here or through
    `without_hidden`. Escaped are control characters (with U+0080 to U+009F), marks of
    direction, zero-width and tag characters, invisible letters, halves of surrogate
    pairs and unassigned code points. Letters of all scripts stay, and so does what
    joins an emoji.

    >>> print(visible("a\u202eb\u200bc\x9b\nd", keep="\n"))
    a\u202eb\u200bc\x9b
    d
    """
    return without_hidden(text, _escape, keep)


def without_hidden(text: str, write: Callable[[str], str], keep: str = "") -> str:
    """The text with each of these characters as `write` writes it."""
    plain = text.replace(keep, "") if keep else text
    if plain.isascii() and plain.isprintable():
        return text
    return _UNUSUAL.sub(
        lambda match: (
            write(match[0]) if match[0] not in keep and _is_hidden(match) else match[0]
        ),
        text,
    )


def _is_hidden(match: re.Match[str]) -> bool:
    c = match[0]
    if c == _JOINER:
        before, after = (
            match.string[: match.start()][-1:],
            match.string[match.end() :][:1],
        )
        kinds = [
            unicodedata.category(neighbour)
            for neighbour in (before, after)
            if neighbour
        ]
        return not (
            len(kinds) == 2 and kinds[0] in ("So", "Sk", "Mn") and kinds[1] == "So"
        )

    return unicodedata.category(c) in _HIDDEN or c in _BLANK or c in _SELECTORS


def _escape(c: str) -> str:
    return c.encode("unicode_escape", "backslashreplace").decode("ascii")


def clip(text: str, limit: int = 60) -> str:
    """One line of at most `limit` characters; what was cut shows as `…`."""
    line = one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


# -- numbers ---------------------------------------------------------------------------


def count_text(count: int) -> str:
    """A count with thousands separators: `1,234,567`."""
    return f"{count:,}"


def plural(count: int, noun: str, nouns: str | None = None) -> str:
    """A count and its noun: `1 node`, `1,234 nodes`, `2 leaves`."""
    return f"{count_text(count)} {noun if count == 1 else nouns or noun + 's'}"


def verb(things: Sized | int, singular: str, several: str) -> str:
    """The word for one thing or for several.

    >>> verb(1, "was", "were"), verb(["a", "b"], "has", "have")
    ('was', 'have')
    """
    if (things if isinstance(things, int) else len(things)) == 1:
        return singular
    return several


def few(names: Sequence[str], shown: int = 5) -> str:
    """The first of many names, and how many more there are.

    >>> few(["a", "b", "c"], 2), few(["a", "b"], 2)
    ('a, b and 1 more', 'a, b')
    """
    return ", ".join(names[:shown]) + (
        f" and {count_text(len(names) - shown)} more" if len(names) > shown else ""
    )


def few_reasons(pairs: Iterable[tuple[str, str]], shown: int) -> list[str]:
    """Lines below one another, indented: names, each with what holds of it, and what
    holds of several once; the first of many, and how many more there are.

    >>> few_reasons([("a", "is cut"), ("b", "is cut"), ("c", "is a leaf")], 5)
    ['  a is cut (also b)', '  c is a leaf']
    """
    names: dict[str, list[str]] = {}
    for name, words in pairs:
        names.setdefault(words, []).append(name)
    lines = []
    for words, (first, *others) in names.items():
        lines.append(f"{first} {words}" + (f" (also {few(others)})" if others else ""))
    if len(lines) > shown:
        lines[shown:] = [f"... and {count_text(len(lines) - shown)} more"]
    return [f"  {line}" for line in lines]


def bytes_text(nbytes: int | None) -> str:
    """Bytes in binary units: `17 B`, `1.5 MiB`; `? B` when unknown."""
    if nbytes is None:
        return "? B"
    if abs(nbytes) < 1024:
        return f"{nbytes} B"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if abs(size) < 1023.95:  # what rounds to 1024.0 belongs to the next unit
            return f"{size:.1f} {unit}"
    return f"{size / 1024:,.1f} PiB"


_SIZE = re.compile(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgtp]?)(i?)b?\s*", re.IGNORECASE)
_POWER = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def parse_size(text: str) -> int | None:
    """Bytes of a size as people write it (`40GiB`, `512 MB`, `1e9`), None when it is no
    size or not above 0.

    >>> [parse_size(text) for text in ("40GiB", "512 mb", "1e3", "1.5K", "ten")]
    [42949672960, 512000000, 1000, 1500, None]
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        return None
    try:
        number = (
            float(match[1]) * (1024 if match[3] else 1000) ** _POWER[match[2].lower()]
        )
    except (ValueError, OverflowError):
        return None
    return int(number) if math.isfinite(number) and number >= 1 else None


# -- tensors ---------------------------------------------------------------------------


def shape_text(shape: Shape | None) -> str:
    """`(3, 4)`, `(3,)`, `()` for a scalar, `(s93, 4)` with a symbolic size, `(?)` where
    there is no single shape.
    """
    if shape is None:
        return "(?)"
    inside = ", ".join(one_line(str(size)) for size in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


@lru_cache(maxsize=4096)
def tensor_line(tensor: TensorInfo | None) -> str:
    """Shape and dtype; the layout unless strided, the device unless cpu:
    `(3, 4) float32`, `(3,) float16 cuda:0`.
    """
    if tensor is None:
        return "unknown tensor"
    words = [shape_text(tensor.shape), one_line(tensor.dtype)]
    if tensor.layout != "strided":
        words.append(one_line(tensor.layout))
    if tensor.device != "cpu":
        words.append(one_line(tensor.device))
    return " ".join(words)


# How numbers of gradients read: four significant digits, bars, shares.

BAR = 20
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def number(value: float | None) -> str:
    """Four significant digits, `-` for none.

    >>> number(5.0), number(0.000123456), number(float("nan")), number(None)
    ('5', '0.0001235', 'nan', '-')
    """
    return "-" if value is None else f"{value:.4g}"


def share(part: float | None) -> str:
    """A share in percent; `-` for none, and never 0 % or 100 % for what is only near.

    >>> share(0.0), share(0.25), share(0.00001), share(0.99999), share(None)
    ('0 %', '25 %', '<0.1 %', '>99.9 %', '-')
    """
    if part is None:
        return "-"
    percent = 100 * part
    if 0 < percent < 0.1:
        return "<0.1 %"
    if 99.9 < percent < 100:
        return ">99.9 %"
    return f"{percent:.3g} %"


def bar(part: float | None, width: int = BAR) -> str:
    """A bar from `▏` (0) to `width` full cells (1); nothing for None.

    >>> bar(1.0, 3), bar(0.5, 3), bar(0.0, 3), bar(None, 3)
    ('███', '█▌', '▏', '')
    """
    if part is None:
        return ""
    eighths = max(1, round(part * width * 8))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
