"""The page of a check: what it means, an example fault, how it is found, what to do, when to ignore it.

A check's docstring is the one source: the documentation, `gradviz check --explain` and the rules of a SARIF log are made from it.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from gradviz.checks.registry import Check
from gradviz.checks.text import WIDTH

SECTIONS = {"found": "How it is found", "do": "What to do", "ignore": "When to ignore it"}
"""How the paragraphs of a docstring begin that are sections of their own."""


class Page(NamedTuple):
    """The page of one check. Texts are paragraphs with a blank line between; `example` is a script that has the fault."""

    check: Check
    meaning: str
    example: str
    found: str
    do: str
    ignore: str


def page(check: Check) -> Page:
    """What the docstring of a check says.

    >>> from gradviz.checks.registry import checks
    >>> no_graph = page(checks()[0])
    >>> "backward()" in no_graph.example and no_graph.do.startswith("Mend the line")
    True
    """
    text, _, example = (inspect.getdoc(check.function) or "").partition("```python\n")
    parts: dict[str, list[str]] = {"meaning": []}
    current = "meaning"
    for paragraph in filter(None, (part.strip() for part in text.split("\n\n"))):
        for key, title in SECTIONS.items():
            if paragraph.startswith(f"{title}:"):
                current, paragraph = key, paragraph.removeprefix(f"{title}:").strip()
        parts.setdefault(current, []).append(paragraph)
    return Page(
        check,
        example=example.partition("```")[0],
        **{key: "\n\n".join(parts.get(key, [])) for key in ("meaning", *SECTIONS)},
    )


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
