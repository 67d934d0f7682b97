"""One topological order of the ops of a graph, in which every module call is one stretch wherever that is possible.

Any division of such an order into stretches, and of stretches into stretches, is free of cycles. So groups made from it can be
open or closed in any mix. Knows nothing of groups.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.layout.model import Ints
from gradviz.page.groups import Groups


def ops_in_order(graph: Graph) -> list[int]:
    """Ids of all nodes but the leaves, every one after those it uses, calls of modules kept together.

    The order of the forward pass is kept when it has both properties, as in every recorded graph.
    """
    leaves = graph.leaf_of
    ran = [node for node in forward_order(graph) if node not in leaves]
    if _is_topological(graph, ran) and _calls_are_stretches(graph, ran):
        return ran
    return _Sorter(graph, ran).sorted()


def alive(graph: Graph, order: list[int]) -> Ints:
    """How many values made before each place of the order are used at it or after it; one entry more for the end."""
    place = places(len(graph.nodes), order)
    made, used = (place[np.asarray(column(graph.edges, name), np.int64)] for name in ("producer", "consumer"))
    inner = (made >= 0) & (used >= 0)
    last = np.arange(len(order))
    np.maximum.at(last, made[inner], used[inner])
    change = np.zeros(len(order) + 2, np.int64)
    np.add.at(change, np.arange(len(order)) + 1, 1)
    np.add.at(change, last + 1, -1)
    return change.cumsum()


def places(count: int, order: list[int]) -> Ints:
    """Place of each node in the order, -1 for those that are not in it."""
    place = np.full(count, -1, np.int64)
    place[np.asarray(order, np.int64)] = np.arange(len(order))
    return place


def _is_topological(graph: Graph, order: list[int]) -> bool:
    place = places(len(graph.nodes), order)
    made, used = (place[np.asarray(column(graph.edges, name), np.int64)] for name in ("producer", "consumer"))
    return not bool(((used >= 0) & (made >= used)).any())


def _calls_are_stretches(graph: Graph, order: list[int]) -> bool:
    """Whether no call is left and entered again."""
    scopes = column(graph.nodes, "scope")
    left: set[int] = set()
    inside: list[int] = []
    before: int | None = None
    for node in order:
        scope = scopes[node]
        if scope == before:
            continue
        chain = _around(graph, scope)
        same = sum(1 for _ in _common(inside, chain))
        left.update(inside[same:])
        if not left.isdisjoint(chain[same:]):
            return False
        inside, before = chain, scope
    return True


def _around(graph: Graph, scope: int | None) -> list[int]:
    """The scope and all around it, the outermost first."""
    chain: list[int] = []
    while scope is not None:
        chain.append(scope)
        scope = graph.scopes[scope].parent
    return chain[::-1]


def _common(one: list[int], other: list[int]) -> list[int]:
    same: list[int] = []
    for a, b in zip(one, other):
        if a != b:
            break
        same.append(a)
    return same


class _Sorter:
    """Takes what is ready, from the innermost call that has something ready, the earliest in the forward pass first."""

    def __init__(self, graph: Graph, ran: list[int]) -> None:
        self._graph, self._ran = graph, ran
        self._rank = places(len(graph.nodes), ran)
        self._ready: dict[int | None, list[int]] = {}  # ranks by call; a node stands with every call around it
        self._done = bytearray(len(ran))
        self._scopes = column(graph.nodes, "scope")

    def sorted(self) -> list[int]:
        waiting = self._waiting()
        for rank, count in enumerate(waiting):
            if not count:
                self._offer(rank)
        found: list[int] = []
        scope: int | None = None
        while len(found) < len(self._ran):
            rank = self._next(scope)
            self._done[rank] = 1
            node = self._ran[rank]
            scope = self._scopes[node]
            found.append(node)
            for edge in self._graph.consumers(node):
                user = int(self._rank[edge.consumer])
                if user >= 0 and not self._done[user]:
                    waiting[user] -= 1
                    if not waiting[user]:
                        self._offer(user)
        return found

    def _waiting(self) -> list[int]:
        waiting = [0] * len(self._ran)
        for rank, node in enumerate(self._ran):
            waiting[rank] = sum(1 for edge in self._graph.inputs(node) if self._rank[edge.producer] >= 0)
        return waiting

    def _offer(self, rank: int) -> None:
        for scope in (None, *_around(self._graph, self._scopes[self._ran[rank]])):
            heapq.heappush(self._ready.setdefault(scope, []), rank)

    def _next(self, scope: int | None) -> int:
        for around in (*reversed(_around(self._graph, scope)), None):
            heap = self._ready.get(around, [])
            while heap and self._done[heap[0]]:
                heapq.heappop(heap)
            if heap:
                return heapq.heappop(heap)
        return self._done.index(
            0
        )  # only on a cycle, which a joined graph of two versions may have: the first goes first


# Cuts sheets with too many boxes into segments of the order, so that no sheet is large and a first look is never a
# wall. A loop without modules, or a chain of a million ops, becomes a tree of segments. They end where few values are
# alive, and are whole turns of what repeats, so that most of them are alike and share one layout.

MOST = 60
"""Boxes that one sheet may hold."""
SIZE = 40
"""Boxes of one segment, about."""


def cut_into_segments(groups: Groups, graph: Graph, order: Sequence[int]) -> None:
    """Give every group of more than `MOST` children segments of its own making."""
    large = [at for at in range(groups.size) if len(groups.children[at]) > MOST]
    if not large:
        return
    cutter = _Cutter(groups, graph, order)
    for at in large:
        cutter.cut(at)


class _Cutter:
    def __init__(self, groups: Groups, graph: Graph, order: Sequence[int]) -> None:
        self._groups, self._graph = groups, graph
        self._alive: Ints = alive(graph, list(order))
        self._place = places(len(graph.nodes), list(order))
        self._ops = column(graph.nodes, "op")
        self._first = [0] * groups.size
        for at in range(groups.size - 1, -1, -1):  # children come after their parents
            inside = groups.children[at]
            self._first[at] = self._start(inside[0]) if inside else 0

    def cut(self, at: int) -> None:
        children = self._groups.children[at]
        cuts = self._cuts(children)
        while True:
            pieces = [children[a:b] for a, b in zip(cuts, [*cuts[1:], len(children)])]
            children = [self._segment(at, piece) if len(piece) > 1 else piece[0] for piece in pieces]
            if len(children) <= MOST:
                break
            cuts = list(range(0, len(children), SIZE))
        self._groups.children[at] = children

    def _cuts(self, children: list[int]) -> list[int]:
        """Where the lowest segments begin."""
        size = _whole_turns([self._sign(child) for child in children])
        count = -(-len(children) // size)
        if count > 1 and len(children) - (count - 1) * size < size // 3:
            count -= 1  # no stump at the end
        cuts = [0]
        room = size // 4
        for i in range(1, count):
            ideal = i * size
            near = range(max(ideal - room, cuts[-1] + 1), min(ideal + room, len(children) - 1) + 1)
            cuts.append(min(near, key=lambda k: (int(self._alive[self._start(children[k])]), abs(k - ideal))))
        return cuts

    def _segment(self, parent: int, children: list[int]) -> int:
        made = self._groups.add(parent, "segment")
        self._first.append(self._start(children[0]))
        self._groups.children[made] = children
        for child in children:
            if child < 0:
                self._groups.parent[~child] = made
            else:
                self._groups.home[child] = made
        return ~made

    def _start(self, child: int) -> int:
        return int(self._place[child]) if child >= 0 else self._first[~child]

    def _sign(self, child: int) -> str:
        if child >= 0:
            return str(self._ops[child])
        scope = self._groups.scope[~child]
        return self._graph.scopes[scope].type if scope is not None else self._groups.kind[~child]


def _whole_turns(signs: list[str]) -> int:
    """About `SIZE`, and a multiple of the period when the signs repeat.

    >>> _whole_turns(["mm", "add", "tanh"] * 30)
    39
    """
    middle = signs[len(signs) // 4 : 3 * len(signs) // 4 + 1][: 6 * SIZE]
    for period in range(1, SIZE + 1):
        if 2 * period <= len(middle) and middle[period:] == middle[:-period]:
            return period * max(SIZE // period, 1)
    return SIZE
