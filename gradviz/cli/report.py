"""Writes a report: a line that says what is looked at, and a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType


def write_table(stream: TextIO, table: RenderableType, title: str = "") -> None:
    """In colour and as wide as the terminal, or plain and as wide as it needs to be."""
    from rich.console import Console

    from gradviz.render.plain import plain
    from gradviz.wording import one_line

    if title:
        stream.write(f"{one_line(title)}\n\n")
    if stream.isatty():
        Console(file=stream, highlight=False).print(table)
    else:
        stream.write(plain(table) + "\n")
