"""Numbers everything that is drawn: cells (ops, leaves, outputs) and groups, both in the order of one walk through the tree.

In this order everything inside a group is one range, so the file needs no lists of members. Knows no text and no places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gradviz.graph import Graph
from gradviz.page.groups import Groups

# Where leaves stand: a parameter inside the group that all its users are in, any other leaf on the page, one of many
# uses per use. Parameters of a module that is called again stand in each of its calls. Knows the tree of groups, no
# text and no places.

SPLIT_ABOVE = 4
"""A leaf that more boxes of its sheet use is drawn once in each group that uses it."""


class LeafPlaces(NamedTuple):
    """`homes[leaf]` are the groups in which a box of it stands, by id of the AccumulateGrad node."""

    homes: dict[int, tuple[int, ...]]


def place_leaves(groups: Groups, graph: Graph) -> LeafPlaces:
    """The groups of all leaves. A leaf without users, which an output may be, stands on the page."""
    depth = [0] * groups.size
    for at in groups.top_down():
        depth[at] = depth[groups.parent[at]] + 1 if at else 0
    homes: dict[int, tuple[int, ...]] = {}
    for leaf in graph.leaves:
        users = dict.fromkeys(groups.home[edge.consumer] for edge in graph.consumers(leaf.node))
        users.pop(-1, None)
        if not users:
            homes[leaf.node] = (0,)
            continue
        meeting = 0 if leaf.kind != "parameter" else _meeting(groups, depth, list(users))
        beside = {_child_of(groups, depth, meeting, user) for user in users} if len(users) > SPLIT_ABOVE else ()
        is_split = len(beside) > SPLIT_ABOVE or (
            leaf.kind == "parameter" and _are_calls_of_one(groups, graph, list(users))
        )
        homes[leaf.node] = tuple(users) if is_split else (meeting,)
    return LeafPlaces(homes)


def _are_calls_of_one(groups: Groups, graph: Graph, users: list[int]) -> bool:
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


@dataclass
class Walk:
    """`cells` and `groups` (ids of `Groups`) as they are met; `items[i]` are the children of group i: cells, or ~group."""

    cells: list[Cell] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    items: list[list[int]] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)  # the first cell inside each group
    end: list[int] = field(default_factory=list)  # and the cell after the last
    cell_of: dict[int, int] = field(default_factory=dict)  # the one cell of a node
    copy_of: dict[tuple[int, int], int] = field(default_factory=dict)  # the cell of a leaf in a group


def walk(graph: Graph, groups: Groups, leaves: LeafPlaces) -> Walk:
    """Everything in the order of a walk from the top of the page: leaves first, then what uses them, outputs at the end."""
    return _Walker(graph, groups, leaves).walk()


class _Walker:
    def __init__(self, graph: Graph, groups: Groups, leaves: LeafPlaces) -> None:
        self._graph, self._groups, self._leaves = graph, groups, leaves
        self._inside: dict[int, list[int]] = {}
        for leaf, homes in leaves.homes.items():
            for home in homes:
                self._inside.setdefault(home, []).append(leaf)
        self._made = Walk()

    def walk(self) -> Walk:
        made = self._made
        waiting: list[tuple[int, int, int]] = [(self._enter(0, -1), 0, 0)]
        while waiting:
            at, old, i = waiting.pop()
            children = self._groups.children[old]
            while i < len(children) and children[i] >= 0:
                self._cell(children[i], OP, at)
                i += 1
            if i < len(children):
                waiting.append((at, old, i + 1))
                inner = self._enter(~children[i], at)
                made.items[at].append(~inner)
                waiting.append((inner, ~children[i], 0))
                continue
            if old == 0:
                for i in range(len(self._graph.roots)):
                    self._cell(i, OUTPUT, at)
            made.end[at] = len(made.cells)
        return made

    def _enter(self, old: int, parent: int) -> int:
        made = self._made
        at = len(made.groups)
        made.groups.append(old)
        made.items.append([])
        made.parent.append(parent)
        made.first.append(len(made.cells))
        made.end.append(0)
        for leaf in sorted(self._inside.get(old, ())):
            kind = COPY if len(self._leaves.homes[leaf]) > 1 else LEAF
            made.copy_of[leaf, old] = len(made.cells)
            self._cell(leaf, kind, at)
        return at

    def _cell(self, record: int, kind: int, group: int) -> None:
        made = self._made
        if kind in (OP, LEAF):
            made.cell_of[record] = len(made.cells)
        made.items[group].append(len(made.cells))
        made.cells.append(Cell(record, kind, group))
