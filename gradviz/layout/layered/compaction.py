"""x of every point: blocks packed to the left and packed to the right, and the mean of both.

Packing is the longest way through the graph of blocks side by side, which is exact. The classes that Brandes and Koepf
use for this step instead had two flaws (arXiv:2008.01252), so they are not used. Everything is in the space of places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import Mask, counts, group
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


class Straightness(NamedTuple):
    """Which tiers of pieces may become vertical, and whether boxes are centred on each other instead of on their ports."""

    tiers: tuple[bool, ...]  # the last entry is for pieces of no tier
    centred: bool


LEVELS = (
    Straightness((True, True, True, True, True, False), False),
    Straightness((True, True, True, True, True, False), True),
    Straightness((True, True, False, True, False, False), True),
    Straightness((True, False, False, False, False, False), True),
)


def first_coordinates(order: Order, pieces: Pieces, room: Spacing) -> tuple[Floats, Mask]:
    """x of every place, and for every piece whether it was to be vertical at its ports.

    Components whose straight columns push each other far apart get fewer of them. A stack of frames that lines leave
    further to the right than they entered would slide to the left: these frames are centred on each other.
    """
    layers = order.layers
    component = layers.component[order.at]
    limit = DRIFT * layers.packed_width + DRIFT_GAPS * layers.gap
    levels = LEVELS if layers.ported else (LEVELS[0], *LEVELS[2:])  # without ports the first two are the same
    tier, tiers = tier_of_pieces(order), np.array([straight.tiers for straight in levels])
    level, of_piece = np.zeros(layers.components, np.int64), component[pieces.above]
    best_x, best_width, best_level = np.zeros(len(component)), np.full(layers.components, np.inf), level.copy()
    centred = np.array([straight.centred for straight in levels])
    for turn in range(len(levels)):
        now = pieces._replace(shift=np.where(centred[level[of_piece]], 0.0, pieces.shift))
        vertical = choose_alignments(len(best_x), pieces, tier, tiers[level[of_piece], tier])
        x, width = _coordinates(component, layers.components, now, room, vertical)
        better = width < best_width
        best_x = np.where(better[component], x, best_x)
        best_width, best_level = np.where(better, width, best_width), np.where(better, level, best_level)
        drifting = width > limit
        if not drifting.any():
            break
        level[drifting] = min(turn + 1, len(levels) - 1)
    return best_x, ~centred[best_level[of_piece]] | (pieces.shift == 0)


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
