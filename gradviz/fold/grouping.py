"""Makes the tree of groups of a graph: calls as they were made, each op with its views,
runs of what repeats, segments.
"""

from __future__ import annotations

from collections.abc import Mapping

from gradviz.fold.functions import with_functions
from gradviz.fold.groups import Groups, Stretch
from gradviz.fold.order import (
    common_start,
    hosts_of_views,
    ops_in_order,
    outermost_first,
    with_views_beside,
)
from gradviz.fold.runs import join_runs
from gradviz.fold.segments import cut_large
from gradviz.graph import Graph, column
from gradviz.graph.origins import ScopeTree

SMALL = 50
"""Nodes of a graph that is drawn in full when its page holds it: the reader wants all
of it.
"""
FEW = 16
"""Nodes of a graph whose views are boxes of their own: it is about ops, not layers."""


def grouped(
    graph: Graph,
    *,
    views: bool = False,
    runs: bool = True,
) -> Groups:
    """The tree of groups of a graph. Takes time proportional to its size.

    With `views`, each view stands alone. Without `runs`, so does each of several
    modules that are alike.
    """
    named = with_functions(graph)
    order = ops_in_order(named)
    apart = views or len(graph.nodes) <= FEW
    host = {} if apart else hosts_of_views(named, order)
    order = with_views_beside(order, host)
    groups = Groups(graph, named, order)
    _add_calls(groups, host)
    if runs:
        join_runs(groups)
        cut_large(groups)

    return groups


def _add_calls(groups: Groups, host: Mapping[int, int]) -> None:
    """Add the groups of calls, and of ops with their views, with a stack of open ones.
    Tokens name them: a scope's id, or ~node of an op with views.
    """
    scopes, tree = column(groups.graph.nodes, "scope"), ScopeTree(groups.graph)
    hosts, chains = set(host.values()), dict[int | None, list[int]]()
    pieces: dict[int, list[int]] = {}
    stack: list[tuple[int, int]] = []  # token and group
    before: list[int] | None = None
    group_id = 0

    for node in groups.order:
        if scopes[node] not in chains:
            chains[scopes[node]] = outermost_first(tree, scopes[node])
        chain, op = chains[scopes[node]], host.get(node, node)
        if op in hosts:
            chain = [*chain, ~op]

        # ops of one scope share a cached list, and most need no comparison
        if chain is not before:
            same = common_start([token for token, _ in stack], chain)
            del stack[same:]
            group_id = stack[-1][1] if stack else 0
            for token in chain[same:]:
                if token >= 0:
                    inner = Stretch(group_id, "call", token)
                else:
                    inner = Stretch(group_id, "op", op=~token)
                around, group_id = group_id, groups.add(inner)
                groups[around].children.append(~group_id)
                pieces.setdefault(token, []).append(group_id)
                stack.append((token, group_id))
            before = chain
        groups.home[node] = group_id
        groups[group_id].children.append(node)

    for of_call in pieces.values():
        if len(of_call) > 1:
            for part, piece in enumerate(of_call, 1):
                groups[piece].part, groups[piece].parts = part, len(of_call)
