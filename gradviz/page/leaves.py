"""Where leaves stand: a parameter inside the group that all its users are in, any other leaf on the page, one of many uses per use.

Parameters of a module that is called again stand in each of its calls.

Knows the tree of groups, no text and no places.
"""

from __future__ import annotations

from typing import NamedTuple

from gradviz.graph import Graph
from gradviz.page.groups import Groups

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
