"""One topological order of the ops of a graph, in which every module call is one stretch wherever that is possible.

Any division of such an order into stretches, and of stretches into stretches, is free of cycles. So groups made from it can be
open or closed in any mix. Knows nothing of groups.
"""

from __future__ import annotations

import heapq

import numpy as np

from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.scopes import ScopeTree
from gradviz.layout import Ints


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
    made, used = _edge_ends(graph, order)
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


def _edge_ends(graph: Graph, order: list[int]) -> tuple[Ints, Ints]:
    """Places of the producer and the consumer of every edge."""
    place = places(len(graph.nodes), order)
    producer, consumer = (place[np.asarray(column(graph.edges, name), np.int64)] for name in ("producer", "consumer"))
    return producer, consumer


def _is_topological(graph: Graph, order: list[int]) -> bool:
    made, used = _edge_ends(graph, order)
    return not bool(((used >= 0) & (made >= used)).any())


def _calls_are_stretches(graph: Graph, order: list[int]) -> bool:
    """Whether no call is left and entered again."""
    scopes, tree = column(graph.nodes, "scope"), ScopeTree(graph)
    left: set[int] = set()
    inside: list[int] = []
    before: int | None = None
    for node in order:
        scope = scopes[node]
        if scope == before:
            continue
        chain = outermost_first(tree, scope)
        same = common_start(inside, chain)
        left.update(inside[same:])
        if not left.isdisjoint(chain[same:]):
            return False
        inside, before = chain, scope
    return True


def outermost_first(tree: ScopeTree, scope: int | None) -> list[int]:
    """The scope and all around it."""
    return list(tree.around(scope))[::-1]


def common_start(chain: list[int], other: list[int]) -> int:
    """How many of the first entries two lists have in common."""
    return next((i for i, (a, b) in enumerate(zip(chain, other)) if a != b), min(len(chain), len(other)))


class _Sorter:
    """Takes what is ready, from the innermost call that has something ready, the earliest in the forward pass first."""

    def __init__(self, graph: Graph, ran: list[int]) -> None:
        self._graph, self._ran = graph, ran
        self._rank = places(len(graph.nodes), ran)
        self._ready: dict[int | None, list[int]] = {}  # ranks by call; a node stands with every call around it
        self._done = bytearray(len(ran))
        self._scopes, self._tree = column(graph.nodes, "scope"), ScopeTree(graph)

    def sorted(self) -> list[int]:
        waiting = self._waiting()
        for rank, count in enumerate(waiting):
            if not count:
                self._offer(rank)
        order: list[int] = []
        scope: int | None = None
        while len(order) < len(self._ran):
            rank = self._next(scope)
            self._done[rank] = 1
            node = self._ran[rank]
            scope = self._scopes[node]
            order.append(node)
            for edge in self._graph.consumers(node):
                user = int(self._rank[edge.consumer])
                if user >= 0 and not self._done[user]:
                    waiting[user] -= 1
                    if not waiting[user]:
                        self._offer(user)
        return order

    def _waiting(self) -> list[int]:
        waiting = [0] * len(self._ran)
        for rank, node in enumerate(self._ran):
            waiting[rank] = sum(1 for edge in self._graph.inputs(node) if self._rank[edge.producer] >= 0)
        return waiting

    def _offer(self, rank: int) -> None:
        for scope in (None, *self._tree.around(self._scopes[self._ran[rank]])):
            heapq.heappush(self._ready.setdefault(scope, []), rank)

    def _next(self, scope: int | None) -> int:
        for around in (*self._tree.around(scope), None):
            heap = self._ready.get(around, [])
            while heap and self._done[heap[0]]:
                heapq.heappop(heap)
            if heap:
                return heapq.heappop(heap)
        return self._done.index(0)  # on a cycle, which a joined graph of two versions may have, the first goes first
