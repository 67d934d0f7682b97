"""The one table of every result: which columns it has, and what gives way to what where
a terminal is narrow.

A number is never cut: its column is shown whole or not at all, and a line below the
table says which are not. Titles break into lines first; then columns leave in the order
of their `drop_order`; then code is cut from the right and names from the left.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from textwrap import wrap
from typing import Literal, NamedTuple, TypeVar

from rich.cells import cell_len

from gradviz.report.rich_parts import Console, ConsoleOptions, RenderResult, Text

T = TypeVar("T")

Kind = Literal["number", "word", "bar", "name", "title", "code", "text"]
_LEAST: dict[Kind, int] = {"name": 16, "title": 24, "code": 16, "text": 24}
"""Cells that a column keeps while others can leave, of the kinds that need not be
whole; what is left over goes to the first.
"""
_APART = 40  # cells that a column of names may keep so that no two of them look alike
_FEWEST = 8  # cells of such a column when nothing more can leave
_GAP = 2
_ELLIPSIS = "…"
_DIGITS = re.compile(r"^[\d.,_]+")
# what a name can do without: no index, and a letter comes next
_PART = re.compile(r"[^.:/\s\d]*[.:/\s]+(?=[^\W\d])")


class Column(NamedTuple):
    """One column. Of those that `drop_order` ranks, 1 leaves first; 0 stays whatever the
    width is.
    """

    title: str
    kind: Kind = "word"
    drop_order: int = 0


class Amount(Text):
    """A number in words for people, and the number itself for programs."""

    __slots__ = ("value",)

    def __init__(self, value: float | None, words: str, style: str = "") -> None:
        super().__init__(words, style)
        self.value = value


@dataclass(frozen=True)
class FittedTable:
    """Rows of cells for rich, fitted to the width that there is. A cell is one line of
    text. `styles` are those of whole rows.

    `summary` are rows about the others, such as their sum.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Text]]
    header: bool = True
    indent: int = 0
    styles: Sequence[str] = ()
    summary: Sequence[Sequence[Text]] = ()

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        yield from self.lines(options.max_width)

    def __iter__(self) -> Iterator[dict[str, float | str | None]]:
        """The rows for a program such as pandas: numbers where cells have them."""
        titles = [
            column.title if column.kind != "bar" else "" for column in self.columns
        ]
        for row in self.rows:
            yield {title: _value(cell) for title, cell in zip(titles, row) if title}

    def lines(self, width: int) -> Iterator[Text]:
        """The table in so many cells."""
        room = width - self.indent
        every = (*self.rows, *self.summary)
        bodies: list[list[str]] = [[] for _ in self.columns]
        for row in every:
            for body, cell in zip(bodies, row):
                body.append(cell.plain)

        titles = self._titles(bodies, room)
        fitted = self._fitted(
            [_width(*column) for column in zip(titles, bodies)], bodies, room
        )
        above = max((len(titles[i]) for i in fitted), default=0)
        # short titles stand at the bottom, right above their column
        heads = {
            i: [Text()] * (above - len(titles[i])) + [*map(Text, titles[i])]
            for i in fitted
        }
        yield from self._lines(fitted, heads, "bold")

        for row, style in zip(every, self.styles or repeat("")):
            yield from self._lines(
                fitted,
                {i: _cell(row[i], self.columns[i].kind, fitted[i]) for i in fitted},
                style,
            )

        hidden = [
            column.title for i, column in enumerate(self.columns) if i not in fitted
        ]
        if hidden:
            yield Text(f"hidden to fit {width} columns: {', '.join(hidden)}", "dim")

    def _titles(self, bodies: Sequence[Sequence[str]], room: int) -> list[list[str]]:
        """The lines of each title: one, unless it must be broken."""
        if not self.header:
            return [[] for _ in self.columns]
        unbroken = [[column.title] for column in self.columns]
        if _together([_width(*column) for column in zip(unbroken, bodies)]) <= room:
            return unbroken
        return [
            _broken(column.title, body) for column, body in zip(self.columns, bodies)
        ]

    def _fitted(
        self, widths: Sequence[int], bodies: Sequence[Sequence[str]], room: int
    ) -> dict[int, int]:
        """The columns that are shown, by number, and the cells of each: what is left
        over goes to names first.
        """
        if _together(widths) <= room:
            return dict(enumerate(widths))

        fitted = {
            i: _least(self.columns[i].kind, width, bodies[i])
            for i, width in enumerate(widths)
        }
        for i in sorted(
            (i for i in fitted if self.columns[i].drop_order),
            key=lambda i: self.columns[i].drop_order,
        ):
            if _together(fitted.values()) <= room:
                break
            # the one that a reader can best do without
            del fitted[i]

        left = room - _together(fitted.values())
        for kind in _LEAST:
            for i in (i for i in fitted if self.columns[i].kind == kind):
                more = max(
                    min(left, widths[i] - fitted[i]),
                    # so many cells in any case: a wider table is better than names of
                    # one letter
                    min(_FEWEST, widths[i]) - fitted[i],
                )
                fitted[i] += more
                left -= more

        return fitted

    def _lines(
        self,
        widths: Mapping[int, int],
        cells: Mapping[int, Sequence[Text]],
        style: str = "",
    ) -> Iterator[Text]:
        """One row, in as many lines as its longest cell has."""
        for n in range(max(map(len, cells.values()), default=0)):
            line = Text(" " * self.indent, style, overflow="fold")
            for i, lines in cells.items():
                text = lines[n] if n < len(lines) else Text()
                # by cells, since a letter of Chinese takes two
                blank = " " * (widths[i] - text.cell_len)
                if self.columns[i].kind == "number":
                    before, after = (blank, "")
                else:
                    before, after = ("", blank)
                line.append(before).append_text(text).append(after + " " * _GAP)

            line.rstrip()
            yield line


