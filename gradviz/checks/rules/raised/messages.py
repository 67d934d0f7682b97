"""What messages of torch's mean: one section each of the `.ini` files of this folder,
the sentence that a finding begins with above it.

`message`: patterns that the message has one of, one a line. `why` and `fix`: what is
said of it. `follows`: checks that say it more exactly. `replace` (a pattern) and `by`:
how the line that has to change is written anew; where there is one, `fix there` takes
the place of `fix`. `find` = cut: it is the line that cut off the tensor; leaf: it is to
make a leaf.

Groups of the pattern in braces are filled in, and so are {name} and {shape} of what
backward began at, {missing} for the inputs that it does not depend on, {line} for what
failed, {at} and {new} for the line that has to change, {custom} for that of a custom Function.
"""

from __future__ import annotations

import re
from configparser import RawConfigParser, SectionProxy
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_KEYS = ("why", "fix", "follows", "find", "fix there", "replace", "by")


class Message(NamedTuple):
    """One of them; "" for what a section does not say."""

    summary: str
    pattern: str
    why: str
    fix: str
    follows: str
    find: str
    fix_there: str
    replace: str
    by: str


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
    patterns = section["message"].split("\n")
    texts = (" ".join(section.get(key, "").split()) for key in _KEYS)
    return Message(section.name, "|".join(filter(None, patterns)), *texts)


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
