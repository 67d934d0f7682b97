"""How results show themselves: a table in the terminal, in `print` and, as HTML in the
colours of the notebook, in a notebook; and the same data as JSON.

All consoles that write are made by `console`: one that notices Jupyter displays what it writes, as
an output of its own.

rich, which makes the tables, is imported when the first is shown.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from html import escape
from math import isfinite
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from gradviz.features import load
from gradviz.report.notebook_theme import FOLLOWS, OUTPUT
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.report.rich_parts import Console, RenderableType, Text
    from gradviz.report.table import FittedTable

T = TypeVar("T", bound=type)

WIDE = 1000  # columns for a reader that has no width of its own
_NOTEBOOK = 140  # columns of a notebook's cell
_FONT = "font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace;line-height:1.3"
_COLOR = re.compile('(?<=[ "]color: )#([0-9a-f]{6})')
SAVED_ROWS, FLOW_ROWS, PATHS_ROWS = 10, 50, 10  # of a table, unless told otherwise


def displayed(table: str, **every: Any) -> Callable[[T], T]:
    """A class decorator. `table` is the `module:function` that makes the rich table of a
    result, with `every` argument that has it show all rows, over which a result is
    iterated; its `repr` is a line of its own.

    >>> @displayed("gradviz.memory.table:saved_table", top=None)
    ... class Result: ...
    >>> {"__str__", "__rich__", "__iter__", "_repr_html_"} <= set(vars(Result))
    True
    """

    def made(self: Any, **options: Any) -> Any:
        return load(table)(self, **options)

    def decorate(decorated: T) -> T:
        methods: dict[str, Callable[[Any], Any]] = {
            "__rich__": made,
            "__str__": lambda self: plain(made(self)),
            "_repr_html_": lambda self: html(made(self)),
        }
        if every:
            methods["__iter__"] = lambda self: table_rows(made(self, **every))
        for method, function in methods.items():
            setattr(decorated, method, function)
        return decorated

    return decorate


def parts_of(renderable: Any) -> Iterator[Any]:
    """A renderable, or what it puts one below the other."""
    inside = getattr(renderable, "renderables", None)
    if inside is None:
        yield renderable
    else:
        for part in inside:
            yield from parts_of(part)


def table_rows(renderable: Any) -> Iterator[Mapping[str, Any]]:
    """The rows of the first table in it."""
    from gradviz.report.table import FittedTable

    tables = (part for part in parts_of(renderable) if isinstance(part, FittedTable))
    yield from next(tables, ())


def plain(renderable: RenderableType) -> str:
    """A renderable as plain text without colours, blank ends of lines cut off."""
    stream = io.StringIO()
    console(stream, width=WIDE, color_system=None).print(renderable)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def console(stream: TextIO, **options: Any) -> Console:
    """Writes to `stream` and nowhere else. Options: those of rich's Console."""
    from gradviz.report.rich_parts import Console

    return Console(file=stream, highlight=False, force_jupyter=False, **options)


def note_lines(notes: Iterable[str]) -> list[Text]:
    """Notes below a table, one a line."""
    from gradviz.report.rich_parts import Text

    return [Text(f"note: {one_line(note)}", style="yellow") for note in notes]


def html(renderable: Any) -> str:
    """A renderable as one element without a script: tables as tables, whose cells do not
    wrap, and anything else as lines.
    """
    from gradviz.report.table import FittedTable

    made = []
    for part in parts_of(renderable):
        if isinstance(part, FittedTable):
            made.append(_html_table(part))
        else:
            made.append(f'<pre style="{_LINES}">{_html_lines(part)}</pre>')
    style = "margin:.4em 0;overflow-x:auto"
    return f'{FOLLOWS}<div class="{OUTPUT}" style="{style}">{"".join(made)}</div>'


_LINES = f"margin:0;background:none;white-space:pre;{_FONT}"


def _html_lines(part: RenderableType) -> str:
    """In colour; rich escapes all text."""
    recorder = console(
        io.StringIO(), width=_NOTEBOOK, record=True, color_system="truecolor"
    )
    recorder.print(part)
    text = recorder.export_html(inline_styles=True, code_format="{code}")
    return _COLOR.sub(_for_both, text.rstrip("\n") or " ")


def _html_table(table: FittedTable) -> str:
    from gradviz.report.rich_parts import Text

    kinds = [column.kind for column in table.columns]
    rows = []
    if table.header:
        heads = [Text(column.title, "bold") for column in table.columns]
        rows.append(_html_row("th", heads, kinds))
    for row in (*table.rows, *table.summary):
        rows.append(_html_row("td", row, kinds))
    return f'<table style="border-collapse:collapse;{_LINES}">{"".join(rows)}</table>'


def _html_text(text: Text) -> str:
    """One line in its colours; much quicker than a recording of it."""
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME

    spans = []
    for segment in text.render(_colors()):
        words = escape(segment.text)
        css = (
            segment.style.get_html_style(DEFAULT_TERMINAL_THEME)
            if segment.style
            else ""
        )
        spans.append(f'<span style="{css}">{words}</span>' if css else words)
    return _COLOR.sub(_for_both, "".join(spans))


@cache
def _colors() -> Console:
    return console(io.StringIO())


def _html_row(tag: str, cells: Iterable[Text], kinds: Iterable[str]) -> str:
    made = []
    for cell, kind in zip(cells, kinds):
        side = "right" if kind == "number" else "left"
        style = f"text-align:{side};padding:0 1em 0 0;border:0;white-space:pre"
        made.append(f'<{tag} style="{style}">{_html_text(cell)}</{tag}>')
    return f'<tr style="background:none">{"".join(made)}</tr>'


def _for_both(color: re.Match[str]) -> str:
    """A colour, with a lighter tone for a dark notebook: half of it and half of white."""
    lighter = int(color[1], 16) >> 1 & 0x7F7F7F | 0x808080
    return f"light-dark({color[0]}, #{lighter:06x})"


def write_table(stream: TextIO, table: RenderableType, title: str = "") -> None:
    """A line that says what is looked at, and a table: in colour and as wide as the
    terminal, or plain and as wide as it needs.
    """
    from gradviz.report.rich_parts import Group, Text

    shown = Group(
        *([Text(one_line(title), overflow="fold"), Text()] if title else []), table
    )
    if stream.isatty():
        console(stream).print(shown)
    else:
        stream.write(plain(shown) + "\n")


def write_json(stream: TextIO, data: Any) -> None:
    """The same for programs, uncut; records stand for themselves."""
    stream.write(json.dumps(json_ready(data), indent=2) + "\n")


def json_ready(value: Any) -> Any:
    """Plain data: a record as a dict of its fields, and text for NaN and infinity,
    which JSON has no number for.

    >>> json_ready({"norm": float("inf"), "values": [1.0, float("nan")], "count": 2})
    {'norm': 'inf', 'values': [1.0, 'nan'], 'count': 2}
    """
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value
