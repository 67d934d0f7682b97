"""Guesses the modules of a graph that was not recorded, from who owns the parameters.

Knows only the graph: scopes of leaves must be there, as `gradviz.walk(loss, model=net)` writes them. What it finds is
marked `attribution="inferred"`: it tells which parameters an operation works with, not who called it.
"""

from __future__ import annotations

from dataclasses import replace

from gradviz.analysis.scopes import ScopeTree
from gradviz.graph import Graph

_SAME_VALUES = (
    "T", "Transpose", "Permute", "View", "UnsafeView", "ReshapeAlias", "Expand", "Unsqueeze", "Squeeze", "Select", "Slice",
    "Split", "SplitWithSizes", "UnsafeSplit", "Unbind", "Chunk", "AsStrided", "Alias", "Clone", "ToCopy",
)  # fmt: skip
_VIEWS = frozenset(f"{name}Backward{number}" for name in _SAME_VALUES for number in range(6))
"""Operations that hand a parameter on in another shape, layout or type: what consumes them consumes the parameter."""


def infer_scopes(graph: Graph) -> Graph:
    """The same graph with a scope for each operation where the parameters tell one.

    An operation belongs to the module that owns the parameters it consumes, directly or through views; with parameters of
    several modules, to the innermost module around all of them. An operation without parameters lies between others: it
    belongs to the innermost module around those before and those after it. Where one side has none, as before the first
    layer and in a loss, it belongs to no module.

    A graph that was recorded, or whose leaves have no scope, is returned as it is.

    >>> from gradviz.graph import Edge, Graph, Node, Scope
    >>> scopes = (Scope("", "Net", 1, None), Scope("fc", "Linear", 1, 0))
    >>> nodes = (Node(0, "AddmmBackward0"), Node(1, "TBackward0"), Node(2, "AccumulateGrad", scope=1))
    >>> graph = Graph(nodes=nodes, edges=(Edge(0, 1, 0, 2), Edge(1, 2, 0, 0)), scopes=scopes)
    >>> [node.scope for node in infer_scopes(graph).nodes]
    [1, 1, 1]
    """
    if graph.attribution == "recorded" or not graph.scopes:
        return graph
    scopes = _Inference(graph).scopes()
    nodes = tuple(
        node if node.scope == scope else node._replace(scope=scope) for node, scope in zip(graph.nodes, scopes)
    )
    return replace(graph, nodes=nodes, attribution="inferred")


_SEVERAL = -1  # modules that nothing contains


class _Inference:
    """One graph. Scopes are ids, None means that no parameter tells."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tree = ScopeTree(graph)
        self._around: dict[tuple[int, int], int] = {}

    def scopes(self) -> list[int | None]:
        """The scope of each node."""
        owned, before = self._from_the_leaves()
        return [scope if scope != _SEVERAL else None for scope in self._from_the_roots(owned, before)]

    def _from_the_leaves(self) -> tuple[list[int | None], list[int | None]]:
        """Scopes of the leaves, of the views of one, and of the operations that consume either; and for every node what is
        around the owned nodes that it was computed from."""
        nodes, join = self._graph.nodes, self._join
        owned: list[int | None] = [node.scope for node in nodes]
        before = list(owned)
        parameter = [scope is not None for scope in owned]
        for i in reversed(self._graph.order):
            inputs = self._graph.inputs(i)
            if not inputs:
                continue
            mine = earlier = None
            for edge in inputs:
                if parameter[edge.producer]:
                    mine = join(mine, owned[edge.producer])
                else:
                    earlier = join(earlier, before[edge.producer])
            if mine is not None:
                owned[i] = before[i] = mine
                parameter[i] = len(inputs) == 1 and nodes[i].op in _VIEWS
            else:
                before[i] = earlier
        return owned, before

    def _from_the_roots(self, owned: list[int | None], before: list[int | None]) -> list[int | None]:
        """With scopes for the nodes between owned ones: around what came before and what comes after."""
        join, scopes = self._join, list(owned)
        after: list[int | None] = [None] * len(scopes)
        for i in self._graph.order:
            inputs = self._graph.inputs(i)
            if owned[i] is not None:
                after[i] = owned[i]
            elif inputs and before[i] is not None and after[i] is not None:
                scopes[i] = join(before[i], after[i])
            later = after[i]
            for edge in inputs:
                after[edge.producer] = join(after[edge.producer], later)
        return scopes

    def _join(self, one: int | None, other: int | None) -> int | None:
        """The innermost scope around both; the other where one is unknown."""
        if one == other or other is None:
            return one
        if one is None or other == _SEVERAL:
            return other
        if one == _SEVERAL:
            return one
        found = self._around.get((one, other))
        if found is None:
            common = self._tree.common({one, other})
            found = self._around[one, other] = _SEVERAL if common is None else common
        return found
