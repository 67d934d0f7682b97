"""The topological order that groups are stretches of: calls of modules stand together
in it wherever that is possible.

Views stand beside the op that they belong to: what an op makes is transposed right
after it, what it needs right before it. Knows nothing of groups.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from gradviz.graph import Graph, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import ScopeTree

Ints = npt.NDArray[np.int64]


def ops_in_order(graph: Graph) -> list[int]:
    """Ids of all nodes but the leaves, every one after those it uses, calls of modules
    kept together.

    The order of the forward pass is kept when it has both properties, as in every
    recorded graph.
    """
    ran = [node for node in forward_order(graph) if node not in graph.leaf_of]
    ran.sort(key=_place_in_calls(graph, ran))
    ranks = places(graph, ran).tolist()
    _, used = edges_inside(graph, ran)
    waiting = np.bincount(used, minlength=len(ran)).tolist()
    ready = [rank for rank, count in enumerate(waiting) if not count]
    done = bytearray(len(ran))
    order: list[int] = []

    while len(order) < len(ran):
        # on a cycle, which a joined graph of two versions may have, the first goes
        # first
        rank = heapq.heappop(ready) if ready else done.index(0)
        done[rank] = 1
        order.append(ran[rank])
        for edge in graph.consumers(ran[rank]):
            user = ranks[edge.consumer]
            # and a user may have been taken before its inputs
            if user >= 0 and not done[user]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, user)

    return order


def _place_in_calls(
    graph: Graph, ran: Sequence[int]
) -> Callable[[int], tuple[int, ...]]:
    """Sorts nodes so that those of a call stand where its first one ran."""
    place, scopes = places(graph, ran).tolist(), column(graph.nodes, "scope")
    tree = ScopeTree(graph)
    begins: dict[int | None, tuple[int, ...]] = {None: ()}

    for node in ran:
        around: int | None = None
        if scopes[node] not in begins:
            for scope in outermost_first(tree, scopes[node]):
                begins.setdefault(scope, (*begins[around], place[node]))
                around = scope

    return lambda node: (*begins[scopes[node]], place[node])


def places(graph: Graph, order: Sequence[int]) -> Ints:
    """Place of each node in the order, -1 for those that are not in it."""
    place = np.full(
        len(graph.nodes),
        -1,
        np.int64,
    )
    place[np.asarray(order, np.int64)] = np.arange(len(order))
    return place


def edges_inside(graph: Graph, order: Sequence[int]) -> Ints:
    """Places of the producers, and of the consumers, of the edges between nodes of the
    order.
    """
    place = places(graph, order)
    ends = np.stack(
        [
            place[np.asarray(column(graph.edges, name), np.int64)]
            for name in ("producer", "consumer")
        ]
    )
    inside: Ints = ends[:, (ends >= 0).all(axis=0)]
    return inside


def outermost_first(tree: ScopeTree, scope: int | None) -> list[int]:
    """The scope and all around it."""
    return list(tree.around(scope))[::-1]


def common_start(chain: list[int], other: list[int]) -> int:
    """How many of the first entries two lists have in common."""
    return next(
        (i for i, (a, b) in enumerate(zip(chain, other)) if a != b),
        min(len(chain), len(other)),
    )


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


def hosts_of_views(
    graph: Graph,
    order: Sequence[int],
) -> dict[int, int]:
    """The op that each view belongs to: the one that made what it shows, else the only
    one that uses it. Both ran in one call.

    A view has one input, so what it joins never waits for it. A view of a leaf that
    several ops use has no host.
    """
    ops, scopes = column(graph.nodes, "op"), column(graph.nodes, "scope")
    alone = [
        node
        for node in order
        if is_view(ops[node])
        and node not in graph.roots_of
        and len(graph.input_places(node)) == 1
    ]
    views, host = set(alone), dict[int, int]()

    def settle(node: int, others: Iterable[int]) -> None:
        beside = {host.get(other, other) for other in others}
        # all of these are one op, perhaps by way of other views
        if node in host or len(beside) != 1:
            return
        other = beside.pop()
        is_op = other not in views and other not in graph.leaf_of
        if is_op and scopes[other] == scopes[node]:
            host[node] = other

    for node in alone:
        settle(node, (edge.producer for edge in graph.inputs(node)))
    # from the last one on, since a view of a view belongs where that does
    for node in reversed(alone):
        settle(node, (edge.consumer for edge in graph.consumers(node)))
    return host


def with_views_beside(
    order: Sequence[int],
    host: Mapping[int, int],
) -> list[int]:
    """The order with each view right before or right after its host."""
    place = {node: i for i, node in enumerate(order)}
    return sorted(order, key=lambda node: place[host.get(node, node)])
