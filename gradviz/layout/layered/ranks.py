"""What the graph alone decides: which row each box lies in, which edges should be
straight, and first orders within rows.

A box lies as near to what uses it as possible, side outputs right under what makes
them. Straight is the longest way through each component. This is what keeps a deep
drawing narrow: a block is drawn the same way every time it occurs; where each box is
aligned with its nearest neighbours instead, every block shifts the main stream a little
and the drawing slides sideways as it gets deeper.

Rows count downwards from 0. Knows nothing of sizes, of coordinates or of crossings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import (
    Mask,
    by_key,
    counts,
    first_of_runs,
    group,
    place_in_group,
)


@dataclass
class Neighbours:
    """A graph: both ends of every edge, and the nodes below and above each, as plain
    lists, which Python loops read faster than arrays.
    """

    size: int
    upper: Ints
    lower: Ints
    below: list[list[int]]
    above: list[list[int]]

    def ends(self) -> list[int]:
        """The nodes with nothing below them."""
        return [node for node, below in enumerate(self.below) if not below]

    @cached_property
    def heights(self) -> tuple[list[int], list[int]]:
        """Longest way down from every node, and the order in which that was settled. Nodes
        on cycles are never settled.
        """
        waiting = [len(below) for below in self.below]
        height = [0] * self.size
        ready = self.ends()
        settled: list[int] = []

        while ready:
            node = ready.pop()
            settled.append(node)
            least = height[node] + 1
            for other in self.above[node]:
                if height[other] < least:
                    height[other] = least
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)

        return height, settled


def neighbours(size: int, upper: Ints, lower: Ints) -> Neighbours:
    """Neighbour lists of a graph."""
    down, up = group(upper, size), group(lower, size)
    below, above = lower[down.order], upper[up.order]
    lists = _cut(below, down.start), _cut(above, up.start)
    return Neighbours(size, upper, lower, *lists)


def _cut(values: Ints, start: Ints) -> list[list[int]]:
    """Values in lists that begin at these places."""
    every = values.tolist()
    return [every[first:end] for first, end in pairwise(start.tolist())]


def rank_nodes(near: Neighbours, component: Ints) -> Ints:
    """Rank by the distance to the end."""
    height, upwards = near.heights
    deepest = max(height, default=0)
    rank = [deepest - h for h in height]
    main = _main_ends(near, upwards, component)
    _pull_up(rank, upwards, main, near)
    return np.array(rank, np.int64)


def stream_order(near: Neighbours) -> Ints:
    """The same for a graph with cycles: what leads to one has no such distance, and
    comes first.
    """
    height, settled = near.heights
    order = np.full(near.size, -near.size)
    order[settled] = -np.array(height)[settled]
    return order


def _main_ends(near: Neighbours, upwards: list[int], component: Ints) -> list[int]:
    """The deepest ends of each component: the loss belongs at the bottom, an auxiliary
    output beside its op.
    """
    depth = [0] * near.size
    for node in reversed(upwards):
        for other in near.below[node]:
            depth[other] = max(depth[other], depth[node] + 1)

    reached = np.array(depth, np.int64)
    deepest = by_key(np.maximum, reached, component, near.size, 0)
    return np.flatnonzero(reached == deepest[component]).tolist()


def _pull_up(
    rank: list[int], upwards: list[int], main: list[int], near: Neighbours
) -> None:
    """Move what does not lead to a main end right under what it is made from.

    Without this every auxiliary output would hang at the bottom of the page, at the end
    of a very long line.
    """
    leads_to_main = bytearray(near.size)
    for node in main:
        leads_to_main[node] = 1
    for node in upwards:
        leads_to_main[node] |= any(leads_to_main[other] for other in near.below[node])

    settled = bytearray(leads_to_main)
    for node in reversed(upwards):
        if not leads_to_main[node]:
            made_from = [rank[v] for v in near.above[node] if settled[v]]
            # right below the lowest op that it is made from
            if made_from:
                settled[node] = 1
                rank[node] = max(made_from) + 1

    for node in upwards:  # what only feeds such nodes goes just above them
        users = [] if settled[node] else near.below[node]
        if users:
            rank[node] = min([rank[v] for v in users]) - 1


FRAMED = 100.0  # px: boxes of this height are drawings themselves


def with_siblings_level(
    rank: Ints, near: Neighbours, heights: Floats, component: Ints
) -> Ints:
    """Ranks in which boxes that are alike stand on one level: those of one height that
    are made from the same boxes, or from boxes that are alike in the same way.

    Queries, keys and values, mu and logvar, the gates of a cell, the experts of a
    mixture: each lies as near to what uses it as possible otherwise.
    """
    row: list[int] = rank.tolist()
    class_of = list(range(near.size))
    first_of_class: dict[object, int] = {}

    for node in np.argsort(rank, kind="stable").tolist():
        above = near.above[node]
        height = round(float(heights[node]))
        if above:
            alike: object = (height, frozenset([class_of[other] for other in above]))
        elif height >= FRAMED:
            alike = (height, int(component[node]))
        else:
            continue  # a leaf stands beside what uses it

        first = first_of_class.setdefault(alike, node)
        class_of[node], row[node] = first, row[first]

    return np.array(row, np.int64)


def rows_by_component(rank: Ints, component: Ints, count: int, pin: Ints) -> Ints:
    """Rows counted from 0 within each component. Ports get rows of their own, first and
    last.
    """
    inner = pin == 0
    top = by_key(np.minimum, rank[inner], component[inner], count, len(rank))
    # means nothing in a line straight through a frame: nothing but ports
    rows = rank - top[component]
    bottom = by_key(np.maximum, rows[inner], component[inner], count, -1)
    has_top = np.zeros(count, np.int64)
    has_top[component[pin < 0]] = 1
    rows = np.where(
        pin < 0, 0, np.where(pin > 0, bottom[component] + 1, rows) + has_top[component]
    )

    return rows.astype(np.int64, copy=False)


# -- straight edges --------------------------------------------------------------------


def longest_ways(near: Neighbours, component: Ints, entry: Mask) -> Mask:
    """True for the straight edges on the longest way down through each component.

    It begins at an `entry` where there is one: what comes from outside is the main
    stream. Of equal ways it is the one in the middle.
    """
    down = group(near.upper, near.size)
    edges, length = _cut(down.order, down.start), near.heights[0]
    height = np.array(length, np.int64)
    straight = np.zeros(len(near.upper), np.bool_)

    uses = counts(near.upper, near.size)
    # of several entries not one that goes everywhere, as an embedding of time does; of
    # other beginnings not one that is used once
    later = np.where(entry, uses > 2, uses + counts(near.lower, near.size) < 2)
    order = np.lexsort((later, -height, ~entry, component))
    first = first_of_runs(component[order])

    for nodes in np.split(order, first[1:]) if len(order) else ():
        node = int(nodes[0])
        if not entry[node]:
            equal_ones = (height[nodes] == height[node]) & (later[nodes] == later[node])
            nodes = nodes[equal_ones]
            node = int(nodes[len(nodes) // 2])
        way: list[int] = []
        while length[node]:
            least = length[node] - 1
            # `below` lists the lower ends in the order of the edges
            lower = zip(edges[node], near.below[node])
            equal = [(edge, other) for edge, other in lower if length[other] == least]
            edge, node = equal[len(equal) // 2]
            way.append(edge)
        straight[way] = True

    return straight


# -- first orders ----------------------------------------------------------------------

# First orders for boxes side by side. The one from a depth-first walk upwards from the
# ends already has few crossings or none for networks made of blocks in series. Where
# blocks pass several values on, as recurrent networks do, others are better starts.


class FirstOrder(NamedTuple):
    """Sorting a row by the keys of its boxes, and those of the edges that pass it,
    gives its order from left to right.
    """

    box: Ints
    edge: Ints


def given_order(near: Neighbours) -> FirstOrder:
    """The order in which the boxes were given."""
    return FirstOrder(np.arange(near.size), near.upper)


def depth_order(near: Neighbours, rank: Ints, port: Mask, main: Mask) -> FirstOrder:
    """The order in which a depth-first walk upwards from the ends meets boxes and
    edges, deepest inputs first.
    """
    order = np.lexsort((_preference(near, rank, port, main), near.lower))
    rest = [iter(edges) for edges in _cut(order, group(near.lower, near.size).start)]
    above = near.upper.tolist()
    node_key, edge_key = [-1] * near.size, [0] * len(above)
    clock = 0

    for end in near.ends():
        node_key[end] = clock
        stack = [end]
        while stack:
            edge = next(rest[stack[-1]], None)
            if edge is None:
                stack.pop()
                continue
            clock += 1
            edge_key[edge] = clock
            other = above[edge]
            if node_key[other] < 0:
                clock += 1
                node_key[other] = clock
                stack.append(other)
        clock += 1

    return FirstOrder(np.array(node_key, np.int64), np.array(edge_key, np.int64))


def _preference(near: Neighbours, rank: Ints, port: Mask, main: Mask) -> Floats:
    """Small values are walked first: the node farthest up. Leaves with one use go by
    turns to the right and left of the main stream.
    """
    preference: Floats = rank[near.upper] / (float(rank.max(initial=0)) + 1.0)
    uses, inputs = counts(near.upper, near.size), counts(near.lower, near.size)
    leaf = (uses == 1) & (inputs == 0) & ~port
    beside = np.flatnonzero(leaf[near.upper] & ~main & (inputs[near.lower] > 1))
    place = place_in_group(near.lower[beside])
    preference[beside] = np.where(place % 2, -1.0 - place, 2.0 + place)
    return preference
