"""Which edges should be straight: the longest way through each component first, then other long ways, then short ones.

This is the step that keeps a deep drawing narrow. Where columns are made of whole ways through the network, a block is
drawn the same way every time it occurs; where each box is aligned with its nearest neighbours instead, every block
shifts the main stream a little and the drawing slides sideways as it gets deeper. Knows only the graph, no coordinates.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout.layered.adjacency import Mask, counts
from gradviz.layout.layered.ranks import Neighbours
from gradviz.layout.model import Ints

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
        longest = np.zeros(int(component.max(initial=0)) + 1, np.int64)
        np.maximum.at(longest, component[nodes], length)
        long = (length > SHORT_LENGTH) & (2 * length >= longest[component[nodes]])
        nodes, length = nodes[long], length[long]
    found: list[int] = nodes[np.lexsort((ends[nodes], -length))].tolist()
    return found


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
