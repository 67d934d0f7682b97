"""x of every point: blocks packed to the left and packed to the right, and the mean of both.

Packing is the longest way through the graph of blocks side by side, which is exact. The classes that Brandes and Koepf
use for this step instead had two flaws (arXiv:2008.01252), so they are not used. Everything is in the space of places.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout.layered.adjacency import counts, group
from gradviz.layout.layered.alignment import (
    Constraints,
    Pieces,
    Spacing,
    block_constraints,
    choose_alignments,
    make_blocks,
    tier_of_pieces,
)
from gradviz.layout.layered.crossings import Order
from gradviz.layout.model import Floats, Ints

DRIFT = 2.5  # a component may be so many times as wide as its fullest row, before fewer columns are made straight
DRIFT_GAPS = 20  # and so many gaps wider
KEPT_TIERS = (  # by level; the last column is for pieces of no tier
    (True, True, True, True, True, False),
    (True, True, False, True, False, False),
    (True, False, False, False, False, False),
)


def first_coordinates(order: Order, pieces: Pieces, room: Spacing) -> Floats:
    """x of every place. Components whose straight columns push each other far apart get fewer of them."""
    layers = order.layers
    component = layers.component[order.at]
    limit = DRIFT * layers.packed_width + DRIFT_GAPS * layers.gap
    tier = tier_of_pieces(order)
    kept = np.array(KEPT_TIERS)
    level = np.zeros(layers.components, np.int64)
    best_x, best_width = np.zeros(len(component)), np.full(layers.components, np.inf)
    for _ in KEPT_TIERS:
        allowed = kept[level[component[pieces.above]], tier]
        vertical = choose_alignments(len(best_x), pieces, tier, allowed)
        x, width = _coordinates(component, layers.components, pieces, room, vertical)
        better = width < best_width
        best_x = np.where(better[component], x, best_x)
        best_width = np.where(better, width, best_width)
        drifting = width > limit
        if not drifting.any():
            break
        level[drifting] = np.minimum(level[drifting] + 1, len(kept) - 1)
    return best_x


def _coordinates(
    component: Ints, components: int, pieces: Pieces, room: Spacing, vertical: Ints
) -> tuple[Floats, Floats]:
    """x of every place with the given vertical pieces, and the width of every component."""
    blocks = make_blocks(len(component), pieces, vertical[vertical >= 0])
    limits = block_constraints(blocks, room)
    mirrored = Constraints(limits.right, limits.left, limits.distance)
    left = pack(blocks.total, limits)[blocks.block] + blocks.shift
    right = blocks.shift - pack(blocks.total, mirrored)[blocks.block]
    return _balance(left, right, component, components)


def _balance(left: Floats, right: Floats, component: Ints, components: int) -> tuple[Floats, Floats]:
    """The mean of two packings of each component, after moving the wider one to the near edge of the narrower."""
    left_min, left_max = _extent(left, component, components)
    right_min, right_max = _extent(right, component, components)
    narrow_left = left_max - left_min <= right_max - right_min
    move_right = np.where(narrow_left, left_min - right_min, 0.0)
    move_left = np.where(narrow_left, 0.0, right_max - left_max)
    mean = (left + move_left[component] + right + move_right[component]) / 2
    return mean, np.maximum(left_max - left_min, right_max - right_min)


def _extent(x: Floats, component: Ints, components: int) -> tuple[Floats, Floats]:
    smallest, largest = np.full(components, np.inf), np.full(components, -np.inf)
    np.minimum.at(smallest, component, x)
    np.maximum.at(largest, component, x)
    return smallest, largest


def pack(count: int, limits: Constraints) -> Floats:
    """Blocks as far left as they can be, then each as far right as the blocks right of it allow."""
    by_left = group(limits.left, count)
    start = by_left.start.tolist()
    right, distance = limits.right[by_left.order].tolist(), limits.distance[by_left.order].tolist()
    waiting = counts(limits.right, count).tolist()
    x = [0.0] * count
    ready = [block for block, n in enumerate(waiting) if not n]
    settled: list[int] = []
    while ready:
        block = ready.pop()
        settled.append(block)
        here = x[block]
        for i in range(start[block], start[block + 1]):
            other = right[i]
            if x[other] < here + distance[i]:
                x[other] = here + distance[i]
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    for block in reversed(settled):
        first, end = start[block], start[block + 1]
        if first < end:
            furthest = min([x[right[i]] - distance[i] for i in range(first, end)])
            if furthest > x[block]:
                x[block] = furthest
    return np.array(x)
