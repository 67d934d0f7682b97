"""The JSON format's door for the registry; the format itself is `gradviz.graph.files`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradviz.graph.files import dump

if TYPE_CHECKING:
    from gradviz.draw.options import Options
    from gradviz.graph import Graph


def render(graph: Graph, options: Options) -> Iterator[str]:
    """The whole graph in pieces. No option changes what is written: a saved graph keeps everything."""
    return dump(graph)
