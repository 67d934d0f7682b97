"""What is said of the checks themselves: their catalogue, and a page each.

A check's docstring is its page: the documentation, `gradviz check --explain` and the
rules of a SARIF log are made from it.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

from gradviz.checks.output import WIDTH, wrapped
from gradviz.checks.registry import Check

INDENT = "  "
MEANING, EXAMPLE = "What it means", "Example"
SECTIONS = ("How it is found", "What to do", "When to ignore it")
"""How the paragraphs of a docstring begin that are sections of their own."""


def catalogue(every: tuple[Check, ...]) -> Iterator[str]:
    """What each check says that there is, with its id and severity."""
    column = max(len(check.id) for check in every) + 2
    for check in every:
        values = " (with --values)" if check.needs_values else ""
        title = f"{check.id:<{column}}{check.severity:<9}"
        yield from wrapped(title + check.summary + values, WIDTH, " " * len(title))


def page(check: Check) -> dict[str, str]:
    """What the docstring of a check says, by title: paragraphs with a blank line
    between, and a script that has the fault.

    >>> from gradviz.checks.registry import checks
    >>> no_graph = page(checks()[0])
    >>> "backward()" in no_graph["Example"] and no_graph["What to do"].startswith("Fix the line")
    True
    """
    docstring = inspect.getdoc(check.function) or ""
    text, _, example = docstring.partition("```python\n")
    meaning, *rest = re.split(rf"^({'|'.join(SECTIONS)}): *", text, flags=re.MULTILINE)
    sections = zip(rest[::2], map(str.strip, rest[1::2]))
    return {
        MEANING: meaning.strip(),
        EXAMPLE: example.partition("```")[0],
        **dict(sections),
    }


def page_lines(check: Check) -> Iterator[str]:
    """The page line by line, at most `WIDTH` wide but for the code."""
    values = ", with --values" if check.needs_values else ""
    yield f"{check.id}: {check.severity}{values}"
    yield from wrapped(INDENT + check.summary, WIDTH, INDENT)

    for title, text in page(check).items():
        yield from ("", title)
        if title == EXAMPLE:
            yield from ("", *textwrap.indent(text.rstrip(), INDENT).splitlines())
            continue
        for number, paragraph in enumerate(text.split("\n\n")):
            yield from [""] if number else []
            yield from wrapped(INDENT + " ".join(paragraph.split()), WIDTH, INDENT)