def _value(cell: Text) -> float | str | None:
    return cell.value if isinstance(cell, Amount) else cell.plain.strip()


def _cell(text: Text, kind: Kind, width: int) -> Sequence[Text]:
    """The lines of a cell as they fit its column. What names are indented by stays."""
    if kind == "text":
        return list(text.wrap(Console(file=io.StringIO(), force_jupyter=False), width))

    cut = _CUT.get(kind)
    if cut is None or text.cell_len <= width:
        return [text]

    inside = text.plain.lstrip()
    indent = len(text.plain) - len(inside)
    shown = cut(inside, max(width - indent, _FEWEST))
    cell = Text(" " * indent, text.style)
    if shown.startswith(_ELLIPSIS):
        rest = text[len(text) - len(shown) + 1 :]  # in its styles
        return [cell.append(_ELLIPSIS).append_text(rest)]
    before, _, after = map(len, shown.rpartition(_ELLIPSIS))
    cell.append_text(text[indent : indent + before]).append(_ELLIPSIS)
    return [cell.append_text(text[len(text) - after :])]


def _together(widths: Collection[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _width(title: Sequence[str], body: Sequence[str]) -> int:
    return max(map(cell_len, (*title, *body)), default=0)


def _broken(title: str, body: Sequence[str]) -> list[str]:
    """The title in lines that are no wider than what is below it, as far as its words
    allow that.
    """
    if title:
        return wrap(title, _width(title.split(), body), break_long_words=False)
    return []


def _least(kind: Kind, width: int, body: Sequence[str]) -> int:
    """The cells that a column keeps while others can leave."""
    if kind != "name":
        return min(width, _LEAST.get(kind, width))
    names = set(body)
    for least in range(_LEAST[kind], min(width, _APART)):
        if len({_cell(Text(name), kind, least)[0].plain for name in names}) == len(
            names
        ):
            return least
    return min(width, _APART)


def end_of(name: str, width: int) -> str:
    """The end of a name in at most so many cells, from a part of it on where there is
    room for that.

    >>> end_of("encoder.layer.0.weight", 18), end_of("encoder.layer.0.weight", 12), end_of("conv1024.bias", 9)
    ('…layer.0.weight', '…er.0.weight', '…bias')
    """
    if cell_len(name) <= width:
        return name

    end = _DIGITS.sub("", _start(name[::-1], width - 1)[::-1])
    part = _PART.match(end)
    return _ELLIPSIS + (
        end[part.end() :] if part is not None and part.end() <= len(end) // 3 else end
    )


def start_of(code: str, width: int) -> str:
    """The start of a line of code in at most so many cells; no number ends at the cut.

    >>> start_of("x = torch.randn(1024)", 19), start_of("x = f(y)", 8)
    ('x = torch.randn(…', 'x = f(y)')
    """
    if cell_len(code) <= width:
        return code
    return _start(code, width - 1).rstrip("0123456789._ ") + _ELLIPSIS


def title_of(title: str, width: int) -> str:
    """The start of a title in at most so many cells, and how many it stands for.

    >>> title_of("layers.0–11 TransformerBlock ×12", 24)
    'layers.0–11 Transfo… ×12'
    """
    start, times, count = title.partition(" ×")
    return start_of(start, width - len(times + count)) + times + count


_CUT: dict[Kind, Callable[[str, int], str]] = {
    "name": end_of,
    "title": title_of,
    "code": start_of,
}
"""How the kinds that may be cut are."""


def _start(text: str, width: int) -> str:
    """The longest start that takes at most so many cells; some letters take two."""
    end = min(len(text), max(width, 0))
    while cell_len(text[:end]) > width:
        end -= 1
    return text[:end]
