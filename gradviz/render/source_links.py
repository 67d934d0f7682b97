"""Addresses that open the line of code behind a box: in an editor, or as a file in the browser."""

from __future__ import annotations

import os
from urllib.parse import quote

from gradviz.graph import Node
from gradviz.render.options import LinkSource


def source_link(about: object, to: LinkSource) -> str:
    """The address of the line that made a node, else of where its custom Function's backward is defined.

    "" for a box that draws no node, and where no line is known.

    >>> from gradviz.graph import Node, SourceLine
    >>> node = Node(0, "ExpBackward0", source=SourceLine("/code/my net.py", 7))
    >>> source_link(node, "vscode")
    'vscode://file/code/my%20net.py:7'
    """
    if to == "none" or not isinstance(about, Node):
        return ""
    source = about.source or (about.function.definition if about.function is not None else None)
    if source is None or source.file.startswith("<"):  # code that was typed in has no file
        return ""
    path = quote(_bytes(os.path.abspath(source.file).replace(os.sep, "/")))
    path = path if path.startswith("/") else f"/{path}"
    return f"vscode://file{path}:{source.line}" if to == "vscode" else f"file://{path}#L{source.line}"


def _bytes(path: str) -> bytes:
    """The path as the file system has it: a name there need not be UTF-8."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # no file has such a name
        return path.encode("utf-8", "replace")
