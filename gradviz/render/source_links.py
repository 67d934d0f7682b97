"""Addresses that open the line of code behind a box: in an editor, or as a file in the browser."""

from __future__ import annotations

import os
from urllib.parse import quote

from gradviz.graph import Node, SourceLine
from gradviz.render.options import LinkSource
from gradviz.render.scene import Box


def source_of(box: Box) -> SourceLine | None:
    """The line that made the box's node, else where its custom Function's backward is defined."""
    if not isinstance(box.about, Node):
        return None
    function = box.about.function
    return box.about.source or (function.definition if function is not None else None)


def source_link(box: Box, to: LinkSource) -> str:
    """The address for one box, "" where no line is known.

    >>> from gradviz.graph import Node, SourceLine
    >>> node = Node(0, "ExpBackward0", source=SourceLine("/code/my net.py", 7))
    >>> source_link(Box(0, "op", (), 0, node), "vscode")
    'vscode://file/code/my%20net.py:7'
    """
    source = source_of(box) if to != "none" else None
    if source is None or source.file.startswith("<"):  # code that was typed in has no file
        return ""
    path = quote(os.path.abspath(source.file).replace(os.sep, "/"))
    path = path if path.startswith("/") else f"/{path}"
    return f"vscode://file{path}:{source.line}" if to == "vscode" else f"file://{path}#L{source.line}"
