"""Makes the tree of groups of a graph: calls as they were made, each op with its views,
runs of what repeats, segments.
"""

from __future__ import annotations

from collections.abc import Mapping

from gradviz.fold.groups import Groups, Kind, Section
from gradviz.fold.loops import show_turns
from gradviz.fold.order import (
    common_start,
    hosts_of_views,
    ops_in_order,
    outermost_first,
    with_views_beside,
)
from gradviz.fold.program import FEW, with_program
from gradviz.fold.runs import join_runs
from gradviz.fold.segments import cut_large
from gradviz.graph import Construct, Graph, column
from gradviz.graph.origins import ScopeTree

SMALL = 50
"""Nodes of a graph that is drawn in full when its page holds it: the reader wants all
of it.
"""


def grouped(
    graph: Graph,
    *,
    views: bool = False,
    runs: bool = True,
    crop: Mapping[int, Construct] | None = None,
) -> Groups:
    """The tree of groups of a graph. Takes time proportional to its size.

    With `views`, each view stands alone. Without `runs`, so does each of several
    modules that are alike. Of a `crop`, what the program wrote is a scope already.
    """
    if crop is None:
        named, constructs = with_program(graph)
        apart = views or len(graph.nodes) <= FEW
    else:
        named, constructs, apart = graph, dict(crop), views

    order = ops_in_order(named)
    host = {} if apart else hosts_of_views(named, order)
    order = with_views_beside(order, host)
    builder = _Builder(named, host)
    groups = builder.build(Groups(graph, named, order, constructs))
    # again, now that it is known which parts of calls are one op and no group
    if builder.loose:
        groups = builder.build(Groups(graph, named, order, constructs))

    show_turns(groups)
    if runs:
        join_runs(groups)
        cut_large(groups)

    return groups


_KINDS: dict[str, Kind] = {
    "loop": "run",
    "turn": "turn",
    "statement": "statement",
    "call": "statement",
}
"""The kinds of groups for what the program wrote; anything else is a call."""


class _Builder:
    """Walks the order with a stack of open groups. Tokens name groups to come: a
    scope's id, or ~node of an op with views.
    """

    def __init__(self, graph: Graph, host: Mapping[int, int]) -> None:
        self._graph, self._host, self._hosts = graph, host, set(host.values())
        self._scopes, self._tree = column(graph.nodes, "scope"), ScopeTree(graph)
        self._chains: dict[int | None, list[int]] = {}
        self.loose: dict[int, int] = {}
        """Ops that are a part of a call alone, which is no group then, each with its
        token.
        """

    def build(self, groups: Groups) -> Groups:
        """Add the groups of calls, and of ops with their views."""
        pieces: dict[int, list[int]] = {}
        stack: list[tuple[int, int]] = []  # token and group
        before: list[int] | None = None
        group_id = 0

        for node in groups.order:
            chain = self._chain(node)
            # ops of one scope share a cached list, and most need no comparison
            if chain is not before:
                same = common_start([token for token, _ in stack], chain)
                del stack[same:]
                group_id = stack[-1][1] if stack else 0
                for token in chain[same:]:
                    if token >= 0:
                        kind = _KINDS.get(self._graph.scopes[token].kind, "call")
                        inner = Section(group_id, kind, token)
                    else:
                        inner = Section(group_id, "op", op=~token)
                    group_id = self._entered(groups, inner)
                    pieces.setdefault(token, []).append(group_id)
                    stack.append((token, group_id))
                before = chain
            groups.home[node] = group_id
            groups[group_id].children.append(node)

        for token, same_token in pieces.items():
            if len(same_token) > 1:
                for part, piece in enumerate(same_token, 1):
                    groups[piece].part, groups[piece].parts = part, len(same_token)
                    if (
                        len(groups[piece].children) == 1
                        and groups[piece].children[0] >= 0
                    ):
                        self.loose[groups[piece].children[0]] = token

        return groups

    def _entered(self, groups: Groups, inner: Section) -> int:
        group_id = groups.add(inner)
        groups[inner.parent or 0].children.append(~group_id)
        return group_id

    def _chain(self, node: int) -> list[int]:
        scope = self._scopes[node]
        if scope not in self._chains:
            self._chains[scope] = outermost_first(self._tree, scope)
        op = self._host.get(node, node)
        if node in self.loose:
            return [token for token in self._chains[scope] if token != self.loose[node]]
        return [*self._chains[scope], ~op] if op in self._hosts else self._chains[scope]
