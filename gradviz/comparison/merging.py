"""Graphs of one program as one graph, in which every node is once: the one matcher, and
the one numbering, of what compares graphs.

Ops are matched in the order of the forward pass: by path, class and number of the
module call, op and line, then whatever the line says, then whatever variable holds the
model; leaves by name. Nothing is the same that has another op. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gradviz.comparison.alignment import Pair, align
from gradviz.graph import Edge, Graph, Leaf, Node, Scope
from gradviz.graph.amounts import forward_order

Place = tuple[Any, ...]
"""Where an op belongs: its name, the call of a module, and what tells its line from
others.
"""


class Merging:
    """The merged graph while others are added to it. Nodes of the first graph keep
    their ids.

    Modules tell ops apart unless `scopes` is False, where a graph knows none.
    """

    def __init__(self, scopes: bool = True) -> None:
        self._has_scopes = scopes
        self._first: Graph | None = None
        # what the first graph has not, in scopes of `_scopes`
        self._new_nodes: list[Node] = []
        self._new_leaves: list[Leaf] = []
        self._scopes: list[Scope] = []
        self._scope_of: dict[tuple[str, int], int] = {}
        self._order: list[int] = []  # ops in the order of the forward pass
        self._places: dict[int, Place] = {}  # of ops
        self._leaves: dict[int, Leaf] = {}
        self._leaf_named: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._places) + len(self._leaves)

    def merge(self, graph: Graph) -> Mapping[int, int] | Sequence[int]:
        """One graph more. Gives the node here of each of its nodes."""
        ops = [node for node in forward_order(graph) if node not in graph.leaf_of]
        if self._first is not None:
            merged = self._merge_ops(graph, ops)
            self._merge_leaves(graph, merged)
            return merged

        self._first, self._order = graph, ops
        self._scopes = list(graph.scopes)
        for i, scope in enumerate(self._scopes):
            # of several with one path and number the first counts
            self._scope_of.setdefault((scope.path, scope.call), i)
        self._places = {node: self._place(graph, node) for node in ops}
        for node, leaf in graph.leaf_of.items():
            self._add_leaf(node, leaf)
        return range(len(graph.nodes))

    def _place(self, graph: Graph, number: int) -> Place:
        node = graph.nodes[number]
        call = None
        if self._has_scopes and node.scope is not None:
            call = graph.scopes[node.scope][:3]  # path, type and number
        return node.op, call, (node.names, node.source and node.source.text)

    def _merge_ops(self, graph: Graph, after: Sequence[int]) -> dict[int, int]:
        """The merged node of every op of a graph. What is new takes its place among the
        others.
        """
        before = self._order
        places = [self._place(graph, node) for node in after]
        pairs = matched([self._places[node] for node in before], places)
        merged: dict[int, int] = {}
        order: list[int] = []
        i = j = 0

        for to_i, to_j in [*pairs, (len(before), len(after))]:
            order += before[i:to_i]
            for theirs in range(j, to_j):
                # only the other graph has it
                node = self._new(graph, after[theirs])
                self._places[node] = places[theirs]
                merged[after[theirs]] = node
                order.append(node)
            i, j = to_i + 1, to_j + 1
            if to_i < len(before):
                order.append(before[to_i])
                merged[after[to_j]] = before[to_i]

        self._order = order
        return merged

    def _merge_leaves(self, graph: Graph, merged: dict[int, int]) -> None:
        """The same for leaves: by name, then those that no name tells in their order,
        by what else does.
        """
        taken: set[int] = set()
        unnamed: list[int] = []
        for theirs, leaf in graph.leaf_of.items():
            named = [self._leaf_named.get(name) for name in leaf.names]
            match = next((node for node in named if node is not None), None)
            # two leaves of one name: the second is matched by its place
            if match is None or match in taken:
                unnamed.append(theirs)
            else:
                merged[theirs] = match
                taken.add(match)

        ours = [node for node in self._leaves if node not in taken]
        pairs = align(
            _leaf_keys(self._leaves[node] for node in ours),
            _leaf_keys(graph.leaf_of[theirs] for theirs in unnamed),
        )
        merged |= {unnamed[j]: ours[i] for i, j in pairs}
        for theirs in unnamed:
            if theirs not in merged:
                node = merged[theirs] = self._new(graph, theirs)
                # its storage is of the other graph
                leaf = graph.leaf_of[theirs]._replace(
                    node=node, storage=None, base=None
                )
                self._new_leaves.append(leaf)
                self._add_leaf(node, leaf)

    def _add_leaf(self, node: int, leaf: Leaf) -> None:
        self._leaves[node] = leaf
        for name in leaf.names:
            self._leaf_named.setdefault(name, node)

    def _new(self, graph: Graph, theirs: int) -> int:
        record = graph.nodes[theirs]
        scope = self._scope(graph.scopes, record.scope)
        # its slots name storages of the other graph
        record = record._replace(id=len(self), scope=scope, saved=())
        self._new_nodes.append(record)
        return record.id

    def _scope(self, theirs: Sequence[Scope], number: int | None) -> int | None:
        """The number of another graph's scope here, where it and those around it are
        added if they are new.
        """
        if number is None:
            return None
        scope = theirs[number]
        key = scope.path, scope.call
        if key not in self._scope_of:
            parent = self._scope(theirs, scope.parent)
            self._scope_of[key] = len(self._scopes)
            self._scopes.append(scope._replace(parent=parent))
        return self._scope_of[key]

    def graph(self, edges: Iterable[Edge], **changes: Any) -> Graph:
        """One graph of all nodes. What is not the first graph's has no saved tensors:
        its storages are of another graph.
        """
        first = self._first
        assert first is not None
        by_place = sorted(edges, key=lambda edge: (edge.consumer, edge.position))

        return replace(
            first,
            nodes=(*first.nodes, *self._new_nodes),
            edges=tuple(by_place),
            leaves=(*first.leaves, *self._new_leaves),
            scopes=tuple(self._scopes),
            **changes,
        )


def matched(before: Sequence[Place], after: Sequence[Place]) -> list[Pair]:
    """Positions of what stands in both.

    >>> net, line = ("net", "Linear", 1), "y = net(x)"
    >>> matched([("Addmm", net, line), ("Sum", None, line)], [("Addmm", net, "y = net(2 * x)"), ("Exp", None, line)])
    [(0, 0)]
    """
    return align(_place_keys(before), _place_keys(after))


def _place_keys(side: Sequence[Place]) -> list[Sequence[Hashable]]:
    """The places, and less and less of each, by which they are told to be the same."""
    return [side, [place[:2] for place in side], list(map(_below, side))]


def _below(place: Place) -> Hashable:
    """A place without the variable that holds the model."""
    op, call, _ = place
    return op, call and (call[0].partition(".")[2], *call[1:])


def _leaf_keys(leaves: Iterable[Leaf]) -> list[Sequence[Hashable]]:
    """What tells leaves from others beside their whole names: that below the variable of
    the model, with their tensors or their kinds.
    """
    keys: list[tuple[Hashable, ...]] = []
    for leaf in leaves:
        name = leaf.names[0].partition(".")[2] or leaf.names[0] if leaf.names else ""
        keys.append((name, leaf.kind, leaf.tensor.shape, leaf.tensor.dtype))
    return [keys, [key[:2] for key in keys]]
