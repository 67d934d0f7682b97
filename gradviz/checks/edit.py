"""A change of the user's code as data: a line, and what to write in its place. Applies
none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from gradviz.checks.words import short_path
from gradviz.graph import SourceLine
from gradviz.source.code_line import out_of_place as out_of_place, parsed


class Edit(NamedTuple):
    """`new` takes the place of the code of line `source`: one line or several, indented
    as that line is.
    """

    source: SourceLine
    new: str
    # other lines of the file, further down, that change with it
    more: tuple[Edit, ...] = ()

    def as_data(self) -> dict[str, Any]:
        """For JSON. The file is relative to the current folder."""
        source, file = self.source, short_path(self.source.file)
        data = {
            "file": file,
            "line": source.line,
            "old": source.text,
            "new": self.new,
        }
        return data | (
            {"more": [one.as_data() for one in self.more]} if self.more else {}
        )

    def applied(self, text: str) -> str:
        """The text of the file with this change, unchanged where the line says
        something else by now.

        >>> Edit(SourceLine("a.py", 2, "f", "x = y"), "x = y.detach()\\nprint(x)").applied("if z:\\n  x = y\\n")
        'if z:\\n  x = y.detach()\\n  print(x)\\n'
        """
        for one in reversed(self.more):
            text = one.applied(text)
        lines = text.splitlines()
        at = self.source.line - 1
        if at < len(lines) and lines[at].strip() == self.source.text:
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            lines[at : at + 1] = [indent + line for line in self.new.splitlines()]
        return "\n".join(lines) + "\n"


def instead(source: SourceLine | None, new: str) -> Edit | None:
    """`new` in place of a line of the user's; None where there is nothing to write, or
    no line that can be changed alone.
    """
    if not new or source is None or source.package or new == source.text:
        return None
    begins = new.endswith(f" = {source.text}")  # a statement of several lines
    if not begins and not (parsed(source) and parsed(source._replace(text=new))):
        return None
    return Edit(source, new)


def together(edits: Sequence[Edit | None]) -> Edit | None:
    """Changes of several lines of a file as one; None where one of them is none."""
    every = sorted(
        (edit for edit in edits if edit is not None), key=lambda edit: edit.source.line
    )
    whole = len(every) == len(edits) and len({edit.source.file for edit in every}) == 1
    return every[0]._replace(more=tuple(every[1:])) if whole else None


def swapped(
    one: SourceLine | None,
    other: SourceLine | None,
) -> Edit | None:
    """Two lines of a function in each other's place."""
    if (
        one is None
        or other is None
        or one.line == other.line
        or one.function != other.function
    ):
        return None
    return together([instead(one, other.text), instead(other, one.text)])


def before(source: SourceLine | None, statement: str) -> Edit | None:
    """A statement in front of a line."""
    return instead(
        source,
        f"{statement}\n{source.text}" if source is not None and statement else "",
    )


def behind(source: SourceLine | None, statement: str) -> Edit | None:
    """A statement after a line that is no block."""
    simple = (
        source is not None
        and statement
        and not source.text.endswith(":")
        and not source.text.startswith("return")
    )
    return instead(
        source, f"{source.text}\n{statement}" if source is not None and simple else ""
    )
