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

    def as_data(self) -> dict[str, Any]:
        """For JSON. The file is relative to the current folder."""
        return {
            "file": short_path(self.source.file),
            "line": self.source.line,
            "old": self.source.text,
            "new": self.new,
        }


def instead(source: SourceLine | None, new: str) -> Edit | None:
    """`new` in place of a line of the user's; None where there is nothing to write, or
    no line that can be changed alone.
    """
    if not new or source is None or source.package or new == source.text:
        return None
    begins = new.endswith(f" = {source.text}")  # a statement of several lines
    alone = parsed(source) and parsed(source._replace(text=new))
    return Edit(source, new) if begins or alone else None


def before(source: SourceLine | None, statement: str) -> Edit | None:
    """A statement in front of a line."""
    if source is None or not statement:
        return None
    return instead(source, f"{statement}\n{source.text}")


def behind(source: SourceLine | None, statement: str) -> Edit | None:
    """A statement after a line that is no block."""
    if source is None or not statement:
        return None
    if source.text.endswith(":") or source.text.startswith("return"):
        return None
    return instead(source, f"{source.text}\n{statement}")


def together(edits: Sequence[Edit | None]) -> Edit | None:
    """The one change; None of several lines, which are no edit."""
    return edits[0] if len(edits) == 1 else None


def swapped(
    first: SourceLine | None,
    second: SourceLine | None,
) -> Edit | None:
    """Two lines in each other's place are no change of one."""
    return None
