"""Text to paste into an issue or an assistant: Markdown in which everything from the
user's program is literal.

What came from a program stands in code spans and fenced blocks, where Markdown, HTML,
links and mentions mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from gradviz.wording import one_line

_TICKS = re.compile("`+")


def span(text: str) -> str:
    r"""A code span: the text as it is, on one line.

    >>> print(span("a`b"), span("`x`"), span("a\nb"))
    ``a`b`` `` `x` `` `a\nb`
    """
    line = one_line(text)
    fence = _fence(line, 1)
    if line.startswith("`") or line.endswith("`") or not line.strip():
        apart = " "
    else:
        apart = ""
    return f"{fence}{apart}{line}{apart}{fence}"


def block(lines: Iterable[str]) -> str:
    """A fenced block of lines."""
    text = "\n".join(map(one_line, lines))
    fence = _fence(text, 3)
    return f"{fence}text\n{text}\n{fence}"


def _fence(text: str, least: int) -> str:
    return "`" * max(
        least,
        1
        + max(
            map(len, _TICKS.findall(text)),
            default=0,
        ),
    )
