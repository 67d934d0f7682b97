"""What the graph alone decides: which row each box lies in, and which edges should be straight.

A box lies as near to what uses it as possible, side outputs right under what makes them. Straight is the longest way through
each component first, then other long ways, then short ones. This is what keeps a deep drawing narrow: where columns are made of
whole ways through the network, a block is drawn the same way every time it occurs; where each box is aligned with its nearest
neighbours instead, every block shifts the main stream a little and the drawing slides sideways as it gets deeper.

Rows count downwards from 0. Knows nothing of sizes, of coordinates or of the order within a row.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.grouping import Mask, by_key, counts, group
from gradviz.layout.model import Cycle, Ints


class Neighbours(NamedTuple):
    """Both directions of a graph as plain lists, which Python loops read faster than arrays.

    The nodes below v are `below[below_start[v]:below_start[v + 1]]`, by edges `below_edge` in the same range.
    """

    below: list[int]
    below_start: list[int]
    below_edge: Ints
    above: list[int]
    above_start: list[int]


class Ranking(NamedTuple):
    """Row of every node, and the nodes in an order in which each comes after all nodes below it."""

    rank: Ints
    upwards: list[int]


def neighbours(size: int, above: Ints, below: Ints) -> Neighbours:
    """Neighbour lists of a graph."""
    down, up = group(above, size), group(below, size)
    return Neighbours(
        below[down.order].tolist(), down.start.tolist(), down.order, above[up.order].tolist(), up.start.tolist()
    )


def rank_nodes(near: Neighbours) -> Ranking:
    """Rank by the distance to the end; raises Cycle when the edges form one."""
    height, upwards = heights(near)
    if len(upwards) < len(height):
        raise Cycle("the edges form a cycle, so the boxes cannot be placed in rows")
    deepest = max(height, default=0)
    rank = [deepest - h for h in height]
    ends = [node for node in range(len(height)) if near.below_start[node] == near.below_start[node + 1]]
    if len(ends) > 1:
        _pull_up(rank, upwards, _above_all(_main_ends(upwards, ends, near), near), near)
    return Ranking(np.array(rank, np.int64), upwards)


def heights(near: Neighbours) -> tuple[list[int], list[int]]:
    """Longest way down from every node, and the order in which that was settled. Nodes on cycles are never settled."""
    above, start = near.above, near.above_start
    waiting = [end - begin for begin, end in pairwise(near.below_start)]
    height = [0] * len(waiting)
    ready = [node for node, count in enumerate(waiting) if not count]
    settled: list[int] = []
    while ready:
        node = ready.pop()
        settled.append(node)
        here = height[node] + 1
        for other in above[start[node] : start[node + 1]]:
            if height[other] < here:
                height[other] = here
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return height, settled


def _main_ends(upwards: list[int], ends: list[int], near: Neighbours) -> list[int]:
    """Ends that matter most where they are: no node above them leads to a deeper end."""
    below, start = near.below, near.below_start
    depth = [0] * len(upwards)
    for node in reversed(upwards):
        here = depth[node] + 1
        for other in below[start[node] : start[node + 1]]:
            if depth[other] < here:
                depth[other] = here
    deepest = depth[:]  # of the ends that can be reached
    for node in upwards:
        for other in below[start[node] : start[node + 1]]:
            if deepest[other] > deepest[node]:
                deepest[node] = deepest[other]
    for node in reversed(upwards):  # ... and of the ends that any node above leads to
        here = deepest[node]
        for other in below[start[node] : start[node + 1]]:
            if deepest[other] < here:
                deepest[other] = here
    return [end for end in ends if deepest[end] == depth[end]]


def _above_all(ends: list[int], near: Neighbours) -> bytearray:
    """1 for the given nodes and everything that leads to them."""
    above, start = near.above, near.above_start
    reached = bytearray(len(start) - 1)
    nodes = list(ends)
    for end in ends:
        reached[end] = 1
    for node in nodes:  # grows while it is read
        for other in above[start[node] : start[node + 1]]:
            if not reached[other]:
                reached[other] = 1
                nodes.append(other)
    return reached


def _pull_up(rank: list[int], upwards: list[int], main: bytearray, near: Neighbours) -> None:
    """Move what does not lead to a main end right under what it is made from.

    Without this every auxiliary output would hang at the bottom of the page, at the end of a very long line.
    """
    above, above_start, below, below_start = near.above, near.above_start, near.below, near.below_start
    settled = bytearray(main)
    for node in reversed(upwards):
        if not main[node]:
            made_from = [rank[v] for v in above[above_start[node] : above_start[node + 1]] if settled[v]]
            if made_from:
                settled[node] = 1
                rank[node] = max(made_from) + 1
    for node in upwards:  # what only feeds such nodes goes just above them
        if not settled[node] and below_start[node] < below_start[node + 1]:
            rank[node] = min([rank[v] for v in below[below_start[node] : below_start[node + 1]]]) - 1


def rows_by_component(rank: Ints, component: Ints, count: int, pin: Ints) -> Ints:
    """Rows counted from 0 within each component. Ports get rows of their own, first and last."""
    inner = pin == 0
    top = by_key(np.minimum, rank[inner], component[inner], count, len(rank))
    rows = rank - top[component]  # means nothing in a line straight through a frame: nothing but ports
    bottom = by_key(np.maximum, rows[inner], component[inner], count, -1)
    has_top = np.zeros(count, np.int64)
    has_top[component[pin < 0]] = 1
    rows = np.where(pin < 0, 0, np.where(pin > 0, bottom[component] + 1, rows) + has_top[component])
    return rows.astype(np.int64, copy=False)


# -- straight edges ------------------------------------------------------------------------------------------------------

MAIN, LONG, SHORT, NONE = 0, 1, 2, 3
SHORT_LENGTH = 40  # ways of at most so many boxes no longer get rounds of their own
ROUNDS = 6


def straight_edges(
    size: int, above: Ints, below: Ints, near: Neighbours, upwards: list[int], component: Ints, entry: Mask
) -> Ints:
    """MAIN, LONG, SHORT or NONE for every edge. The chosen edges of one node are at most one up and one down.

    The longest way of a component begins at an `entry` where it has one: what comes from outside is its main stream.
    """
    finder = _WayFinder(size, near, len(above))
    ends = (counts(above, size) + counts(below, size) < 2) & ~entry
    left = upwards
    for turn in range(ROUNDS + 1):
        finder.measure(left)
        nodes = np.array(left, np.int64)
        if turn == 0:
            nodes = np.sort(nodes)  # of equal leaves the first is taken, which lies in their middle
        length = np.array(finder.length, np.int64)[nodes]
        last = turn > 0 and (turn == ROUNDS or int(length.max(initial=0)) <= SHORT_LENGTH)
        if turn == 0:
            finder.take_longest(nodes, length, component, ends, entry)
        else:
            finder.take_many(_candidates(nodes, length, component, ends, last), SHORT if last else LONG, last)
        if last:
            break
        left = [node for node in left if not finder.taken[node]]
    return finder.kind


def _candidates(nodes: Ints, length: Ints, component: Ints, ends: Mask, last: bool) -> list[int]:
    """Where ways may begin, the longest first; the first node of a leaf's own line after others of its length."""
    if not last:
        longest = by_key(np.maximum, length, component[nodes], int(component.max(initial=0)) + 1, 0)
        long = (length > SHORT_LENGTH) & (2 * length >= longest[component[nodes]])
        nodes, length = nodes[long], length[long]
    begins: list[int] = nodes[np.lexsort((ends[nodes], -length))].tolist()
    return begins


