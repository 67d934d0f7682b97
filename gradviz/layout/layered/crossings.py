"""The order of points in every row, who their neighbours are, and how many edges cross between the rows.

A line is one row of one component. Places number all points through, line after line and from left to right, so that
one array describes the whole order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.grouping import (
    Groups,
    Mask,
    counts,
    group,
    place_in_group,
    places,
    starts_of,
    unsorted,
)
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.ranks import Neighbours
from gradviz.layout.model import Floats, Ints

# First orders for boxes side by side. The one from a depth-first walk upwards from the ends already has few crossings
# or none for networks made of blocks in series. Where blocks pass several values on, as recurrent networks do, others
# are better starts. Knows ranks, no coordinates.

TWIG_LENGTH = 3  # boxes


class FirstOrder(NamedTuple):
    """Sorting a row by the keys of its boxes, and those of the edges that pass it, gives its order from left to right."""

    box: Ints
    edge: Ints


def level_order(below: Ints, near: Neighbours) -> FirstOrder:
    """The order in which a breadth-first walk upwards from the ends meets the boxes."""
    size = len(near.above_start) - 1
    line = [node for node in range(size) if near.below_start[node] == near.below_start[node + 1]]
    seen = bytearray(size)
    for node in line:
        seen[node] = 1
    for node in line:  # grows while it is read
        for other in near.above[near.above_start[node] : near.above_start[node + 1]]:
            if not seen[other]:
                seen[other] = 1
                line.append(other)
    key = places(np.array(line, np.int64))
    return FirstOrder(key, key[below])


def given_order(size: int, above: Ints) -> FirstOrder:
    """The order in which the boxes were given."""
    return FirstOrder(np.arange(size), above)


def depth_order(size: int, above: Ints, below: Ints, rank: Ints, port: Mask) -> FirstOrder:
    """The order in which a depth-first walk upwards from the ends meets boxes and edges, deepest inputs first."""
    preference = _preference(size, above, below, rank, port)
    order = np.lexsort((preference, below))
    start = starts_of(counts(below, size))
    ends = np.flatnonzero(counts(above, size) == 0)
    node_key, sorted_edge_key = _walk(above[order].tolist(), start.tolist(), ends.tolist())
    return FirstOrder(np.array(node_key, np.int64), unsorted(np.array(sorted_edge_key, np.int64), order))


def _preference(size: int, above: Ints, below: Ints, rank: Ints, port: Mask) -> Floats:
    """Small values are walked first: the node farthest up. Twigs go by turns to the left and right of everything."""
    preference: Floats = rank[above] / (float(rank.max(initial=0)) + 1.0)
    from_twig = np.flatnonzero(_twigs(size, above, below, port)[above])
    place = place_in_group(below[from_twig])
    preference[from_twig] = np.where(place % 2, -1.0 - place, 2.0 + place)
    return preference


def _twigs(size: int, above: Ints, below: Ints, port: Mask) -> Mask:
    """Leaves with one use, and boxes with one use that a few of these lead to: a parameter and its transposition."""
    one_use = (counts(above, size) == 1) & ~port
    twig: Mask = one_use & (counts(below, size) == 0)
    for _ in range(TWIG_LENGTH - 1):
        other_inputs = np.zeros(size, np.bool_)
        other_inputs[below[~twig[above]]] = True
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


PORT_STEPS = 1024  # steps across a box, for edges that meet it elsewhere than in the middle
BUSY = 500  # pieces between two lines from which crossings are counted by sorting instead of pair by pair


class Order:
    """`at` is the point at every place, `place` the place of every point."""

    def __init__(self, layers: Layers, key: Ints) -> None:
        self.layers = layers
        self.line = layers.line
        self.lines = layers.lines
        self.line_start = starts_of(counts(layers.line, self.lines))
        self.sort(key)
        self.steps = PORT_STEPS if layers.ported else 1
        self.above_port = self._port(layers.above, layers.above_offset)
        self.below_port = self._port(layers.below, layers.below_offset)
        self.down: Groups = group(layers.above, layers.size)
        self.up: Groups = group(layers.below, layers.size)

    def _port(self, point: Ints, offset: Floats) -> Ints:
        """Where along its box a piece begins or ends, in steps."""
        if self.steps == 1:
            return np.zeros(len(point), np.int64)
        share = offset / (2 * self.layers.half[point]) + 0.5
        return np.clip(share * self.steps, 0, self.steps - 1).astype(np.int64)

    def sort(self, key: Ints) -> None:
        """Order every line by the keys of its points."""
        self.at = np.lexsort((key, self.line))
        self.place = places(self.at)

    def restore_places(self) -> None:
        """Set `at` from `place`."""
        self.at = places(self.place)

    def neighbours(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Places whose right neighbour is in the same line."""
        line = self.line[self.at]
        return np.flatnonzero(line[:-1] == line[1:])

    def crossings(self) -> Ints:
        """Crossings below every line."""
        crossings = np.zeros(self.lines, np.int64)
        layers = self.layers
        if not len(layers.above):
            return crossings
        upper = self.place[layers.above] * self.steps + self.above_port
        lower = self.place[layers.below] * self.steps + self.below_port
        order = np.argsort(upper * (layers.size * self.steps) + lower, kind="stable")
        lower, line = lower[order], self.line[layers.above[order]]
        size = counts(line, self.lines)
        end = np.cumsum(size)
        busy = size > BUSY
        for i in np.flatnonzero(busy).tolist():
            crossings[i] = inversions(lower[end[i] - size[i] : end[i]])
        return crossings + _pairwise(lower, line, end, ~busy, self.lines)


def _pairwise(lower: Ints, line: Ints, end: Ints, chosen: Mask, count: int) -> Ints:
    """Crossings below the chosen lines, comparing every piece with the next, then the next but one, and so on."""
    crossings = np.zeros(count, np.int64)
    end_of = end[line]
    here = np.flatnonzero(chosen[line])
    step = 0
    while True:
        step += 1
        here = here[here + step < end_of[here]]
        if not len(here):
            return crossings
        crossed = here[lower[here] > lower[here + step]]
        crossings += counts(line[crossed], count)


def inversions(values: Ints) -> int:
    """Number of pairs i < j with values[i] > values[j], by merging sorted runs of doubling length.

    >>> inversions(np.array([2, 0, 1]))
    2
    """
    _, rank = np.unique(values, return_inverse=True)
    values = rank.astype(np.int64)
    n, total, width = len(values), 0, 1
    place = np.arange(n)
    while width < n:
        block, right = place // (2 * width), (place // width) % 2
        order = np.argsort((block * n + values) * 2 + right, kind="stable")
        left = right[order] == 0
        block = block[order]
        in_left = np.bincount(block, weights=left).astype(np.int64)
        passed = np.cumsum(left) - (np.cumsum(in_left) - in_left)[block]
        total += int((in_left[block] - passed)[~left].sum())
        values = values[order]
        width *= 2
    return total
