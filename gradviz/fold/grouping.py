"""Makes the tree of groups of a graph: calls as they were made, each op with its views,
runs of what repeats, segments.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from operator import eq

from gradviz.fold.groups import Groups, Kind, Section
from gradviz.fold.loops import show_turns
from gradviz.fold.order import hosts_of_views, ops_in_order, with_views_beside
from gradviz.fold.program import FEW, with_program
from gradviz.fold.runs import join_runs
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
        pieces: dict[int, list[Section]] = {}
        stack: list[tuple[int, Section]] = []  # token and group
        before: list[int] | None = None
        group = groups[0]

        for node in groups.order:
            chain = self._chain(node)
            # ops of one scope share a cached list, and most need no comparison
            if chain is not before:
                tokens = [token for token, _ in stack]
                same = [*map(eq, tokens, chain), False].index(False)
                del stack[same:]
                for token in chain[same:]:
                    outer = stack[-1][1] if stack else groups[0]
                    if token >= 0:
                        kind = _KINDS.get(self._graph.scopes[token].kind, "call")
                        inner = Section(groups, outer, kind, token)
                    else:
                        inner = Section(groups, outer, "op", op=~token)
                    outer.children.append(inner)
                    pieces.setdefault(token, []).append(inner)
                    stack.append((token, inner))
                group = stack[-1][1] if stack else groups[0]
                before = chain
            groups.home[node] = group
            group.children.append(node)

        for token, parts in pieces.items():
            for part, piece in enumerate(parts if len(parts) > 1 else (), 1):
                piece.part, piece.parts = part, len(parts)
                only, *others = piece.children
                if not others and isinstance(only, int):
                    self.loose[only] = token

        return groups

    def _chain(self, node: int) -> list[int]:
        scope = self._scopes[node]
        if scope not in self._chains:
            self._chains[scope] = [*self._tree.around(scope)][::-1]
        op = self._host.get(node, node)
        if node in self.loose:
            return [token for token in self._chains[scope] if token != self.loose[node]]
        return [*self._chains[scope], ~op] if op in self._hosts else self._chains[scope]


# -- pieces of groups that are too long: segments, so that none has too many children and a
# first look is never a wall. A loop without modules, or a chain of a million ops, becomes a
# tree of segments

MOST = 60
"""Children that one group may have."""
SIZE = 40
"""Children of one segment, about."""


def cut_large(groups: Groups) -> None:
    """Give groups of many children segments."""
    for group in groups[:]:
        # a chain of a million ops needs several levels of segments
        while len(group.children) > MOST:
            _cut(group)


def _cut(group: Section) -> None:
    children = group.children
    # a module that begins or ends the group stays as it is
    first, last = (
        isinstance(child, Section) and child.kind == "call"
        for child in (children[0], children[-1])
    )
    start, after = int(first), len(children) - int(last)

    # of about equal length, so that none is a stump at the end
    count = max(round((after - start) / SIZE), 1)
    cuts = [start + (after - start) * i // count for i in range(count + 1)]
    group.enclose(
        (a, b, Section(group.tree, group, "segment")) for a, b in pairwise(cuts)
    )
