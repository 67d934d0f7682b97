"""The container of the page's data: named columns of whole numbers and one JSON text,
deflated and in base64.

Numbers are written as differences, zigzag, in bytes of 7 bits: what repeats or counts
up becomes runs of equal bytes, which deflate well. `web/model.js` reads it. Knows no
graph.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

# Distinct values of a column, numbered as they come: what many records share is written
# once.


NOTHING = -1


class Table:
    """Numbers for values; `rows` are what is written: `row` of each value, asked for
    when it is first seen.

    >>> table = Table()
    >>> table.numbers(["mul", "add", None, "mul"]), table.rows
    ([0, 1, -1, 0], ['mul', 'add'])
    """

    def __init__(self, row: Callable[[Any], Any] | None = None) -> None:
        self._row = row
        self._number: dict[Hashable, int] = {None: NOTHING}
        self.rows: list[Any] = []

    def numbers(self, values: Iterable[Hashable]) -> list[int]:
        """The number of each value, -1 for None."""
        number_of, numbers = self._number, []
        for value in values:
            if value not in number_of:
                number_of[value] = len(self.rows)
                self.rows.append(value if self._row is None else self._row(value))
            numbers.append(number_of[value])
        return numbers


LARGEST = 2**53 - 1
"""The browser's numbers are exact up to here; larger ones, which no real graph has, are
cut to it.
"""


class Pack:
    """Collects columns and texts of one block of data.

    >>> pack = Pack()
    >>> pack.add(x=[3, 4, 5])
    >>> len(pack.base64()) > 0
    True
    """

    def __init__(self) -> None:
        # name, numbers, bytes of `_data`, whether some are wide
        self._columns: list[tuple[str, int, int, int]] = []
        self._data: list[bytes] = []
        self._texts: dict[str, Any] = {}

    def add(self, **columns: Iterable[float | None]) -> None:
        """Columns of whole numbers; None is written as -1."""
        for name, numbers in columns.items():
            values = [NOTHING if number is None else number for number in numbers]
            largest = max(max(values, default=0), -min(values, default=0))
            wide = largest >= 2**31
            if wide:
                values = [min(max(value, -LARGEST), LARGEST) for value in values]
            self._data.append(varints(zigzag(np.array(values, np.int64))))
            size = len(self._data[-1])
            self._columns.append((name, len(values), size, int(wide)))

    def put(self, **texts: Any) -> None:
        """Anything that JSON knows."""
        self._texts |= texts

    def base64(self, clean: Callable[[str], str] = str) -> str:
        """The whole block; every text passes `clean`."""
        head = {"columns": self._columns, **everywhere(clean, self._texts)}
        text = json.dumps(head, separators=(",", ":"), ensure_ascii=True).encode(
            "ascii"
        )
        body = b"".join((len(text).to_bytes(4, "little"), text, *self._data))

        return base64.b64encode(zlib.compress(body, 9)).decode("ascii")


def everywhere(clean: Callable[[str], str], value: Any) -> Any:
    """What `clean` makes of every text in lists and mappings."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: everywhere(clean, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [everywhere(clean, item) for item in value]
    return value


def zigzag(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """Differences as small numbers: 0, -1, 1, -2 become 0, 1, 2, 3."""
    steps = np.diff(numbers, prepend=0)
    return ((steps << 1) ^ (steps >> 63)).astype(np.uint64)


def varints(numbers: npt.NDArray[np.uint64]) -> bytes:
    """7 bits a byte, the lowest first; the high bit says that more follow.

    >>> varints(np.array([1, 300], np.uint64))
    b'\\x01\\xac\\x02'
    """
    if not len(numbers):
        return b""

    lengths = np.ones(len(numbers), np.int64)
    for bits in range(7, 64, 7):
        lengths += numbers >= np.uint64(1 << bits)

    starts = np.cumsum(lengths) - lengths
    out = np.zeros(int(lengths.sum()), np.uint8)
    for place in range(int(lengths.max())):
        long = lengths > place
        byte = (numbers[long] >> np.uint64(7 * place)) & np.uint64(127)
        more = (lengths[long] > place + 1).astype(np.uint64) << np.uint64(7)
        out[starts[long] + place] = (byte | more).astype(np.uint8)

    return out.tobytes()
