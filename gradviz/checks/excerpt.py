"""A line of code with the part of it that matters: what a compiler puts a caret under.

Columns come from the file, while that still says what ran; else from the text that was
noted.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size

from gradviz.graph import SourceLine
from gradviz.source.code_line import without_comment
from gradviz.wording import one_line


class Excerpt(NamedTuple):
    """A line of code with its indentation. `column` and `end_column` count its
    characters from 1, the end behind the last one.
    """

    file: str
    line: int
    text: str
    column: int
    end_column: int

    @property
    def part(self) -> str:
        """What the columns enclose."""
        return self.text[self.column - 1 : self.end_column - 1]


def excerpt(source: SourceLine | None, part: str = "") -> Excerpt | None:
    """The line with the columns of `part`, however it is spaced and quoted there; else
    of all its code. None when the text of the line is not known.

    >>> line = SourceLine("train.py", 7, "", "loss = torch.log(x).sum() + 1  # of the batch")
    >>> excerpt(line).part, excerpt(line, "torch.log( x )").part
    ('loss = torch.log(x).sum() + 1', 'torch.log(x)')
    """
    if source is None:
        return None
    linecache.checkcache(source.file)
    text, noted = linecache.getline(source.file, source.line).rstrip(), source.text
    if not text or noted.strip() not in ("", text.strip()):
        text = noted.strip()
    if not text.strip():
        return None

    code = without_comment(text) or text
    start, end = len(text) - len(text.lstrip()), len(code)
    spaced = r"\s*".join(map(re.escape, "".join(part.split())))
    pattern = re.sub("['\"]", "['\"]", spaced)
    # not the `x` of `exp`
    found = re.search(rf"(?<!\w){pattern}(?!\w)", code) if part else None
    if found is not None:
        start, end = found.span()
    return Excerpt(source.file, source.line, text, start + 1, end + 1)


def code_lines(code: Excerpt, width: int) -> Iterator[str]:
    """The line as compilers show it: its number, its code without the indentation, and
    carets under what matters, if that is not all of it.

    >>> print(*code_lines(Excerpt("train.py", 12, "    y = x.detach() * 2", 9, 19), 40), sep="\\n")
    12 | y = x.detach() * 2
       |     ^^^^^^^^^^
    """
    number = str(code.line)
    room = max(20, width - len(number) - 3)
    begin, end = code.column - 1, code.end_column - 1
    texts = code.text[:begin].lstrip(), code.part, code.text[end:]
    before, part, after = (one_line(text.expandtabs(1)) for text in texts)

    # what matters comes first where both do not fit
    if cell_len(before + part) > room:
        before = before and "…"
    line, left = before + part + after, room - cell_len(before)
    if cell_len(line) > room:
        line = f"{set_cell_size(line, room - 1).rstrip()}…"
    yield f"{number} | {line}".rstrip()
    if before or without_comment(after).strip():
        carets = "^" * min(cell_len(part), left)
        yield f"{'':{len(number)}} | {'':{cell_len(before)}}{carets}"
