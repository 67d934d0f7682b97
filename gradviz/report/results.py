"""How results show themselves: a table in the terminal, in `print` and, as HTML in the
colours of the notebook, in a notebook; and the same data as JSON.

All consoles are made by `console`: one that notices Jupyter displays what it writes, as
an output of its own.

rich, which makes the tables, is imported when the first is shown.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from math import isfinite
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from gradviz.report.notebook_theme import FOLLOWS, OUTPUT
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.report.rich_parts import Console, RenderableType, Text

T = TypeVar("T", bound=type)

WIDE = 1000  # columns for a reader that has no width of its own
_NOTEBOOK = 140  # columns of a notebook's cell
_FONT = "font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace;line-height:1.3"
_COLOR = re.compile('(?<=[ "]color: )#([0-9a-f]{6})')
SAVED_ROWS, FLOW_ROWS, PATHS_ROWS = 10, 50, 10  # of a table, unless told otherwise


def displayed(table: str) -> Callable[[T], T]:
    """A class decorator. `table` is the whole name of what makes the rich table of a
    result; its `repr` is a line of its own.

    >>> @displayed("gradviz.memory.table.saved_table")
    ... class Result: ...
    >>> {"__str__", "__rich__", "_repr_html_"} <= set(vars(Result))
    True
    """
    module, _, name = table.rpartition(".")

    def made(self: Any) -> Any:
        return getattr(import_module(module), name)(self)

    def decorate(decorated: T) -> T:
        methods = {
            "__rich__": made,
            "__str__": lambda self: plain(made(self)),
            "_repr_html_": lambda self: html(made(self)),
        }
        for method, function in methods.items():
            setattr(decorated, method, function)
        return decorated

    return decorate


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


def html(renderable: RenderableType) -> str:
    """A renderable as one element without a script; rich escapes all text."""
    recorder = console(
        io.StringIO(), width=_NOTEBOOK, record=True, color_system="truecolor"
    )
    recorder.print(renderable)
    text = recorder.export_html(inline_styles=True, code_format="{code}")
    text = _COLOR.sub(_for_both, text)
    style = f"margin:.4em 0;background:none;white-space:pre;overflow-x:auto;{_FONT}"
    return f'{FOLLOWS}<div class="{OUTPUT}"><pre style="{style}">{text}</pre></div>'


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
