"""Words for numbers, bytes, shapes and text that came from the user: what every output of gradviz says alike.

Everything here returns one line of plain text. Knows nothing of graphs, formats or torch.
"""

from __future__ import annotations

import unicodedata

from gradviz.graph import Shape, TensorInfo

UNKNOWN_SHAPE = "(?)"

# Marks that reorder the text around them. The letters of right-to-left scripts do not need them and stay.
_REORDERING = frozenset(map(chr, (0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))))


# -- text ------------------------------------------------------------------------------------------------------------


def one_line(text: str) -> str:
    r"""The text with everything that would break or reorder a line written as its escape.

    >>> one_line("a\nb")
    'a\\nb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_visible(c) for c in text)


def _visible(c: str) -> str:
    if c in _REORDERING or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp", "Cn"):
        return c.encode("unicode_escape", "backslashreplace").decode("ascii")
    return c


def clip(text: str, limit: int = 60) -> str:
    """One line of at most `limit` characters; what was cut shows as `…`."""
    line = one_line(text)
    return line if len(line) <= limit else line[: limit - 1] + "…"


# -- numbers ---------------------------------------------------------------------------------------------------------


def count_text(count: int) -> str:
    """A count with thousands separators: `1,234,567`."""
    return f"{count:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """A count and its noun: `1 node`, `1,234 nodes`, `2 leaves`."""
    return f"{count_text(count)} {one if count == 1 else many or one + 's'}"


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


# -- tensors ---------------------------------------------------------------------------------------------------------


def shape_text(shape: Shape | None) -> str:
    """`(3, 4)`, `(3,)`, `()` for a scalar, `(s93, 4)` with a symbolic size, `(?)` where there is no single shape."""
    if shape is None:
        return UNKNOWN_SHAPE
    inside = ", ".join(one_line(str(size)) for size in shape)
    return f"({inside},)" if len(shape) == 1 else f"({inside})"


def tensor_line(tensor: TensorInfo | None) -> str:
    """Shape and dtype; the layout unless strided, the device unless cpu: `(3, 4) float32`, `(3,) float16 cuda:0`."""
    if tensor is None:
        return "unknown tensor"
    words = [shape_text(tensor.shape), one_line(tensor.dtype)]
    if tensor.layout != "strided":
        words.append(one_line(tensor.layout))
    if tensor.device != "cpu":
        words.append(one_line(tensor.device))
    return " ".join(words)
