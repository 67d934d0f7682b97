"""How large a drawing of a tree of groups will be, about: in pixels, without a layout.

A group is as tall as the longest way through its children, and as wide as what stands
beside each other on the way. What a picture really takes is measured by whoever draws
it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Set
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from gradviz.fold.groups import Child, Groups, Section
from gradviz.fold.order import edges_inside
from gradviz.graph.walks import users

BOX = (140.0, 36.0)
LEAF = (110.0, 40.0)
GAP, RANK_GAP = 18.0, 31.0
LINE = 10.0  # of an edge that passes by
_BORDERS = {"call": (28.0, 40.0), "all": (0.0, 120.0)}
"""What the border of a module adds, and title, legend and footer."""
MOST_DATA = 5
"""Boxes for the data that enters one box; the last one stands for the rest."""


class Size(NamedTuple):
    """Pixels."""

    width: float
    height: float


_CLOSED = Size(*BOX), 1  # with the boxes that are shown


class Sizes:
    """Sizes of open groups, found when the size of the whole is asked for: of those that
    have changed since, and of what is around them.
    """

    def __init__(self, groups: Groups, is_open: Set[Section]) -> None:
        self._whole, self._is_open = groups[0], is_open
        producers, consumers = edges_inside(groups.graph, groups.order)
        # sorted once, so that bisection finds the edges inside any group
        by_use = np.argsort(consumers, kind="stable")
        self._producers, self._consumers = producers[by_use], consumers[by_use]

        self._span: dict[Child, tuple[int, int]] = {}
        for i, node in enumerate(groups.order):
            self._span[node] = i, i + 1
        for group in reversed(groups.top_down()):
            self.span(group)

        # of each place of the order, how many leaves are used before it
        uses = [0] * len(groups.order)
        for leaf in groups.graph.leaves:
            for consumer in set(users(groups.graph, leaf.node)):
                if consumer in self._span:
                    uses[self._span[consumer][0]] += 1
        self._leaves = list(accumulate(uses, initial=0))

        # data by the place where it is used first; what reads alike is one box
        self._data = sorted(
            (min(self._span[node][0] for node in data.nodes), data.text, data.names)
            for data in groups.graph.data
            if data.nodes
        )
        self._data_of: dict[tuple[int, int], int] = {}

        self._wires_of: dict[Section, list[tuple[int, int]]] = {}
        # by the children that are open, with their sizes
        self._sizes_of: dict[Section, dict[object, tuple[Size, int]]] = {}
        self._of: dict[Child, tuple[Size, int]] = {}
        # with all groups around each
        self._changed: set[Section] = {self._whole}

    @property
    def whole(self) -> Size:
        """The size of the whole graph as it is now."""
        return self._found()[0]

    @property
    def boxes(self) -> int:
        """Boxes that are shown, with leaves."""
        return self._found()[1]

    def ops(self, group: Section) -> int:
        """Ops in a group."""
        first, after = self.span(group)
        return after - first

    def is_after_leaves(self, group: Section) -> bool:
        """Whether no leaf is used in a group or later."""
        return self._leaves[self.span(group)[0]] == self._leaves[-1]

    def span(self, child: Child) -> tuple[int, int]:
        """The places in the order that a child takes."""
        span = self._span.get(child)
        if span is None:
            inside = child.children if isinstance(child, Section) else []
            ends = self.span(inside[0]) + self.span(inside[-1]) if inside else (0, 0)
            span = self._span[child] = ends[0], ends[-1]
        return span

    def forget(self, group: Section) -> None:
        """A group that was taken away."""
        self._span.pop(group, None)
        self._of.pop(group, None)
        self._changed.discard(group)

    def regroup(self, group: Section) -> None:
        """The children of a group are others now."""
        self._wires_of.pop(group, None)
        self._sizes_of.pop(group, None)

    def update(self, *groups: Section) -> None:
        """Groups have changed, and with them the size of all around them."""
        for group in groups:
            for outer in group.around():
                if outer in self._changed:
                    break
                self._changed.add(outer)
                self._of.pop(outer, None)

    def _found(self) -> tuple[Size, int]:
        """Size and boxes of the whole graph."""
        waiting = [self._whole] if self._whole in self._changed else []
        for outer in waiting:  # grows while it is read
            waiting += self._changed.intersection(outer.inner)
        for group in reversed(waiting):
            self._changed.remove(group)
            if group in self._is_open:
                self._of[group] = self._known(group)
        return self._of[self._whole]

    def _known(self, group: Section) -> tuple[Size, int]:
        """What an open group takes, as it was found before where it looked the same."""
        known = self._sizes_of.setdefault(group, {})
        found = ((child, self._of.get(child)) for child in group.children)
        is_open = tuple(pair for pair in found if pair[1] is not None)
        if is_open not in known:
            known[is_open] = self._open(group)
        return known[is_open]

    def _leaves_beside(self, child: Child) -> int:
        """Leaves that are drawn for a child: for single ops."""
        # an open group counts its own leaves, and a closed one draws them inside
        if isinstance(child, Section) and child.op is None:
            return 0
        first, after = self.span(child)
        return self._leaves[after] - self._leaves[first]

    def _data_beside(self, child: Child) -> int:
        """Boxes for the data that a child takes; an open group counts its own, and the
        rest of a run takes what the turn beside it does.
        """
        if child in self._is_open or (isinstance(child, Section) and child.is_rest):
            return 0
        first, after = self.span(child)
        if (first, after) not in self._data_of:
            begin, end = (bisect_left(self._data, (at,)) for at in (first, after))
            kinds = {one[1:] for one in self._data[begin:end]}
            self._data_of[first, after] = min(len(kinds), MOST_DATA)
        return self._data_of[first, after]

    def _open(self, group: Section) -> tuple[Size, int]:
        children = group.children
        if not children:
            return _CLOSED

        wires = self.wires(group)
        shown = [self._of.get(child, _CLOSED) for child in children]
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
        # data stands wherever there is room above its op
        for i, child in enumerate(children):
            leaves[i] += self._data_beside(child)
        width = _width(below, tops, [size.width for size in sizes], leaves, wires)
        count = sum(boxes for _, boxes in shown) + sum(leaves)
        across, along = _BORDERS.get(group.kind, (0.0, 0.0))
        return Size(width + across, height + along), count

    def related(self, group: Section, place: int) -> set[int]:
        """The places of children of a group that lead to one of them, or to which it
        leads, with itself.
        """
        before, after = {place}, {place}
        wires = self.wires(group)
        before.update(maker for maker, user in wires if user in before)
        after.update(user for maker, user in reversed(wires) if maker in after)
        return before | after

    def wires(self, group: Section) -> list[tuple[int, int]]:
        """Which children of a group make what others use, the last users first."""
        if group not in self._wires_of:
            self._wires_of[group] = self._wires(group.children)
        return self._wires_of[group]

    def _wires(self, children: list[Child]) -> list[tuple[int, int]]:
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
        pairs = sorted(set((users * count + makers)[makers != users].tolist()))

        return [(pair % count, pair // count) for pair in reversed(pairs)]


def _width(
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
