"""Graphs of one program as one graph, in which every node is once: the one matcher, and
the one numbering, of what compares graphs.

Ops are matched in the order of the forward pass: by path, class and number of the
module call, op and line, then whatever the line says, then whatever variable holds the
model; leaves by name. Nothing is the same that has another op. Knows nothing of torch.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gradviz.comparison.alignment import Pairs, align, trimmed
from gradviz.graph import Edge, Graph, Leaf, Node, Scope

Place = tuple[Any, ...]
"""Where an op belongs: its name, the call of a module, and what tells its line from
others.
"""

_LEAF: Place = ()


class View(NamedTuple):
    """A graph that is merged. `ops` are ids of nodes in the order of the forward pass,
    leaves left out; `content` is what a node computed, and of a leaf its kind and
    tensor.
    """

    graph: Graph
    ops: Sequence[int]
    place: Mapping[int, Place]
    content: Mapping[int, Hashable]


class Merging:
    """The merged graph while others are added to it. Nodes of the first graph keep
    their ids.
    """

    def __init__(self) -> None:
        self._first: Graph | None = None
        # what the first graph has not, in scopes of `_scopes`
        self._new_nodes: list[Node] = []
        self._new_leaves: list[Leaf] = []
        self._scopes: list[Scope] = []
        self._scope_of: dict[tuple[str, int], int] = {}
        self._place: list[Place] = []
        self._order: list[int] = []  # ops in the order of the forward pass
        self._leaf_named: dict[str, int] = {}
        # what else tells leaves, by id
        self._leaf_keys: dict[int, tuple[Hashable, Hashable]] = {}

    def merge(
        self,
        view: View,
    ) -> Mapping[int, int] | Sequence[int]:
        """One graph more. Gives the node here of each of its nodes."""
        if self._first is None:
            self._begin(view)
            return range(len(self._place))
        merged = self._ops(view)
        self._leaves(view, merged)
        return merged

    def _met(
        self,
        node: int,
        view: View,
        theirs: int,
    ) -> None:
        """Called where a node here is one of a graph that is added."""

    def _begin(self, view: View) -> None:
        self._first = view.graph
        self._scopes = list(view.graph.scopes)
        self._scope_of = {
            (scope.path, scope.call): i
            # of several with one path and number the first counts
            for i, scope in reversed(list(enumerate(self._scopes)))
        }
        self._place = [
            view.place.get(node, _LEAF) for node in range(len(view.graph.nodes))
        ]
        self._order = list(view.ops)
        for leaf in view.graph.leaf_of:
            self._name_leaf(leaf, view, leaf)

    def _ops(self, view: View) -> dict[int, int]:
        """The merged node of every op of a view. What is new takes its place among the
        others.
        """
        before, after = self._order, view.ops
        pairs = matched(
            [self._place[node] for node in before], [view.place[node] for node in after]
        )
        merged: dict[int, int] = {}
        order: list[int] = []
        i = j = 0

        for to_i, to_j in [*pairs, (len(before), len(after))]:
            order += before[i:to_i]
            for node in after[j:to_j]:
                # only the other graph has it
                merged[node] = self._new(view, node)
                order.append(merged[node])
            i, j = to_i + 1, to_j + 1
            if to_i < len(before):
                order.append(before[to_i])
                merged[after[to_j]] = before[to_i]
                self._met(before[to_i], view, after[to_j])

        self._order = order
        return merged

    def _leaves(
        self,
        view: View,
        merged: dict[int, int],
    ) -> None:
        """The same for leaves."""
        for leaf, same in self._same_leaves(view).items():
            if same is None:
                merged[leaf] = self._new(view, leaf)
                self._name_leaf(merged[leaf], view, leaf)
            else:
                merged[leaf] = same
                self._met(same, view, leaf)

    def _same_leaves(self, view: View) -> dict[int, int | None]:
        """By name; those that no name tells in their order, by what else does."""
        same: dict[int, int | None] = {}
        taken: set[int | None] = set()

        for leaf, record in view.graph.leaf_of.items():
            match = next(
                (
                    self._leaf_named[name]
                    for name in record.names
                    if name in self._leaf_named
                ),
                None,
            )
            # two leaves of one name: the second is matched by its place
            same[leaf] = match if match not in taken else None
            taken.add(match)

        unmatched = [leaf for leaf in self._leaf_keys if leaf not in taken]
        theirs = [leaf for leaf, match in same.items() if match is None]
        ours, others = (
            [self._leaf_keys[leaf] for leaf in unmatched],
            [_leaf_keys(view, leaf) for leaf in theirs],
        )

        if not (unmatched and theirs):
            return same

        pairs = align(
            [*zip(*ours)],
            [*zip(*others)],
        )
        return same | {theirs[j]: unmatched[i] for i, j in pairs}

    def _name_leaf(
        self,
        node: int,
        view: View,
        theirs: int,
    ) -> None:
        self._leaf_keys[node] = _leaf_keys(view, theirs)
        for name in view.graph.leaf_of[theirs].names:
            self._leaf_named.setdefault(name, node)

    def _new(self, view: View, theirs: int) -> int:
        new, record, leaf = (
            len(self._place),
            view.graph.nodes[theirs],
            view.graph.leaf_of.get(theirs),
        )
        if record.scope is None:
            scope = None
        else:
            scope = self._scope(view.graph.scopes, record.scope)

        # its slots name storages of the other graph
        self._new_nodes.append(
            record._replace(
                id=new,
                scope=scope,
                saved=(),
            )
        )
        if leaf is not None:
            self._new_leaves.append(
                leaf._replace(
                    node=new,
                    storage=None,
                    base=None,
                )
            )

        self._place.append(view.place.get(theirs, _LEAF))
        self._met(new, view, theirs)
        return new

    def _scope(self, theirs: Sequence[Scope], scope: int) -> int:
        """The number of another graph's scope here, where it and those around it are
        added if they are new.
        """
        path: list[Scope] = []
        current: int | None = scope

        while (
            current is not None
            and (theirs[current].path, theirs[current].call) not in self._scope_of
        ):
            path.append(theirs[current])
            current = theirs[current].parent

        if current is None:
            parent = None
        else:
            parent = self._scope_of[theirs[current].path, theirs[current].call]

        for outer in reversed(path):
            self._scopes.append(outer._replace(parent=parent))
            parent = self._scope_of[outer.path, outer.call] = len(self._scopes) - 1

        assert parent is not None
        return parent

    def graph(
        self,
        edges: Iterable[Edge],
        **changes: Any,
    ) -> Graph:
        """One graph of all nodes. What is not the first graph's has no saved tensors:
        its storages are of another graph.
        """
        first = self._first
        assert first is not None

        return replace(
            first,
            nodes=(*first.nodes, *self._new_nodes),
            edges=tuple(
                sorted(
                    edges,
                    key=lambda edge: (edge.consumer, edge.position),
                )
            ),
            leaves=(*first.leaves, *self._new_leaves),
            scopes=tuple(self._scopes),
            **changes,
        )


def matched(
    before: Sequence[Place],
    after: Sequence[Place],
) -> Pairs:
    """Positions of what stands in both. Most is the same, so equal beginnings and ends
    are taken off before anything else.

    >>> net, line = ("net", "Linear", 1), "y = net(x)"
    >>> matched([("Addmm", net, line), ("Sum", None, line)], [("Addmm", net, "y = net(2 * x)"), ("Exp", None, line)])
    [(0, 0)]
    """
    (a, b, c, d), pairs = trimmed(
        before,
        after,
        (0, len(before), 0, len(after)),
    )
    inner = align(
        _place_keys(before[a:b]),
        _place_keys(after[c:d]),
    )

    return sorted([*pairs, *((a + i, c + j) for i, j in inner)])


def _place_keys(side: Sequence[Place]) -> list[Sequence[Hashable]]:
    """The places, and less and less of each, by which they are told to be the same."""
    return [
        side,
        [place[:2] for place in side],
        list(map(_below, side)),
    ]


def _below(place: Place) -> Hashable:
    """A place without the variable that holds the model."""
    op, call, _ = place
    return op, call and (call[0].partition(".")[2], *call[1:])


def _leaf_keys(view: View, leaf: int) -> tuple[Hashable, Hashable]:
    """What tells a leaf from others beside its whole name: that below the variable of
    the model, with its tensor or its kind.
    """
    names, content = view.graph.leaf_of[leaf].names, view.content[leaf]
    name = names[0].partition(".")[2] or names[0] if names else ""
    return (name, content), (name, content[0])  # type: ignore[index]
