"""The page of a graph inside a notebook: a frame that holds the whole file and may do nothing but run its own script."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

from gradviz.draw.options import Options
from gradviz.draw.output import render
from gradviz.graph import Graph


@dataclass(frozen=True)
class Shown:
    """What a notebook displays. `page` is the whole HTML file, `height` that of the frame in pixels."""

    page: str
    height: int
    summary: str

    def _repr_html_(self) -> str:
        frame = f'width="100%" height="{self.height}" style="border:1px solid #8884;border-radius:6px"'
        return f'<iframe sandbox="allow-scripts allow-downloads allow-modals" {frame} srcdoc="{html.escape(self.page)}"></iframe>'

    def __repr__(self) -> str:
        return self.summary


def show(graph: Graph, *, height: int = 640, **options: Any) -> Shown:
    """The interactive page of a graph, as the last expression of a notebook's cell.

    Args:
        graph: any Graph.
        height: of the frame, in pixels.
        options: those of `Graph.save`, such as `depth="all"` and `theme="dark"`.

    Raises FormatError for an unknown option.

    >>> from gradviz.graph import Graph, Node
    >>> shown = show(Graph(nodes=(Node(0, "AddBackward0"),)))
    >>> shown._repr_html_().startswith('<iframe sandbox="allow-scripts')
    True
    """
    page = render(graph, "html", Options.of(options))
    assert isinstance(page, str)
    return Shown(page, height, str(graph))
