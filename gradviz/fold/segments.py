"""Pieces of groups that are too long: segments, so that none has too many children and
a first look is never a wall.

A segment ends where few values are alive. A loop without modules, or a chain of a
million ops, becomes a tree of segments.
"""

from __future__ import annotations

from itertools import pairwise

from gradviz.fold.groups import Groups, Stretch
from gradviz.fold.order import alive, places

MOST = 60
"""Children that one group may have."""
SIZE = 40
"""Children of one segment, about."""


def cut_large(groups: Groups) -> None:
    """Give groups of many children segments."""
    large = [
        group_id for group_id, group in enumerate(groups) if len(group.children) > MOST
    ]
    if large:
        cutter = _Cutter(groups)
        for group_id in large:
            cutter.cut(group_id)


class _Cutter:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._alive = alive(groups.graph, groups.order)
        self._place = places(groups.graph, groups.order)

    def cut(self, group_id: int) -> None:
        children = self._groups[group_id].children
        first, after = self._inner(children)
        cuts = [first + cut for cut in self._cuts(children[first:after])]

        # a chain of a million ops needs several levels of segments
        while True:
            ends = pairwise([*cuts, after])
            self._groups.enclose(
                group_id,
                ((a, b, Stretch(group_id, "segment")) for a, b in ends if b - a > 1),
            )
            children = self._groups[group_id].children
            if len(children) <= MOST:
                break
            first, after = self._inner(children)
            cuts = list(range(first, after, SIZE))

    def _inner(
        self,
        children: list[int],
    ) -> tuple[int, int]:
        """The children that segments are made of: of modules, all but the first and the
        last, which stay as they are.
        """
        is_call = [
            child < 0 and self._groups[~child].kind == "call"
            for child in (children[0], children[-1])
        ]
        return int(is_call[0]), len(children) - int(is_call[1])

    def _cuts(self, children: list[int]) -> list[int]:
        """Where the lowest segments begin."""
        # none is a stump at the end
        count = max(round(len(children) / SIZE), 1)

        cuts = [0]
        room = SIZE // 4
        for i in range(1, count):
            ideal = i * len(children) // count
            # room to both sides, to cut where few values are alive
            near = range(
                max(ideal - room, cuts[-1] + 1),
                min(ideal + room, len(children) - 1) + 1,
            )
            cuts.append(
                min(
                    near,
                    key=lambda k: (
                        int(self._alive[self._start(children[k])]),
                        abs(k - ideal),
                    ),
                )
            )

        return cuts

    def _start(self, child: int) -> int:
        return int(self._place[next(self._groups.leaves_of(child))])
