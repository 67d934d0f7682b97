"""What the graph alone decides: which row each box lies in, and which edges should be
straight.

A box lies as near to what uses it as possible, side outputs right under what makes
them. Straight is the longest way through each component. This is what keeps a deep
drawing narrow: a block is drawn the same way every time it occurs; where each box is
aligned with its nearest neighbours instead, every block shifts the main stream a little
and the drawing slides sideways as it gets deeper.

Rows count downwards from 0. Knows nothing of sizes, of coordinates or of crossings.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, by_key
from gradviz.layout.layered.neighbours import Neighbours
from gradviz.layout.layered.sheet import BOTTOM, FREE, TOP

FRAMED = 100.0  # px: boxes of this height are drawings themselves


def choose_rows(near: Neighbours, component: Ints, heights: Floats, pin: Ints) -> Ints:
    """The row of every box, counted from 0 within its component. Ports get rows of their
    own, first and last.
    """
    rank = np.array(_ranks(near, component), np.int64)
    rank = _with_siblings_level(rank, near, heights, component)
    count, is_top, is_bottom = len(rank), pin == TOP, pin == BOTTOM
    inner = pin == FREE
    first = by_key(np.minimum, rank[inner], component[inner], count, count)
    # means nothing of a component of ports alone, as of a line straight through a frame
    row = rank - first[component]
    last = by_key(np.maximum, row[inner], component[inner], count, -1)
    row = np.where(is_bottom, last[component] + 1, row)
    has_top = np.zeros(count, np.int64)
    has_top[component[is_top]] = 1
    return np.where(is_top, 0, row + has_top[component])


def _ranks(near: Neighbours, component: Ints) -> list[int]:
    """Ranks by the distance to the end, but what does not lead to a main end is right
    under what it is made from.

    Otherwise every auxiliary output would hang at the bottom of the page, at the end of
    a very long line.
    """
    height, upwards = near.heights
    deepest = max(height, default=0)
    rank = [deepest - h for h in height]
    leads_to_main = _main_ends(near, component)
    for node in upwards:
        leads_to_main[node] |= any(leads_to_main[other] for other in near.below[node])

    settled = leads_to_main.copy()
    for node in reversed(upwards):
        if not leads_to_main[node]:
            made_from = [rank[v] for v in near.above[node] if settled[v]]
            # right below the lowest op that it is made from
            if made_from:
                settled[node] = True
                rank[node] = max(made_from) + 1

    for node in upwards:  # what only feeds such nodes goes just above them
        users = [] if settled[node] else near.below[node]
        if users:
            rank[node] = min([rank[v] for v in users]) - 1
    return rank


def _main_ends(near: Neighbours, component: Ints) -> list[bool]:
    """True for the deepest ends of each component: the loss belongs at the bottom, an
    auxiliary output beside its op.
    """
    depth = [0] * near.size
    for node in reversed(near.heights[1]):
        for other in near.below[node]:
            depth[other] = max(depth[other], depth[node] + 1)

    reached = np.array(depth, np.int64)
    deepest = by_key(np.maximum, reached, component, near.size, 0)
    is_main: list[bool] = (reached == deepest[component]).tolist()
    return is_main


def _with_siblings_level(
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


# -- straight edges --------------------------------------------------------------------


def longest_ways(near: Neighbours, component: Ints, entry: Mask) -> Mask:
    """True for the straight edges on the longest way down through each component.

    It begins at an `entry` where there is one: what comes from outside is the main
    stream. Of equal ways it is the one in the middle.
    """
    height = np.array(near.heights[0], np.int64)
    # of several entries not one that goes everywhere, as an embedding of time does; of
    # other beginnings not one that is used once
    later = np.where(entry, near.uses > 2, near.uses + near.inputs < 2)
    order = np.lexsort((later, -height, ~entry, component))
    first = np.flatnonzero(np.diff(component[order])) + 1
    straight = np.zeros(len(near.upper), np.bool_)

    for nodes in np.split(order, first) if len(order) else ():
        begin = nodes[0]
        if not entry[begin]:
            is_equal = (height[nodes] == height[begin]) & (later[nodes] == later[begin])
            equal = nodes[is_equal]
            begin = equal[len(equal) // 2]
        straight[_way_down(near, int(begin))] = True
    return straight


def _way_down(near: Neighbours, node: int) -> list[int]:
    """The edges of a longest way from a node."""
    length = near.heights[0]
    way: list[int] = []
    while length[node]:
        least = length[node] - 1
        lower = zip(near.edges_below[node], near.below[node])
        equal = [(edge, other) for edge, other in lower if length[other] == least]
        edge, node = equal[len(equal) // 2]
        way.append(edge)
    return way
