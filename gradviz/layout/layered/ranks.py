"""What the graph alone decides: which row each box lies in, which edges should be straight, and first orders within rows.

A box lies as near to what uses it as possible, side outputs right under what makes them. Straight is the longest way through
each component first, then other long ways, then short ones. This is what keeps a deep drawing narrow: where columns are made of
whole ways through the network, a block is drawn the same way every time it occurs; where each box is aligned with its nearest
neighbours instead, every block shifts the main stream a little and the drawing slides sideways as it gets deeper.

Rows count downwards from 0. Knows nothing of sizes, of coordinates or of crossings.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.layout import CycleError, Floats, Ints
from gradviz.layout.layered.grouping import Mask, by_key, counts, group, place_in_group, places, unsorted


class Neighbours(NamedTuple):
    """A graph, and both of its directions as plain lists, which Python loops read faster than arrays.

    The nodes below v are `below[below_start[v]:below_start[v + 1]]`, by edges `below_edge` in the same range.
    """

    size: int
    upper: Ints  # of every edge
    lower: Ints
    below: list[int]
    below_start: list[int]
    below_edge: Ints
    above: list[int]
    above_start: list[int]

    def ends(self) -> list[int]:
        """The nodes with nothing below them."""
        return [node for node, (start, end) in enumerate(pairwise(self.below_start)) if start == end]

    def upwards_from(self, ends: list[int]) -> list[int]:
        """These nodes and all above them, as a breadth-first walk meets them."""
        met = list(ends)
        seen = bytearray(self.size)
        for end in ends:
            seen[end] = 1
        for node in met:  # grows while it is read
            for other in self.above[self.above_start[node] : self.above_start[node + 1]]:
                if not seen[other]:
                    seen[other] = 1
                    met.append(other)
        return met


class Ranking(NamedTuple):
    """Row of every node, and the nodes in an order in which each comes after all nodes below it."""

    rank: Ints
    upwards: list[int]


def neighbours(size: int, upper: Ints, lower: Ints) -> Neighbours:
    """Neighbour lists of a graph."""
    down, up = group(upper, size), group(lower, size)
    below, above = lower[down.order].tolist(), upper[up.order].tolist()
    return Neighbours(size, upper, lower, below, down.start.tolist(), down.order, above, up.start.tolist())


def rank_nodes(near: Neighbours) -> Ranking:
    """Rank by the distance to the end; raises Cycle when the edges form one."""
    height, upwards = heights(near)
    if len(upwards) < len(height):
        raise CycleError("the edges form a cycle, so the boxes cannot be placed in rows")
    deepest = max(height, default=0)
    rank = [deepest - h for h in height]
    ends = near.ends()
    if len(ends) > 1:
        _pull_up(rank, upwards, near.upwards_from(_main_ends(upwards, ends, near)), near)
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
    _hand_down(depth, upwards, near, 1)
    deepest = depth[:]  # of the ends that can be reached
    for node in upwards:
        for other in below[start[node] : start[node + 1]]:
            if deepest[other] > deepest[node]:
                deepest[node] = deepest[other]
    _hand_down(deepest, upwards, near, 0)  # ... and of the ends that any node above leads to
    return [end for end in ends if deepest[end] == depth[end]]


def _hand_down(values: list[int], upwards: list[int], near: Neighbours, more: int) -> None:
    """Raise the value of every node to the largest above it and `more`."""
    below, start = near.below, near.below_start
    for node in reversed(upwards):
        here = values[node] + more
        for other in below[start[node] : start[node + 1]]:
            if values[other] < here:
                values[other] = here


def _pull_up(rank: list[int], upwards: list[int], main: list[int], near: Neighbours) -> None:
    """Move what does not lead to a main end right under what it is made from.

    Without this every auxiliary output would hang at the bottom of the page, at the end of a very long line.
    """
    above, above_start, below, below_start = near.above, near.above_start, near.below, near.below_start
    leads_to_main = bytearray(len(rank))
    for node in main:
        leads_to_main[node] = 1
    settled = bytearray(leads_to_main)
    for node in reversed(upwards):
        if not leads_to_main[node]:
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


def straight_edges(near: Neighbours, upwards: list[int], component: Ints, entry: Mask) -> Ints:
    """MAIN, LONG, SHORT or NONE for every edge. The chosen edges of one node are at most one up and one down.

    The longest way of a component begins at an `entry` where it has one: what comes from outside is its main stream.
    """
    finder = _WayFinder(near)
    ends = (counts(near.upper, near.size) + counts(near.lower, near.size) < 2) & ~entry
    finder.measure(upwards)
    finder.take_longest(component, ends, entry)
    left = upwards
    for turn in range(1, ROUNDS + 1):
        left = [node for node in left if not finder.taken[node]]
        finder.measure(left)
        nodes = np.array(left, np.int64)
        length = np.array(finder.length, np.int64)[nodes]
        last = turn == ROUNDS or int(length.max(initial=0)) <= SHORT_LENGTH
        finder.take_many(_candidates(nodes, length, component, ends, last), SHORT if last else LONG, last)
        if last:
            break
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

    def __init__(self, near: Neighbours) -> None:
        self.near = near
        self.taken = bytearray(near.size)
        self.length = [0] * near.size  # boxes on the longest way down that is free
        self.kind = np.full(len(near.upper), NONE, np.int64)

    def measure(self, left: list[int]) -> None:
        """Set `length` of the nodes left."""
        below, start, taken, length = self.near.below, self.near.below_start, self.taken, self.length
        for node in left:
            longest = 0
            for other in below[start[node] : start[node + 1]]:
                if length[other] > longest and not taken[other]:
                    longest = length[other]
            length[node] = longest + 1

    def take_longest(self, component: Ints, ends: Mask, entry: Mask) -> None:
        """Take the longest way of every component; of equal leaves the first, which lies in their middle."""
        begins = np.lexsort((ends, -np.array(self.length, np.int64), ~entry))
        _, first = np.unique(component[begins], return_index=True)
        for node in begins[first].tolist():
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


# -- first orders --------------------------------------------------------------------------------------------------------

# First orders for boxes side by side. The one from a depth-first walk upwards from the ends already has few crossings
# or none for networks made of blocks in series. Where blocks pass several values on, as recurrent networks do, others
# are better starts.

TWIG_LENGTH = 3  # boxes


class FirstOrder(NamedTuple):
    """Sorting a row by the keys of its boxes, and those of the edges that pass it, gives its order from left to right."""

    box: Ints
    edge: Ints


def level_order(near: Neighbours) -> FirstOrder:
    """The order in which a breadth-first walk upwards from the ends meets the boxes."""
    key = places(np.array(near.upwards_from(near.ends()), np.int64))
    return FirstOrder(key, key[near.lower])


def given_order(near: Neighbours) -> FirstOrder:
    """The order in which the boxes were given."""
    return FirstOrder(np.arange(near.size), near.upper)


def depth_order(near: Neighbours, rank: Ints, port: Mask) -> FirstOrder:
    """The order in which a depth-first walk upwards from the ends meets boxes and edges, deepest inputs first."""
    order = np.lexsort((_preference(near, rank, port), near.lower))
    node_key, sorted_edge_key = _walk(near.upper[order].tolist(), near.above_start, near.ends())
    return FirstOrder(np.array(node_key, np.int64), unsorted(np.array(sorted_edge_key, np.int64), order))


def _preference(near: Neighbours, rank: Ints, port: Mask) -> Floats:
    """Small values are walked first: the node farthest up. Twigs go by turns to the left and right of everything."""
    preference: Floats = rank[near.upper] / (float(rank.max(initial=0)) + 1.0)
    from_twig = np.flatnonzero(_twigs(near, port)[near.upper])
    place = place_in_group(near.lower[from_twig])
    preference[from_twig] = np.where(place % 2, -1.0 - place, 2.0 + place)
    return preference


def _twigs(near: Neighbours, port: Mask) -> Mask:
    """Leaves with one use, and boxes with one use that a few of these lead to: a parameter and its transposition."""
    one_use = (counts(near.upper, near.size) == 1) & ~port
    twig: Mask = one_use & (counts(near.lower, near.size) == 0)
    for _ in range(TWIG_LENGTH - 1):
        other_inputs = np.zeros(near.size, np.bool_)
        other_inputs[near.lower[~twig[near.upper]]] = True
        twig = one_use & ~other_inputs
    return twig


def _walk(above: list[int], start: list[int], ends: list[int]) -> tuple[list[int], list[int]]:
    """Number nodes and edges in the order a depth-first walk meets them. The edges into v are start[v]..start[v+1]."""
    node_key = [-1] * (len(start) - 1)
    edge_key = [0] * len(above)
    upcoming = start[:-1]
    clock = 0
    for end in ends:
        node_key[end] = clock
        stack = [end]
        while stack:
            node = stack[-1]
            edge = upcoming[node]
            if edge == start[node + 1]:
                stack.pop()
                continue
            upcoming[node] = edge + 1
            clock += 1
            edge_key[edge] = clock
            other = above[edge]
            if node_key[other] < 0:
                clock += 1
                node_key[other] = clock
                stack.append(other)
        clock += 1
    return node_key, edge_key
