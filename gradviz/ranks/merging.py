"""Merges the graphs of several ranks into one, a rank at a time: time grows with the nodes of all, memory with those that differ.

Ops are matched in the order of the forward pass by where they stand, leaves by name. Knows nothing of torch and of files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from gradviz.comparison.alignment import align, trimmed
from gradviz.errors import GraphFileError
from gradviz.graph import Edge, Graph, Leaf, Node, Process, Scope
from gradviz.rank import Ranks
from gradviz.ranks.rank_diff import RankDiff, Varying, marks, shares, summary, title_of
from gradviz.ranks.view import Ends, Place, View, Ways, in_words

WaysOf = Callable[[int], Ways]


class Merging:
    """The merged graph while ranks are added to it.

    Ranks known to be equal are one class, and a set of classes is a number with a bit for each, so that sets cost nothing. Nodes
    of the first graph keep their ids.
    """

    def __init__(self) -> None:
        self._classes: list[list[int]] = []
        self._first: Graph | None = None
        self._new_nodes: list[Node] = []  # what the first rank has not, in scopes of `_scopes`
        self._new_leaves: list[Leaf] = []
        self._scopes: list[Scope] = []
        self._scope_of: dict[tuple[str, int], int] = {}
        self._having: list[int] = []
        self._place: list[Place] = []  # an empty one for a leaf
        self._content: list[Hashable] = []
        self._other: dict[int, dict[Hashable, int]] = {}  # node -> contents unlike that of the first, and who has them
        self._order: list[int] = []  # ops in the order of the forward pass
        self._leaf_named: dict[str, int] = {}
        self._leaf_unnamed: dict[Hashable, list[int]] = {}
        self._edges: dict[Ends, int] = {}
        self._saved: dict[int, int] = {}
        self._processes: dict[int, Process] = {}

    def add(self, rank: int, view: View) -> None:
        """One rank more. Raises GraphFileError when it is there already."""
        self._enter(rank, view.saved, view.process)
        self._classes.append([rank])
        self._add(view)

    def _add(self, view: View) -> None:
        bit = 1 << len(self._classes) - 1
        ways = view.ways

        def ways_of(node: int) -> Ways:
            return ((view.content[node], bit),) if ways is None else ways(node)

        if bit == 1:
            self._begin(view)
            merged: Mapping[int, int] | Sequence[int] = range(len(self._having))
        else:
            merged = self._leaves(ways_of, view, self._ops(ways_of, view))
        for edge in view.edges:
            ends = merged[edge[0]], merged[edge[1]], edge[2], edge[3]
            self._edges[ends] = self._edges.get(ends, 0) | (bit if view.having is None else view.having(edge))

    def absorb(self, other: Merging) -> None:
        """All that was added to another merging. Raises GraphFileError for a rank that is in both."""
        if not self._classes:
            self.__dict__.update(other.__dict__)
        if self._first is other._first:
            return
        for rank, saved in other._saved.items():
            self._enter(rank, saved, other._processes.get(rank))
        shift = len(self._classes)
        self._classes += other._classes
        first = other._first
        assert first is not None
        count = len(first.nodes)
        leaves = [*first.leaves, *other._new_leaves]
        self._add(
            View(
                None,
                0,
                lambda: first,
                lambda i: first.nodes[i] if i < count else other._new_nodes[i - count],
                {leaf.node: leaf for leaf in leaves}.get,
                other._scopes,
                other._order,
                dict(enumerate(other._place)),
                dict(enumerate(other._content)),
                {leaf.node: leaf.names for leaf in leaves},
                list(other._edges),
                lambda node: [(content, bits << shift) for content, bits in other._ways(node) if bits],
                lambda ends: other._edges[ends] << shift,
            )
        )

    def add_equal(self, rank: int, like: int, process: Process | None) -> None:
        """One rank more, whose graph is known to equal that of rank `like`."""
        self._enter(rank, self._saved[like], process)
        next(ranks for ranks in self._classes if like in ranks).append(rank)

    def _enter(self, rank: int, saved: int, process: Process | None) -> None:
        if rank in self._saved:
            raise GraphFileError(f"there are two graphs of rank {rank}: give each rank's file once.")
        self._saved[rank] = saved
        if process is not None:
            self._processes[rank] = process

    # -- matching ------------------------------------------------------------------------------------------------------

    def _begin(self, view: View) -> None:
        count = len(view.ops) + len(view.leaves)
        self._first = view.graph()
        self._scopes = list(view.scopes)
        self._scope_of = {(scope.path, scope.call): i for i, scope in reversed(list(enumerate(self._scopes)))}
        self._having = [1] * count
        self._place = [view.place.get(node, ()) for node in range(count)]
        self._content = [view.content[node] for node in range(count)]
        self._order = list(view.ops)
        for leaf, names in view.leaves.items():
            self._name_leaf(leaf, names)

    def _ops(self, ways_of: WaysOf, view: View) -> dict[int, int]:
        """The merged node of every op of a view. What is new takes its place among the others."""
        before, after = self._order, view.ops
        pairs = _pairs([self._place[node] for node in before], [view.place[node] for node in after])
        merged: dict[int, int] = {}
        order: list[int] = []
        i = j = 0
        for to_i, to_j in [*pairs, (len(before), len(after))]:
            order += before[i:to_i]
            for node in after[j:to_j]:
                merged[node] = self._new(ways_of(node), view, node)
                order.append(merged[node])
            i, j = to_i + 1, to_j + 1
            if to_i < len(before):
                order.append(before[to_i])
                merged[after[to_j]] = before[to_i]
                self._met(before[to_i], ways_of(after[to_j]))
        self._order = order
        return merged

    def _leaves(self, ways_of: WaysOf, view: View, merged: dict[int, int]) -> dict[int, int]:
        """The same for leaves, in addition to those that are merged already."""
        used: dict[Hashable, int] = {}
        taken: set[int] = set()
        for leaf, names in view.leaves.items():
            known = next((self._leaf_named[name] for name in names if name in self._leaf_named), None)
            if not names:
                content = view.content[leaf]
                alike = self._leaf_unnamed.get(content, [])
                place = used[content] = used.get(content, -1) + 1
                known = alike[place] if place < len(alike) else None
            if known is None or known in taken:
                known = self._new(ways_of(leaf), view, leaf)
                self._name_leaf(known, names)
            else:
                self._met(known, ways_of(leaf))
            taken.add(known)
            merged[leaf] = known
        return merged

    def _name_leaf(self, node: int, names: tuple[str, ...]) -> None:
        for name in names:
            self._leaf_named.setdefault(name, node)
        if not names:
            self._leaf_unnamed.setdefault(self._content[node], []).append(node)

    def _new(self, ways: Ways, view: View, node: int) -> int:
        new, record, leaf = len(self._having), view.node(node), view.leaf(node)
        scope = None if record.scope is None else self._scope(view.scopes, record.scope)
        self._new_nodes.append(record._replace(id=new, scope=scope, saved=()))
        if leaf is not None:
            self._new_leaves.append(leaf._replace(node=new, storage=None, base=None))
        self._having.append(0)
        self._place.append(view.place.get(node, ()))
        self._content.append(ways[0][0])
        self._met(new, ways)
        return new

    def _scope(self, theirs: Sequence[Scope], scope: int) -> int:
        """The number of another graph's scope here, where it and those around it are added if they are new."""
        path: list[Scope] = []
        here: int | None = scope
        while here is not None and (theirs[here].path, theirs[here].call) not in self._scope_of:
            path.append(theirs[here])
            here = theirs[here].parent
        parent = None if here is None else self._scope_of[theirs[here].path, theirs[here].call]
        for around in reversed(path):
            self._scopes.append(around._replace(parent=parent))
            parent = self._scope_of[around.path, around.call] = len(self._scopes) - 1
        assert parent is not None
        return parent

    def _met(self, node: int, ways: Ways) -> None:
        for content, bits in ways:
            self._having[node] |= bits
            if content != self._content[node]:
                others = self._other.setdefault(node, {})
                others[content] = others.get(content, 0) | bits

    def _ways(self, node: int) -> Ways:
        """Who has a node with which content, the first one's content first."""
        others = self._other.get(node, {})
        rest = self._having[node]
        for bits in others.values():
            rest &= ~bits
        return [(self._content[node], rest), *others.items()]

    # -- the result ----------------------------------------------------------------------------------------------------

    def result(self) -> RankDiff:
        """Everything that was added. Raises GraphFileError when that was nothing."""
        if not self._classes:
            raise GraphFileError("there is no graph to merge: give the graph files of the ranks.")

        @cache
        def ranks(bits: int) -> Ranks:
            return tuple(sorted(rank for i, some in enumerate(self._classes) if bits >> i & 1 for rank in some))

        everyone = (1 << len(self._classes)) - 1
        edges, places = self._numbered_edges()
        some = tuple(
            (Edge(*ends[:3], places[ends]), ranks(bits))
            for ends, bits in self._edges.items()
            if bits != self._having[ends[0]] & self._having[ends[1]]
        )
        varying = []
        for node in sorted(self._other):
            contents, sets = zip(*self._ways(node))
            varying.append(Varying(node, tuple(zip(map(ranks, sets), in_words(contents)))))
        groups = self._groups(everyone)
        graph = self._graph(edges, ranks(everyone), summary(groups))
        diff = RankDiff(
            graph,
            ranks(everyone),
            [ranks(bits) for bits in self._having],
            groups,
            tuple(varying),
            some,
            dict(sorted(self._saved.items())),
            dict(sorted(self._processes.items())),
            max((process.world for process in self._processes.values()), default=0),
        )
        return replace(diff, graph=replace(graph, marks=marks(diff)))

    def _groups(self, everyone: int) -> tuple[Ranks, ...]:
        """Classes that no node, content or edge tells apart are one group."""
        sets = {*self._having, *self._edges.values()}
        for ways in self._other.values():
            sets.update(ways.values())
        telling = sorted(sets - {everyone})
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, ranks in enumerate(self._classes):
            groups.setdefault(tuple(bits >> i & 1 for bits in telling), []).extend(ranks)
        return tuple(sorted(tuple(sorted(group)) for group in groups.values()))

    def _numbered_edges(self) -> tuple[tuple[Edge, ...], dict[Ends, int]]:
        """Edges by consumer and position. Where ranks disagree on a position, the later ones get one behind all others."""
        taken = defaultdict[int, set[int]](set)
        clash: list[Ends] = []
        places: dict[Ends, int] = {}
        for ends in self._edges:
            consumer, _, _, position = ends
            if position in taken[consumer]:
                clash.append(ends)
            else:
                places[ends] = position
                taken[consumer].add(position)
        for ends in clash:
            places[ends] = max(taken[ends[0]]) + 1
            taken[ends[0]].add(places[ends])
        edges = [Edge(*ends[:3], place) for ends, place in places.items()]
        return tuple(sorted(edges, key=lambda edge: (edge.consumer, edge.position))), places

    def _graph(self, edges: tuple[Edge, ...], ranks: Ranks, notes: tuple[str, ...]) -> Graph:
        """One graph of all nodes. What is not the first rank's has no saved tensors: its storages are of another graph."""
        first = self._first
        assert first is not None
        return replace(
            first,
            nodes=(*first.nodes, *self._new_nodes),
            edges=edges,
            leaves=(*first.leaves, *self._new_leaves),
            scopes=tuple(self._scopes),
            title=title_of(first, ranks),
            backward=(),
            process=None,
            by_rank=shares(self._saved, self._processes),
            notes=(*notes, *first.notes),
        )


def _pairs(before: list[Place], after: list[Place]) -> list[tuple[int, int]]:
    """Positions of what stands in both. Most is the same, so equal beginnings and ends are taken off before anything else."""
    (a, b, c, d), pairs = trimmed(before, after, (0, len(before), 0, len(after)))
    inner = align(*([side, [place[:2] for place in side]] for side in (before[a:b], after[c:d])))
    return sorted([*pairs, *((a + i, c + j) for i, j in inner)])
