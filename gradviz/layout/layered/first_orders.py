"""First orders for boxes side by side.

The one from a depth-first walk upwards from the ends already has few crossings or none
for networks made of blocks in series. Where blocks pass several values on, as recurrent
networks do, others are better starts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, counts, place_in_group
from gradviz.layout.layered.neighbours import Neighbours


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
