"""The fenced blocks of the Markdown pages, read for the tests that run them.

`<!-- not run: WHY -->` above a block says why the tests leave it out. `<!-- code` to `-->` holds Python that a reader can do
without: it runs with the page's other blocks and gives them what they speak of.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import gradviz

ROOT = Path(__file__).parent.parent
PACKAGE = Path(gradviz.__file__).parent  # the folder in a checkout, or the wheel's
MADE = (  # written whole by programs; a test compares each with what they write
    "docs/checks.md",
    "docs/gallery.md",
    *(path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/checks/*.md"))),
)
PAGES = sorted(
    path
    for path in (
        *ROOT.glob("*.md"),
        *ROOT.glob("samples/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.rglob("docs/**/*.md"),
    )
    if path.relative_to(ROOT).as_posix() not in MADE
)
_BLOCK = re.compile(
    r"(?:^<!-- (?P<what>not run:|write|append to|add to) (?P<why>[^\n]+) -->\n)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$"
    r"|^<!-- code\n(?P<hidden>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)


class Block(NamedTuple):
    """One block. `language` is "" where the page names none; `line` is that of its first line of text."""

    language: str
    text: str
    line: int
    why_not: str  # the reason not to run it


def blocks(page: str) -> list[Block]:
    """All blocks of a page, hidden ones too, but for those of worked examples (`docs/worked_examples.py`).

    >>> blocks("Type:\\n<!-- not run: it installs -->\\n```bash\\npip install x\\n```\\n")
    [Block(language='bash', text='pip install x\\n', line=4, why_not='it installs')]
    """
    found = []
    for match in _BLOCK.finditer(page):
        if match["what"] not in (None, "not run:"):  # of a worked example
            continue
        hidden = match["hidden"]
        text = match["text"] if hidden is None else hidden
        line = page.count("\n", 0, match.start("text" if hidden is None else "hidden")) + 1
        found.append(Block("python" if hidden is not None else match["language"], text, line, match["why"] or ""))
    return found
