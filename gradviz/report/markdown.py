"""Text to paste into an issue or an assistant: Markdown in which everything from the user's program is literal.

What came from a program stands in code spans and fenced blocks, where Markdown, HTML, links and mentions mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gradviz.report import labels
from gradviz.wording import clip, one_line

_TICKS = re.compile("`+")


class Section(NamedTuple):
    """Rows below a title: a name, which may be "", and words. Both may hold text of the user's, the title none."""

    title: str
    rows: Sequence[tuple[str, str]]


def span(text: str) -> str:
    r"""A code span: the text as it is, on one line.

    >>> print(span("a`b"), span("`x`"), span("a\nb"))
    ``a`b`` `` `x` `` `a\nb`
    """
    line = one_line(text)
    fence = _fence(line, 1)
    apart = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    return f"{fence}{apart}{line}{apart}{fence}"


def block(lines: Iterable[str]) -> str:
    """A fenced block of lines."""
    text = "\n".join(map(one_line, lines))
    fence = _fence(text, 3)
    return f"{fence}text\n{text}\n{fence}"


def _fence(text: str, least: int) -> str:
    return "`" * max(least, 1 + max(map(len, _TICKS.findall(text)), default=0))


def page(heads: Sequence[str], sections: Sequence[Section], most: int, rows: int) -> str:
    """Lines and lists in at most so many bytes: of the `rows` rows of a section fewer where there are more, and shorter ones."""
    for shown, letters in ((rows, 160), (8, 160), (5, 120), (3, 90), (2, 60), (1, 40)):
        text = "\n".join(_lines(heads, sections, min(shown, rows), letters)) + "\n"
        if len(text.encode()) <= most:
            break
    return text


def _lines(heads: Sequence[str], sections: Sequence[Section], shown: int, letters: int) -> Iterator[str]:
    first, *others = (clip(head, letters) for head in heads)
    yield f"### {span(first)}"
    yield from ("", *(f"- {span(head)}" for head in others))
    for title, rows in sections:
        yield from ("", f"**{title}**", "")
        for name, words in rows[:shown]:
            yield "- " + ": ".join(span(clip(text, letters)) for text in (name, words) if text)
        if len(rows) > shown:
            yield f"- {labels.more(len(rows) - shown)}"
