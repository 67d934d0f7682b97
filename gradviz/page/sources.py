"""The reader's own code, for the page's Code tab.

Reads no file: code is what this process has read of it for the lines of the graph, so
that no graph file from elsewhere can name a file to be sent. Where that is nothing, or
is another version, the lines that the graph has are all.
"""

from __future__ import annotations

import linecache
import os
from pathlib import Path

from gradviz.graph import Graph
from gradviz.graph.folders import sources
from gradviz.wording import file_text, one_line

MOST = 400_000
"""Characters of one file; of a longer one only the lines that the graph has."""

Code = tuple[str, list[int], list[str], str]
"""A file, the numbers of its lines, the lines, and why they are not all."""


def own_code(graph: Graph) -> list[Code]:
    """Files of the user's own code that made nodes of the graph, in the order of their
    names.
    """
    texts_of: dict[str, dict[int, str]] = {}
    for source in sources(graph):
        if not source.package:
            texts_of.setdefault(source.file, {})[source.line] = one_line(
                source.text.strip()
            )

    found: list[Code] = []
    for file, texts in sorted(texts_of.items()):
        lines, missing = _read(file, texts)
        found.append(
            (
                file_text(file),
                sorted(lines),
                [lines[number] for number in sorted(lines)],
                missing,
            )
        )

    return found


def editor_paths(graph: Graph) -> list[tuple[str, list[str]]]:
    """The whole path of each file with code of the graph, in parts: so the folders stay
    where a page loses those of the machine.
    """
    files = {source.file for source in sources(graph)}
    paths = {file: Path(os.path.abspath(file)) for file in sorted(files)}
    return [
        (file_text(file), path.as_posix().lstrip("/").split("/"))
        for file, path in paths.items()
        if path.is_file()
    ]


def _read(file: str, recorded: dict[int, str]) -> tuple[dict[int, str], str]:
    """All lines of a file that was read, if they are those that the graph was told of;
    else these, and why.
    """
    # getlines() alone would read any file that a graph file names
    lines = linecache.getlines(file) if file in linecache.cache else []
    current = {
        number: one_line(line.rstrip().expandtabs(4))
        for number, line in enumerate(lines, 1)
    }
    if not lines:
        return recorded, "a saved graph has no more of the code"
    if any(
        current.get(number, "").strip() != text for number, text in recorded.items()
    ):
        return recorded, "the file has changed since"
    if sum(map(len, lines)) <= MOST:
        return (current, "")

    return (recorded, f"the file has more than {MOST:,} characters")
