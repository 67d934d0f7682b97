"""Writes the page of a check for the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from gradviz.checks.pages import SECTIONS, Page
from gradviz.checks.text import WIDTH

_INDENT = "  "


def page_lines(page: Page, width: int = WIDTH) -> Iterator[str]:
    """The page line by line, at most `width` wide but for the code."""
    check = page.check
    yield f"{check.id}: {check.severity}{', with --values' if check.needs_values else ''}"
    yield from textwrap.wrap(check.summary, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
    yield from _section("What it means", page.meaning, width)
    yield from ("", "Example", "")
    yield from (f"{_INDENT}{line}".rstrip() for line in page.example.rstrip().splitlines())
    for key, title in SECTIONS.items():
        yield from _section(title, getattr(page, key), width)


def _section(title: str, text: str, width: int) -> Iterator[str]:
    yield from ("", title)
    for i, paragraph in enumerate(text.split("\n\n")):
        if i:
            yield ""
        yield from textwrap.wrap(
            paragraph, width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False
        )
