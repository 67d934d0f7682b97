"""How large a drawing of a tree of groups will be, about: in pixels, without a layout.

A group is as tall as the longest way through its children, and as wide as what stands
beside each other on the way. What a picture really takes is measured by whoever draws
it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Set
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from gradviz.fold.groups import Groups
from gradviz.fold.order import edges_inside

BOX = (140.0, 36.0)
LEAF = (110.0, 40.0)
GAP, RANK_GAP = 18.0, 31.0
LINE = 10.0  # of an edge that passes by
FRAME = (28.0, 40.0)  # what a border adds, with its title
AROUND = 120.0  # title, legend and footer


class Size(NamedTuple):
    """Pixels."""

    width: float
    height: float


_CLOSED = Size(*BOX), 1  # with the boxes that are shown


class Sizes:
    """Sizes of open groups, found when the size of the whole is asked for: of those that
    have changed since, and of what is around them.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        producers, consumers = edges_inside(groups.graph, groups.order)
        # sorted once, so that bisection finds the edges inside any group
        by_use = np.argsort(consumers, kind="stable")
        self._producers, self._consumers = producers[by_use], consumers[by_use]
        # of each place of the order, how many leaves are used before it
        self._leaves = [0] * (len(groups.order) + 1)
        place = {node: i for i, node in enumerate(groups.order)}
        uses = [0] * len(groups.order)

        for leaf in groups.graph.leaves:
            for consumer in {
                edge.consumer for edge in groups.graph.consumers(leaf.node)
            }:
                if consumer in place:
                    uses[place[consumer]] += 1

        for i, count in enumerate(uses):
            self._leaves[i + 1] = self._leaves[i] + count

        self._span = _spans(groups, place)
        self._node_place = place
        self._wires_of: dict[int, list[tuple[int, int]]] = {}
        self._of: dict[int, tuple[Size, int]] = {}
        # with all groups around each
        self._changed: set[int] = {0}
        self._is_open: Set[int] = {0}

    @property
    def whole(self) -> Size:
        """The size of the whole graph as it is now."""
        return self._found()[0]

    @property
    def boxes(self) -> int:
        """Boxes that are shown, with leaves."""
        return self._found()[1]

    def ops(self, group_id: int) -> int:
        """Ops in a group."""
        first, after = self.span(~group_id)
        return after - first

    def span(self, child: int) -> tuple[int, int]:
        """The places in the order that a child takes."""
        if child >= 0:
            return self._node_place[child], self._node_place[child] + 1
        if ~child not in self._span:
            inside = self._groups[~child].children
            self._span[~child] = self.span(inside[0])[0], self.span(inside[-1])[1]
        return self._span[~child]

    def forget(self, group_id: int) -> None:
        """A group that was taken away."""
        self._span.pop(group_id, None)
        self._of.pop(group_id, None)
        self._changed.discard(group_id)

    def regroup(self, group_id: int) -> None:
        """The children of a group are others now."""
        self._wires_of.pop(group_id, None)

    def update(self, group_id: int, is_open: Set[int]) -> None:
        """A group has changed, and with it the size of all around it."""
        self._is_open = is_open
        outer: int | None = group_id
        while outer is not None and outer not in self._changed:
            self._changed.add(outer)
            self._of.pop(outer, None)
            outer = self._groups[outer].parent

    def _found(self) -> tuple[Size, int]:
        """Size and boxes of the whole graph."""
        waiting = [0] if 0 in self._changed else []
        for outer in waiting:  # grows while it is read
            children = self._groups[outer].children
            waiting += self._changed.intersection(~child for child in children)
        for group_id in reversed(waiting):
            self._changed.remove(group_id)
            if group_id in self._is_open:
                self._of[group_id] = self._open(group_id)
        return self._of[0]

    def _leaves_beside(self, child: int) -> int:
        """Leaves that are drawn for a child: for single ops."""
        # an open group counts its own leaves, and a closed one draws them inside
        if child < 0 and self._groups[~child].op is None:
            return 0
        first, after = self.span(child)
        return self._leaves[after] - self._leaves[first]

    def _open(self, group_id: int) -> tuple[Size, int]:
        children = self._groups[group_id].children
        if not children:
            return _CLOSED

        wires = self.wires(group_id)
        shown = [self._of.get(~child, _CLOSED) for child in children]
        sizes = [size for size, _ in shown]
        leaves = [self._leaves_beside(child) for child in children]
        below = [0.0] * len(children)  # where each child ends, from the lower side up

        # the last users come first, so what lies below a child is complete
        for made_by, used_by in wires:
            below[made_by] = max(
                below[made_by], below[used_by] + sizes[used_by].height + RANK_GAP
            )

        tops = [below[i] + sizes[i].height for i in range(len(children))]
        height = max(
            top + (LEAF[1] + RANK_GAP if leaves[i] else 0.0)
            for i, top in enumerate(tops)
        )
        width = self._width(below, tops, [size.width for size in sizes], leaves, wires)
        has_frame = self._groups[group_id].kind == "call"
        count = sum(boxes for _, boxes in shown) + sum(leaves)
        extra = FRAME if has_frame else (0.0, AROUND) if group_id == 0 else (0.0, 0.0)
        return Size(width + extra[0], height + extra[1]), count

    def related(self, group_id: int, place: int) -> set[int]:
        """The places of children of a group that lead to one of them, or to which it
        leads, with itself.
        """
        before, after = {place}, {place}
        wires = self.wires(group_id)
        before.update(maker for maker, user in wires if user in before)
        after.update(user for maker, user in reversed(wires) if maker in after)
        return before | after

    def wires(self, group_id: int) -> list[tuple[int, int]]:
        """Which children of a group make what others use, the last users first."""
        if group_id not in self._wires_of:
            children = self._groups[group_id].children
            self._wires_of[group_id] = self._wires(children)
        return self._wires_of[group_id]

    def _wires(self, children: list[int]) -> list[tuple[int, int]]:
        spans = [self.span(child) for child in children]
        first = spans[0][0]
        low, high = np.searchsorted(self._consumers, [first, spans[-1][1]])
        producers, consumers = self._producers[low:high], self._consumers[low:high]
        inside = producers >= first
        bounds, count = np.asarray([begin for begin, _ in spans]), len(children)
        makers, users = (
            np.searchsorted(bounds, side[inside], "right") - 1
            for side in (producers, consumers)
        )
        pairs = np.unique((users * count + makers)[makers != users])

        return [(pair % count, pair // count) for pair in reversed(pairs.tolist())]

    def _width(
        self,
        below: list[float],
        tops: list[float],
        widths: list[float],
        leaves: list[int],
        wires: list[tuple[int, int]],
    ) -> float:
        """The most that stands beside each other."""
        spans = [(below[i], tops[i], widths[i] + GAP) for i in range(len(below))]
        spans += [
            (tops[i], tops[i] + LEAF[1], leaves[i] * (LEAF[0] + GAP))
            for i in range(len(below))
            if leaves[i]
        ]
        # all edges of one producer share a line, which ends at the last user
        last: dict[int, int] = {}
        for maker, user in wires:
            last[maker] = max(last.get(maker, user), user)

        spans += [(tops[user], below[maker], LINE) for maker, user in last.items()]
        starts = sorted({start for start, *_ in spans})
        change = [0.0] * (len(starts) + 1)

        for start, end, width in spans:
            # what ends where another one starts does not stand beside it
            if end > start:
                change[bisect_right(starts, start) - 1] += width
                change[min(bisect_right(starts, end - 1e-6), len(starts))] -= width

        return max(accumulate(change))


def _spans(groups: Groups, place: dict[int, int]) -> dict[int, tuple[int, int]]:
    """The places in the order that each group takes."""
    spans: dict[int, tuple[int, int]] = {}
    for group_id in reversed(groups.top_down()):
        inside = groups[group_id].children
        if not inside:
            spans[group_id] = (0, 0)
            continue
        first, last = inside[0], inside[-1]
        begin = place[first] if first >= 0 else spans[~first][0]
        spans[group_id] = begin, (place[last] + 1 if last >= 0 else spans[~last][1])
    return spans
