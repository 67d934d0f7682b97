"""Where the nodes of a recorded graph were placed."""

from __future__ import annotations

from gradviz.graph import Graph, Node


def place(graph: Graph, node: Node) -> tuple[str, int] | None:
    """Path and call of the module that made a node."""
    scope = graph.scopes[node.scope] if node.scope is not None else None
    return (scope.path, scope.call) if scope is not None else None


def places(graph: Graph, op: str) -> list[tuple[str, int] | None]:
    return [place(graph, node) for node in graph.nodes if node.op.startswith(op)]
