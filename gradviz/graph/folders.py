"""Paths without the folders of the machine that a graph was recorded on, for files that
are meant to be sent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator

from gradviz.graph.model import Graph, column
from gradviz.graph.records import SourceLine


def sources(graph: Graph) -> Iterator[SourceLine]:
    """Every line of code that made a node, each once or twice."""
    for name in ("source", "script_line"):
        yield from filter(None, dict.fromkeys(column(graph.nodes, name)))


def without_folders(graph: Graph) -> Callable[[str], str]:
    """Takes the folder of the user's own code, and those that packages are installed
    in, out of a text.

    >>> from gradviz.graph import Node
    >>> line = SourceLine(f"{os.sep}home{os.sep}ann{os.sep}train.py", 3)
    >>> without_folders(Graph((Node(0, "MulBackward0", source=line),)))(f"made in {line.file}:3")
    'made in train.py:3'
    """
    user_folders: set[str] = set()
    folders: set[str] = set()

    for source in sources(graph):
        folder, inside, _ = source.file.partition(f"{os.sep}{source.package}{os.sep}")
        if not source.package:
            user_folders.add(os.path.dirname(source.file))
        elif inside:
            folders.add(folder)

    roots = {folder for folder in user_folders if os.path.isabs(folder)}
    drives = {os.path.splitdrive(root)[0] for root in roots}
    if len(drives) == 1:
        folders.add(os.path.commonpath(roots))
    else:
        # paths on two drives of Windows have no folder in common
        folders |= roots
    longest = sorted(
        (folder + os.sep for folder in folders if folder.strip(os.sep)),
        key=len,
        reverse=True,
    )
    if not longest:
        return lambda text: text

    pattern = re.compile("|".join(map(re.escape, longest)))
    return lambda text: pattern.sub("", text)
