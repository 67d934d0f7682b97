"""The topological order that groups are stretches of: calls of modules stand together
in it wherever that is possible.

Views stand beside the op that they belong to: what an op makes is transposed right
after it, what it needs right before it. Knows nothing of groups.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

import numpy as np
import numpy.typing as npt

from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import ScopeTree
from gradviz.graph.walks import makers, users

Ints = npt.NDArray[np.int64]


def ops_in_order(graph: Graph) -> list[int]:
    """Ids of all nodes but the leaves, every one after those it uses, calls of modules
    kept together.

    The order of the forward pass is kept when it has both properties, as in every
    recorded graph.
    """
    ran = [node for node in graph.fact(forward_order) if node not in graph.leaf_of]
    return ran if _is_sorted(graph, ran) else _sorted(graph, ran)


def _is_sorted(graph: Graph, ran: Sequence[int]) -> bool:
    """Whether every node comes after those it uses, and calls stand together."""
    producers, consumers = edges_inside(graph, ran)
    if (producers >= consumers).any():
        return False

    tree, left, before = ScopeTree(graph), set[int](), set[int]()
    for scope, _ in groupby(graph.nodes[node].scope for node in ran):
        inside = set(tree.around(scope))
        left |= before - inside
        if left & inside:
            return False
        before = inside
    return True


def places(graph: Graph, order: Sequence[int]) -> Ints:
    """Place of each node in the order, -1 for those that are not in it."""
    place = np.full(len(graph.nodes), -1, np.int64)
    place[np.asarray(order, np.int64)] = np.arange(len(order))
    return place


def edges_inside(graph: Graph, order: Sequence[int]) -> Ints:
    """Places of the producers, and of the consumers, of the edges between nodes of the
    order.
    """
    place = places(graph, order)
    ends = place[np.array([graph.producers, graph.users], np.int64)]
    inside: Ints = ends[:, (ends >= 0).all(axis=0)]
    return inside


def _sorted(graph: Graph, ran: list[int]) -> list[int]:
    """Takes what is ready, from the innermost call that has something ready, the
    earliest in the forward pass first.
    """
    tree, ranks = ScopeTree(graph), places(graph, ran).tolist()
    # the calls around each node, by its rank in the forward pass, and the whole
    ways = [(*tree.around(graph.nodes[node].scope), None) for node in ran]
    _, used = edges_inside(graph, ran)
    waiting = np.bincount(used, minlength=len(ran)).tolist()
    ready = defaultdict[int | None, list[int]](list)
    done = bytearray(len(ran))

    def offer(rank: int) -> None:
        # whoever asks for an outer call may get what is ready inside it
        for scope in ways[rank]:
            heapq.heappush(ready[scope], rank)

    def following(way: Iterable[int | None]) -> int:
        for heap in map(ready.__getitem__, way):
            # a node stands in the heap of each call around it
            while heap and done[heap[0]]:
                heapq.heappop(heap)
            if heap:
                return heap[0]
        # on a cycle, which a joined graph of two versions may have, the first goes
        # first
        return done.index(0)

    for rank, count in enumerate(waiting):
        if not count:
            offer(rank)

    order: list[int] = []
    way: tuple[int | None, ...] = (None,)
    while len(order) < len(ran):
        rank = following(way)
        done[rank], way = 1, ways[rank]
        order.append(ran[rank])
        for edge in graph.consumers(ran[rank]):
            user = ranks[edge.consumer]
            # on a cycle, a user may have been taken before its inputs
            if user >= 0 and not done[user]:
                waiting[user] -= 1
                if not waiting[user]:
                    offer(user)
    return order


# -- ops that only change shape or layout: each belongs to a neighbour in the same call

_VIEWS = re.compile(
    r"(View|UnsafeView|ReshapeAlias|Transpose|Permute|T|Mt|MovedimIntlist|Unsqueeze|Squeeze|Expand|Clone|Alias|Contiguous)"
    r"Backward\d+|view|unsafe_view|reshape_alias|transpose|permute|t|mt|movedim|unsqueeze|squeeze|expand|clone|alias"
)


@lru_cache(maxsize=4096)
def is_view(op: str) -> bool:
    """Whether this is the backward function of an op that only changes the shape or the
    layout of a tensor, or such an op.
    """
    return _VIEWS.fullmatch(op) is not None


def hosts_of_views(graph: Graph, order: Sequence[int]) -> dict[int, int]:
    """The op that each view belongs to: the one that made what it shows, else the only
    one that uses it. Both ran in one call.

    A view has one input, so what it joins never waits for it. A view of a leaf that
    several ops use has no host.
    """
    ops, scopes, leaves = graph.ops, column(graph.nodes, "scope"), graph.leaf_of
    views = [
        node for node in order if is_view(ops[node]) and node not in graph.roots_of
    ]
    made_from = {node: makers(graph, node) for node in views}
    alone = {node: made[0] for node, made in made_from.items() if len(made) == 1}
    host: dict[int, int] = {}

    def settle(node: int, other: int) -> None:
        is_host = other not in alone and other not in leaves
        if is_host and scopes[other] == scopes[node]:
            host[node] = other

    for node, maker in alone.items():
        settle(node, host.get(maker, maker))
    # from the last one on, since a view of a view belongs where that does
    for node in reversed(alone):
        if node not in host:
            beside = {host.get(user, user) for user in users(graph, node)}
            # all of these are one op, perhaps by way of other views
            if len(beside) == 1:
                settle(node, beside.pop())
    return host


def with_views_beside(order: Sequence[int], host: Mapping[int, int]) -> list[int]:
    """The order with each view right before or right after its host."""
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    done: set[int] = set()

    for node in order:
        done.add(node)
        if node in host:
            (after if host[node] in done else before).setdefault(host[node], []).append(
                node
            )

    return [
        placed
        for node in order
        if node not in host
        for placed in (*before.get(node, ()), node, *after.get(node, ()))
    ]
