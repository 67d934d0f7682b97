"""First orders for boxes side by side.

The one from a depth-first walk upwards from the ends already has few crossings or none for networks made of blocks in
series. Where blocks pass several values on, as recurrent networks do, others are better starts. Knows ranks, no
coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import Mask, counts, place_in_group, starts_of
from gradviz.layout.layered.ranks import Neighbours
from gradviz.layout.model import Floats, Ints

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
    key = np.empty(size, np.int64)
    key[line] = np.arange(size)
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
    edge_key = np.empty(len(above), np.int64)
    edge_key[order] = sorted_edge_key
    return FirstOrder(np.array(node_key, np.int64), edge_key)


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
