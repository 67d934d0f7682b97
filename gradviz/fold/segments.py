"""Pieces of groups that are too long: segments, so that none has too many children and
a first look is never a wall.

A loop without modules, or a chain of a million ops, becomes a tree of segments.
"""

from __future__ import annotations

from itertools import pairwise

from gradviz.fold.groups import Groups, Section

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
