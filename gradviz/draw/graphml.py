"""Writes GraphML: XML of nodes, edges and their attributes, which Gephi, yEd, Cytoscape, igraph and networkx read.

The attributes are those of `gradviz.to_networkx`, and networkx writes the file.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from gradviz.graph.networkx import to_networkx
from gradviz.wording import visible

if TYPE_CHECKING:
    from gradviz.draw.options import Options
    from gradviz.graph import Graph


def render(graph: Graph, options: Options) -> str:
    """The whole graph. No option changes what is written, as for JSON; `graph.fold()` before it writes a smaller one."""
    from networkx.readwrite.graphml import GraphMLWriter

    made = to_networkx(graph)
    for attributes in (made.graph, *made.nodes.values()):
        attributes.update({name: escape(value) for name, value in attributes.items() if isinstance(value, str)})
    text = BytesIO()
    GraphMLWriter(made).dump(text)
    return text.getvalue().decode("utf-8")


def escape(text: str) -> str:
    """Text as XML can hold it: what cannot be seen is written as its escape. The writer escapes `<` and `&`."""
    return visible(text, keep="\n")
