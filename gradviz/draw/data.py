"""The formats that hold the whole graph for other programs, and no drawing of it: JSON and GraphML.

No option changes what is written: a saved graph keeps everything, and `graph.fold()` before it writes a smaller one.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import TYPE_CHECKING

from gradviz.graph.files import dump
from gradviz.graph.networkx import to_networkx
from gradviz.wording import visible

if TYPE_CHECKING:
    from gradviz.draw.options import Options
    from gradviz.graph import Graph


def render_json(graph: Graph, options: Options) -> Iterator[str]:
    """The whole graph, to load again, in pieces (`gradviz.graph.files`)."""
    return dump(graph)


def render_graphml(graph: Graph, options: Options) -> str:
    """XML of nodes, edges and the attributes that `gradviz.to_networkx` gives them, which Gephi, yEd and igraph read."""
    from networkx.readwrite.graphml import GraphMLWriter

    converted = to_networkx(graph)
    for attributes in (converted.graph, *converted.nodes.values()):
        attributes.update({name: escape(value) for name, value in attributes.items() if isinstance(value, str)})
    text = BytesIO()
    GraphMLWriter(converted).dump(text)
    return text.getvalue().decode("utf-8")


def escape(text: str) -> str:
    """Text as XML can hold it: what cannot be seen is written as its escape. The writer escapes `<` and `&`."""
    return visible(text, keep="\n")
