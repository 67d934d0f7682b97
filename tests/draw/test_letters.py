"""Widths of letters: no less than those of the typeface that comes with gradviz, read from its own tables."""

from __future__ import annotations

import struct
from importlib import resources

import pytest

from gradviz.draw.typesetting import text_width


class Typeface:
    """Advance widths of a TrueType file, as parts of an em."""

    def __init__(self, name: str) -> None:
        self.data = resources.files("gradviz.draw").joinpath("fonts", name).read_bytes()
        count = struct.unpack_from(">H", self.data, 4)[0]
        records = (struct.unpack_from(">4sIII", self.data, 12 + 16 * i) for i in range(count))
        self.table = {tag.decode(): offset for tag, _, offset, _ in records}
        self.unit = struct.unpack_from(">H", self.data, self.table["head"] + 18)[0]
        self.metrics = struct.unpack_from(">H", self.data, self.table["hhea"] + 34)[0]

    def width(self, letter: str) -> float:
        glyph = min(self._glyph(ord(letter)), self.metrics - 1)
        return float(struct.unpack_from(">H", self.data, self.table["hmtx"] + 4 * glyph)[0] / self.unit)

    def _glyph(self, code: int) -> int:
        """By the segments of the table for the first 65,536 characters."""
        start = self.table["cmap"]
        count = struct.unpack_from(">H", self.data, start + 2)[0]
        for i in range(count):
            offset = start + struct.unpack_from(">HHI", self.data, start + 4 + 8 * i)[2]
            if struct.unpack_from(">H", self.data, offset)[0] == 4:
                break
        twice = struct.unpack_from(">H", self.data, offset + 6)[0]
        for k in range(0, twice, 2):
            end = struct.unpack_from(">H", self.data, offset + 14 + k)[0]
            begin = struct.unpack_from(">H", self.data, offset + 16 + twice + k)[0]
            if begin <= code <= end:
                delta = struct.unpack_from(">h", self.data, offset + 16 + 2 * twice + k)[0]
                place = offset + 16 + 3 * twice + k
                shift = struct.unpack_from(">H", self.data, place)[0]
                if not shift:
                    return int((code + delta) % 65536)
                glyph = struct.unpack_from(">H", self.data, place + shift + 2 * (code - begin))[0]
                return int((glyph + delta) % 65536) if glyph else 0
        return 0


@pytest.mark.parametrize(("name", "bold"), [("DejaVuSansCondensed.ttf", False), ("DejaVuSansCondensed-Bold.ttf", True)])
def test_no_letter_is_wider_than_its_room(name: str, bold: bool) -> None:
    typeface = Typeface(name)
    assert typeface.width("i") < typeface.width("n") < typeface.width("m")
    for letter in (*map(chr, range(32, 127)), *"…×→←·–—αβγλ"):
        assert typeface.width(letter) <= text_width(letter, 1.0, bold) + 0.001, letter


def test_letters_have_widths_of_their_own() -> None:
    assert text_width("iii", 10) < text_width("mmm", 10) / 3
    assert text_width("漢字", 10) == text_width("漢", 10) * 2 > text_width("ab", 10)
