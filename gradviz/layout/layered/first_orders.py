"""First orders for boxes side by side.

The one from a depth-first walk upwards from the ends already has few crossings or none
for networks made of blocks in series. Where blocks pass several values on, as recurrent
networks do, others are better starts.

An order is a key for each box, and then for each bend, which has that of its edge:
sorting a row by them gives its order from left to right.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, place_in_group
from gradviz.layout.layered.neighbours import Neighbours


def given_order(near: Neighbours, bend_edge: Ints) -> Ints:
    """The order in which the boxes were given."""
    return np.append(np.arange(near.size), near.upper[bend_edge])


def depth_order(
    near: Neighbours, bend_edge: Ints, rank: Ints, port: Mask, main: Mask
) -> Ints:
    """The order in which a depth-first walk upwards from the ends meets boxes and
    edges, deepest inputs first.
    """
    preference = _preference(near, rank, port, main).tolist().__getitem__
    rest = [iter(sorted(edges, key=preference)) for edges in near.edges_above]
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

    return np.append(
        np.array(node_key, np.int64), np.array(edge_key, np.int64)[bend_edge]
    )


def _preference(near: Neighbours, rank: Ints, port: Mask, main: Mask) -> Floats:
    """Small values are walked first: the node farthest up. Leaves with one use go by
    turns to the right and left of the main stream.
    """
    preference: Floats = rank[near.upper] / (float(rank.max(initial=0)) + 1.0)
    leaf = (near.uses == 1) & (near.inputs == 0) & ~port
    beside = np.flatnonzero(leaf[near.upper] & ~main & (near.inputs[near.lower] > 1))
    place = place_in_group(near.lower[beside])
    preference[beside] = np.where(place % 2, -1.0 - place, 2.0 + place)
    return preference
