"""What messages of torch's mean: one section each of the `.ini` files of this folder,
the sentence that a finding begins with above it.

`message`: patterns that the message has one of, one a line. `why` and `fix`: what is
said of it. `follows`: checks that say it more exactly. `find`: which lines have to
change, a name in `finders.FINDERS` with its arguments; then `fix there` takes the place
of `fix`, and such a line is written anew by `replace` (a pattern) and `by`, or by
`write` (a name in `finders.WRITERS`).

Groups of the pattern in braces are filled in, and so are {name} and {shape} of what
backward began at, {missing} and {code} for the tensor that was refused, {line} for what
failed, {at}, {text} and {new} for the lines that have to change.
"""

from __future__ import annotations

import re
from configparser import RawConfigParser, SectionProxy
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from gradviz.checks.words import Names


class Message(NamedTuple):
    """One of them; "" for what a section does not say."""

    summary: str
    pattern: str
    why: str
    fix: str
    follows: Names
    find: str
    fix_there: str
    replace: str
    by: str
    write: str


@cache
def messages(*topics: str) -> tuple[Message, ...]:
    """Those of these files, in their order."""
    # sentences have colons and percent signs of their own
    sections = RawConfigParser(delimiters=("=",))
    for topic in topics:
        text = (files(__package__) / f"{topic}.ini").read_text(encoding="utf-8")
        sections.read_string(text)
    return tuple(_message(sections[summary]) for summary in sections.sections())


def _message(section: SectionProxy) -> Message:
    def text(key: str) -> str:
        return " ".join(section.get(key, "").split())

    patterns = section["message"].split("\n")
    return Message(
        section.name,
        "|".join(filter(None, patterns)),
        text("why"),
        text("fix"),
        tuple(text("follows").split()),
        text("find"),
        text("fix there"),
        section.get("replace", ""),
        section.get("by", ""),
        text("write"),
    )


def understood(
    text: str, candidates: tuple[Message, ...]
) -> tuple[Message, dict[str, str]] | None:
    """The first message that a text is, with the groups of its pattern."""
    for message in candidates:
        # messages span lines, and the line that failed is appended to them
        match = re.search(message.pattern, text, re.DOTALL)
        if match is not None:
            return message, match.groupdict("")
    return None
