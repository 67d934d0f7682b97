"""How often inferred scopes are the recorded ones. Counts paths only: the number of the call is not to be inferred."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gradviz.graph import Graph


class Agreement(NamedTuple):
    same: int
    of: int
    wrong: tuple[str, ...]  # "AddBackward0: 'block.0' is recorded, 'block' is inferred"

    @property
    def share(self) -> float:
        return self.same / self.of if self.of else 1.0


def agreement(recorded: Graph, inferred: Graph) -> Agreement:
    """Of the nodes with a recorded scope, how many the inference put there. Both graphs are of the same outputs.

    Two things leave no trace in a graph that was not recorded, and do not count. A module none of whose parameters is in the
    graph, such as a ReLU, or one that is frozen: what it made counts as made by the module around it. And whether the
    model's own forward or the code around it made a node, as with a loss: the outermost module is the same as none.
    """
    assert [node.op for node in recorded.nodes] == [node.op for node in inferred.nodes]
    traced = {recorded.scopes[scope].path for leaf in recorded.leaves for scope in _around(recorded, leaf.node)}
    traced -= {scope.path for scope in inferred.scopes if scope.parent is None}
    wrong = []
    checked = 0
    for node in recorded.nodes:
        if node.scope is None:
            continue
        checked += 1
        told, guess = (_module(graph, node.id, traced) for graph in (recorded, inferred))
        if guess != told:
            wrong.append(f"{node.op}: {told!r} is recorded, {guess!r} is inferred")
    return Agreement(checked - len(wrong), checked, tuple(wrong))


def _module(graph: Graph, node: int, traced: set[str]) -> str:
    """The path of the innermost module around a node that left a trace, "" for the model itself and for what is outside."""
    return next((graph.scopes[scope].path for scope in _around(graph, node) if graph.scopes[scope].path in traced), "")


def _around(graph: Graph, node: int) -> Iterator[int]:
    """The scopes around a node, innermost first."""
    scope = graph.nodes[node].scope
    while scope is not None:
        yield scope
        scope = graph.scopes[scope].parent
