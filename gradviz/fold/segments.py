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
    for group_id in range(len(groups)):
        # a chain of a million ops needs several levels of segments
        while len(groups[group_id].children) > MOST:
            _cut(groups, group_id)


def _cut(groups: Groups, group_id: int) -> None:
    children = groups[group_id].children
    # a module that begins or ends the group stays as it is
    first, last = (
        child < 0 and groups[~child].kind == "call"
        for child in (children[0], children[-1])
    )
    start, after = int(first), len(children) - int(last)

    # of about equal length, so that none is a stump at the end
    count = max(round((after - start) / SIZE), 1)
    cuts = [start + (after - start) * i // count for i in range(count + 1)]
    groups.enclose(
        group_id, ((a, b, Section(group_id, "segment")) for a, b in pairwise(cuts))
    )
