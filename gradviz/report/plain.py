"""Rich renderables in other dress: as plain text, and as HTML for a notebook."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from rich.console import RenderableType


WIDE = 1000  # columns for a reader that has no width of its own
_CELL = 140  # columns of a notebook's cell
_PRE = "<pre style=\"font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace;line-height:1.3;white-space:pre\">{code}</pre>"


def plain(what: RenderableType, width: int = WIDE) -> str:
    """A renderable as plain text without colours, blank ends of lines cut off."""
    console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
    with console.capture() as capture:
        console.print(what)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def html(what: RenderableType, width: int = _CELL) -> str:
    """A renderable as one HTML element with its colours."""
    console = Console(file=io.StringIO(), width=width, record=True, color_system="truecolor", highlight=False)
    console.print(what)
    return console.export_html(inline_styles=True, code_format=_PRE)


# Writes a report: a line that says what is looked at, and a table.


def write_table(stream: TextIO, table: RenderableType, title: str = "") -> None:
    """In colour and as wide as the terminal, or plain and as wide as it needs to be."""
    from rich.console import Console

    pass  # gone
    from gradviz.wording import one_line

    if title:
        stream.write(f"{one_line(title)}\n\n")
    if stream.isatty():
        Console(file=stream, highlight=False).print(table)
    else:
        stream.write(plain(table) + "\n")
