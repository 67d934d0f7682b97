"""Which module calls have the same structure, proven node by node and never by name.

Two calls are alike when their nodes, taken in the order they ran, have equal ops, output shapes and dtypes, equal places
among the inner modules, and the same wiring: every input comes from the node at the same place inside the call, from a
parameter of the same shape, or from outside.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gradviz.analysis.scopes import ScopeTree
from gradviz.graph import Graph

LEAST = 3
"""How many alike modules are worth joining: two are easier to read side by side."""


def structure(graph: Graph, tree: ScopeTree, scope: int) -> Hashable:
    """What makes a call alike another: equal values mean equal structure."""
    members = tree.members[scope]
    place = {node: i for i, node in enumerate(members)}
    return tuple(_node(graph, tree, scope, node, place) for node in members)


def _node(graph: Graph, tree: ScopeTree, scope: int, node: int, place: dict[int, int]) -> Hashable:
    record = graph.nodes[node]
    wiring = tuple(_input(graph, edge.producer, edge.output, edge.position, place) for edge in graph.inputs(node))
    return record.op, record.outputs, tree.relative(record.scope, scope), wiring


def _input(graph: Graph, producer: int, output: int, position: int, place: dict[int, int]) -> Hashable:
    inside = place.get(producer)
    if inside is not None:
        return inside, output, position
    leaf = graph.leaf_of.get(producer)
    return ("leaf", leaf.tensor, position) if leaf is not None else ("outside", position)


def alike_siblings(graph: Graph, tree: ScopeTree, siblings: Sequence[int]) -> list[list[int]]:
    """Sets of at least `LEAST` calls among `siblings` that are alike and of different modules, in order of their first nodes.

    A cheap comparison comes first, so that the proof is made only for calls that could be alike.
    """
    likely: dict[Hashable, list[int]] = {}
    for scope in siblings:
        if tree.members[scope]:
            likely.setdefault((tree.scopes[scope].type, len(tree.members[scope])), []).append(scope)
    found: list[list[int]] = []
    for candidates in likely.values():
        if len({tree.scopes[scope].path for scope in candidates}) >= LEAST:
            proven: dict[Hashable, list[int]] = {}
            for scope in candidates:
                proven.setdefault(structure(graph, tree, scope), []).append(scope)
            found.extend(same for same in proven.values() if len(same) >= LEAST)
    return found
