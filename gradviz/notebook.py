"""What a notebook shows for a graph: the picture, and text for front ends that draw none.

Showing a graph never raises, since an error in a display hook hides what the cell made. When there is no picture, a
warning says why, and the text that is shown instead is marked. This module knows no format of its own.
"""

from __future__ import annotations

import warnings

from gradviz.draw.options import Options
from gradviz.draw.output import folded
from gradviz.draw.picture import picture
from gradviz.draw.svg import write
from gradviz.graph import Graph

MAX_NODES = 3_000  # a larger picture makes the notebook file and the browser slow


def mimebundle(graph: Graph, options: Options | None = None) -> dict[str, str]:
    """What to show for `graph`, by MIME type: an SVG as wide as the cell at most, folded as in a file, and text.

    >>> sorted(mimebundle(Graph()))
    ['image/svg+xml', 'text/plain']
    """
    options = options or Options()
    text = _text(graph)
    try:
        visible = graph
        if graph.original is None:  # one that the caller folded is shown as it is
            visible = folded(graph, options)
        if len(visible.nodes) > MAX_NODES:
            return {"text/plain": _marked(_too_many(len(visible.nodes)), text)}
        return {"image/svg+xml": "".join(write(picture(visible, options), options.theme, fit=True)), "text/plain": text}
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(f"gradviz could not draw this graph: {reason}", RuntimeWarning, stacklevel=2)
        return {"text/plain": _marked(reason, text)}


def _too_many(nodes: int) -> str:
    return f"{nodes:,} nodes are too many to show in a notebook. Write them to a file: graph.save('graph.svg')"


def _marked(reason: str, text: str) -> str:
    return f"[no picture: {reason}]\n\n{text}"


def _text(graph: Graph) -> str:
    """The summary, or the counts when even that fails."""
    try:
        return str(graph)
    except Exception:
        return f"Graph with {len(graph.nodes):,} nodes and {len(graph.edges):,} edges"
