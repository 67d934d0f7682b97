"""Numbers everything that is drawn: cells (ops, leaves, outputs) and groups, both in the order of one walk through the tree.

In this order everything inside a group is one range, so the file needs no lists of members. Says in which groups leaves stand, too.
Knows no text and no places.
"""

from __future__ import annotations

from typing import NamedTuple

from gradviz.graph import Graph, column
from gradviz.page.groups import Groups

SPLIT_ABOVE = 4
"""A leaf that more boxes of its sheet use is drawn once in each group that uses it."""


Homes = dict[int, tuple[int, ...]]
"""The groups in which a box of a leaf stands, by id of its AccumulateGrad node."""


def homes_of_leaves(groups: Groups, graph: Graph) -> Homes:
    """A parameter stands inside the group that all its users are in, any other leaf on the page, one of many uses per use.

    Parameters of a module that is called again stand in each of its calls. A leaf without users, which an output may be,
    stands on the page.
    """
    depth = [0] * groups.size
    for at in groups.top_down():
        depth[at] = depth[groups.parent[at]] + 1 if at else 0
    homes: Homes = {}
    for leaf in graph.leaves:
        users = dict.fromkeys(groups.home[edge.consumer] for edge in graph.consumers(leaf.node))
        users.pop(-1, None)
        if not users:
            homes[leaf.node] = (0,)
            continue
        meeting = 0 if leaf.kind != "parameter" else _meeting(groups, depth, list(users))
        beside = {_child_of(groups, depth, meeting, user) for user in users} if len(users) > SPLIT_ABOVE else ()
        is_split = len(beside) > SPLIT_ABOVE or (
            leaf.kind == "parameter" and _are_calls_of_one_module(groups, graph, list(users))
        )
        homes[leaf.node] = tuple(users) if is_split else (meeting,)
    return homes


def _are_calls_of_one_module(groups: Groups, graph: Graph, users: list[int]) -> bool:
    """Whether these are several calls of one module."""
    scopes = {groups.scope[user] for user in users}
    return (
        len(scopes) > 1
        and None not in scopes
        and len({graph.scopes[scope].path for scope in scopes if scope is not None}) == 1
    )


def _meeting(groups: Groups, depth: list[int], users: list[int]) -> int:
    """The innermost group around all of these."""
    at = users[0]
    for user in users[1:]:
        while at != user:
            if depth[at] >= depth[user]:
                at = groups.parent[at]
            else:
                user = groups.parent[user]
    return at


def _child_of(groups: Groups, depth: list[int], around: int, inner: int) -> int:
    """The child of `around` that `inner` lies in, or `around` itself."""
    while depth[inner] > depth[around] + 1:
        inner = groups.parent[inner]
    return inner


OP, LEAF, COPY, OUTPUT = range(4)
"""Kinds of cells. A copy is one of several boxes of one leaf."""


class Cell(NamedTuple):
    """One box that is no group. `record` is the id of the node, or the place of the output among the roots."""

    record: int
    kind: int
    group: int  # by number of the walk


class Walk:
    """Everything in the order of a walk from the top of the page: leaves first, then what uses them, outputs at the end.

    `cells` and `groups` (ids of `Groups`) as they are met; `items[i]` are the children of group i: cells, or ~group.
    """

    def __init__(self, graph: Graph, tree: Groups) -> None:
        self.graph, self.tree = graph, tree
        self.cells: list[Cell] = []
        self.groups: list[int] = []
        self.items: list[list[int]] = []
        self.parent: list[int] = []
        self.cell_of: dict[int, int] = {}  # the only cell of a node
        self.copy_of: dict[tuple[int, int], int] = {}  # the cell of a leaf in a group
        self._homes = homes_of_leaves(tree, graph)
        self._inside: dict[int, list[int]] = {}  # leaves by group
        for leaf, around in self._homes.items():
            for home in around:
                self._inside.setdefault(home, []).append(leaf)
        self._walk(tree.children, len(graph.roots))

    def _walk(self, children: list[list[int]], outputs: int) -> None:
        waiting: list[tuple[int, int, int]] = [(self._enter(0, -1), 0, 0)]
        while waiting:
            at, old, i = waiting.pop()
            while i < len(children[old]) and children[old][i] >= 0:
                self._cell(children[old][i], OP, at)
                i += 1
            if i < len(children[old]):
                waiting.append((at, old, i + 1))
                inner = self._enter(~children[old][i], at)
                self.items[at].append(~inner)
                waiting.append((inner, ~children[old][i], 0))
                continue
            if old == 0:
                for root in range(outputs):
                    self._cell(root, OUTPUT, at)

    def _enter(self, old: int, parent: int) -> int:
        at = len(self.groups)
        self.groups.append(old)
        self.items.append([])
        self.parent.append(parent)
        for leaf in sorted(self._inside.get(old, ())):
            self.copy_of[leaf, old] = len(self.cells)
            self._cell(leaf, COPY if len(self._homes[leaf]) > 1 else LEAF, at)
        return at

    def _cell(self, record: int, kind: int, group: int) -> None:
        if kind in (OP, LEAF):
            self.cell_of[record] = len(self.cells)
        self.items[group].append(len(self.cells))
        self.cells.append(Cell(record, kind, group))

    def edges(self) -> list[tuple[int, int]]:
        """Producer and consumer as cells, for every edge, and from the maker of each output to its box."""
        graph = self.graph
        ends = zip(column(graph.edges, "producer"), column(graph.edges, "consumer"))
        edges = [(self._beside(producer, consumer), self._beside(consumer, producer)) for producer, consumer in ends]
        first = len(self.cells) - len(graph.roots)
        made = ((root.node, first + i) for i, root in enumerate(graph.roots))
        return [*edges, *((self._beside(node, -1), output) for node, output in made if node is not None)]

    def _beside(self, node: int, other: int) -> int:
        """The cell of a node; of a leaf with several, the one in the group of the `other` node, or else the first."""
        if node in self.cell_of:
            return self.cell_of[node]
        at, homes = self.tree.home[other] if other >= 0 else 0, self._homes[node]
        return self.copy_of[node, at if at in homes else homes[0]]
