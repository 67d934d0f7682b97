"""The output formats: one row each. Choices, suffixes, help and error texts all derive from these rows.

A renderer is imported when it is first used. This module knows no renderer, only where it is.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

from gradviz.errors import FormatError, did_you_mean

if TYPE_CHECKING:
    from gradviz.draw.options import Options
    from gradviz.graph import Graph

Renderer = Callable[["Graph", "Options"], "str | bytes | Iterator[str]"]
"""What a row's `target` names. Large outputs come as an iterator of pieces."""


class Format(NamedTuple):
    """One output format. `target` is `module:attribute`; the first suffix is the one to propose.

    A `folded` format is a picture for a person: it draws the graph that `fold` makes of the one it is given.
    """

    name: str
    suffixes: tuple[str, ...]
    help: str
    binary: bool
    target: str
    folded: bool

    def load(self) -> Renderer:
        """The function that renders this format."""
        module, _, attribute = self.target.partition(":")
        return cast(Renderer, getattr(importlib.import_module(module), attribute))


_ROWS = (
    Format("svg", (".svg",), "picture for browsers and documents", False, "gradviz.draw.svg:render", True),
    Format("png", (".png",), "picture in pixels", True, "gradviz.draw.raster:render_png", True),
    Format("pdf", (".pdf",), "picture for print", True, "gradviz.draw.raster:render_pdf", True),
    Format("dot", (".dot", ".gv"), "source for your own Graphviz", False, "gradviz.draw.dot:render", True),
    Format(
        "html",
        (".html", ".htm"),
        "page that opens, explains and plays the graph",
        False,
        "gradviz.page.html:render",
        True,
    ),
    Format("txt", (".txt",), "tree in plain text", False, "gradviz.draw.tree:render_text", False),
    Format("md", (".md",), "Mermaid flowchart in Markdown", False, "gradviz.draw.mermaid:render", True),
    Format(
        "graphml",
        (".graphml",),
        "nodes and edges for other graph tools",
        False,
        "gradviz.draw.data:render_graphml",
        False,
    ),
    Format("json", (".json",), "the whole graph, to load again", False, "gradviz.draw.data:render_json", False),
)
FORMATS: dict[str, Format] = {row.name: row for row in _ROWS}


def listed(pictures: bool = False) -> str:
    """The names of all formats, or of the pictures among them, as a sentence has them.

    >>> listed(pictures=True)
    'svg, png, pdf, dot, html or md'
    """
    *names, last = [row.name for row in _ROWS if row.folded or not pictures]
    return f"{', '.join(names)} or {last}"


def get_format(name: str) -> Format:
    """The format of that name. Raises FormatError that lists the valid names."""
    if name in FORMATS:
        return FORMATS[name]
    hint = did_you_mean(name, FORMATS)
    near = f" {hint}" if hint.startswith("Did you") else ""
    raise FormatError(f"there is no format {name!r}. The formats are: {', '.join(FORMATS)}.{near}")


def format_of(path: str | os.PathLike[str]) -> Format:
    """The format that a file's suffix stands for, in upper or lower case. Raises FormatError with the valid ones."""
    name = os.fspath(path)
    suffix = os.path.splitext(name)[1].lower()
    for row in FORMATS.values():
        if suffix in row.suffixes:
            return row
    known = ", ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)
    problem = (
        f"the suffix {suffix!r} of {name!r} names no format" if suffix else f"{name!r} has no suffix to pick a format"
    )
    raise FormatError(f"{problem}. The suffixes are: {known}.")
