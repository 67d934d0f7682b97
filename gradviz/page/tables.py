"""Distinct values of a column, numbered as they come: what many records share is written once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any


class Table:
    """Numbers for values; `rows` are what is written, made from a value when it is first seen.

    >>> table = Table()
    >>> [table.number(word) for word in ("mul", "add", "mul")], table.rows
    ([0, 1, 0], ['mul', 'add'])
    """

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self.rows: list[Any] = []

    def number(self, value: Hashable, row: Any = None) -> int:
        """The number of a value. `row` is written for it, or the value itself."""
        found = self._number.get(value)
        if found is None:
            found = self._number[value] = len(self.rows)
            self.rows.append(value if row is None else row)
        return found

    def numbers(self, values: Iterable[Hashable]) -> list[int]:
        """The numbers of several."""
        return [self.number(value) for value in values]
