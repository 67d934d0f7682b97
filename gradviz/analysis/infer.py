"""Guesses the modules of a graph that was not recorded, from who owns the parameters.

Knows only the graph: scopes of leaves must be there, as `gradviz.walk(loss, model=net)` writes them. What it finds is
marked `attribution="inferred"`: it tells which parameters an operation works with, not who called it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gradviz.analysis.scopes import ScopeTree
from gradviz.graph import Edge, Graph, Node

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


class _Inference:
    """One graph. Scopes are ids, None means none."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._tree = ScopeTree(graph)
        self._common: dict[frozenset[int], int | None] = {}

    def scopes(self) -> list[int | None]:
        owned = self._owned()
        before, after = self._spread(owned, up=True), self._spread(owned, up=False)
        for node in self._graph.nodes:
            i = node.id
            if owned[i] is None and i not in self._graph.leaf_of and None not in (before[i], after[i]):
                owned[i] = self.common((before[i], after[i]))
        return owned

    def _owned(self) -> list[int | None]:
        """Scopes of the leaves, of the views of one, and of the operations that consume either."""
        nodes = self._graph.nodes
        owned: list[int | None] = [node.scope for node in nodes]
        parameter = [node.id in self._graph.leaf_of and node.scope is not None for node in nodes]
        for i in reversed(self._graph.order):
            inputs = self._graph.inputs(i)
            found = [owned[edge.producer] for edge in inputs if parameter[edge.producer]]
            if found:
                owned[i] = self.common(found)
                parameter[i] = _is_view(nodes[i], inputs)
        return owned

    def _spread(self, owned: list[int | None], up: bool) -> list[int | None]:
        """For each node its scope, else what is around the scopes of the nodes nearest to it on one side.

        `up` looks at what a node was computed from, else at what was computed from it.
        """
        found = list(owned)
        for i in reversed(self._graph.order) if up else self._graph.order:
            if found[i] is None:
                near = (
                    [e.producer for e in self._graph.inputs(i)]
                    if up
                    else [e.consumer for e in self._graph.consumers(i)]
                )
                found[i] = self.common(found[j] for j in near)
        return found

    def common(self, scopes: Iterable[int | None]) -> int | None:
        """The innermost scope around all that are known; None when there is none, or none is known."""
        key = frozenset(scope for scope in scopes if scope is not None)
        if key not in self._common:
            self._common[key] = self._tree.common(set(key))
        return self._common[key]


def _is_view(node: Node, inputs: tuple[Edge, ...]) -> bool:
    return node.op in _VIEWS and len(inputs) == 1