class _WayFinder:
    """Takes ways out of the graph one after another; a node belongs to at most one."""

    def __init__(self, size: int, near: Neighbours, edges: int) -> None:
        self.near = near
        self.taken = bytearray(size)
        self.length = [0] * size  # boxes on the longest way down that is free
        self.kind = np.full(edges, NONE, np.int64)

    def measure(self, left: list[int]) -> None:
        """Set `length` of the nodes left."""
        below, start, taken, length = self.near.below, self.near.below_start, self.taken, self.length
        for node in left:
            longest = 0
            for other in below[start[node] : start[node + 1]]:
                if length[other] > longest and not taken[other]:
                    longest = length[other]
            length[node] = longest + 1

    def take_longest(self, nodes: Ints, length: Ints, component: Ints, ends: Mask, entry: Mask) -> None:
        """Take the longest way of every component."""
        order = np.lexsort((ends[nodes], -length, ~entry[nodes]) if entry.any() else (ends[nodes], -length))
        seen = bytearray(int(component.max(initial=0)) + 1)
        for node, part in zip(nodes[order].tolist(), component[nodes[order]].tolist()):
            if not seen[part]:
                seen[part] = 1
                self._take(self._way(node, whole=True)[0], MAIN, node)

    def take_many(self, begins: list[int], kind: int, last: bool) -> None:
        """Take ways from these nodes. Before the last round, one whose rest is gone is left for the next round."""
        budget = len(self.taken)  # boxes walked in vain, so that a round stays linear
        for node in begins:
            if self.taken[node] or budget < 0:
                continue
            edges, complete = self._way(node, whole=not last)
            if complete or last:
                self._take(edges, kind, node)
            else:
                budget -= len(edges) + 1

    def _way(self, node: int, whole: bool) -> tuple[list[int], bool]:
        """Places in the neighbour lists of the longest free way down, and whether it is as long as was measured."""
        below, start, taken, length = self.near.below, self.near.below_start, self.taken, self.length
        places: list[int] = []
        while True:
            longest = 0
            equal: list[int] = []
            for i in range(start[node], start[node + 1]):
                other = below[i]
                if length[other] >= longest and not taken[other]:
                    if length[other] > longest:
                        longest, equal = length[other], []
                    equal.append(i)
            if whole and longest < length[node] - 1:
                return places, False
            if not equal:
                return places, True
            places.append(equal[len(equal) // 2])  # the middle one has the others on both sides
            node = below[places[-1]]

    def _take(self, places: list[int], kind: int, first: int) -> None:
        self.taken[first] = 1
        for place in places:
            self.taken[self.near.below[place]] = 1
        self.kind[self.near.below_edge[places]] = kind
