"""What a function is given: a Graph, or the tensors of one. Imports no torch."""

from __future__ import annotations

import sys

from gradviz.errors import NotATensorError
from gradviz.features import load
from gradviz.graph.model import Graph


def graph_of(value: object) -> Graph:
    """The graph itself; of tensors, or any nesting of them, their graph with the names
    that the caller of the function that asks has. Raises NotATensorError for others.
    """
    if isinstance(value, Graph):
        return value
    graph: Graph = load("gradviz.api:graph_behind")(value, sys._getframe(2))
    return graph


def refuse_graph(value: object, call: str) -> None:
    """Raises NotATensorError for a Graph, where live tensors are needed; `call` is what to
    write instead.
    """
    if isinstance(value, Graph):
        raise NotATensorError(
            f"{call.partition('(')[0]} needs the tensor, and a Graph holds none: gradviz.{call}"
        )
