"""x of every point: straight blocks packed to the left and packed to the right, the
mean of both, and its polish.

A block is what shares one vertical line in neighbouring rows. The greedy scan for
alignments that do not cross is the one of Brandes and Koepf, "Fast and Simple
Horizontal Coordinate Assignment" (2001), done for all rows at once with running maxima.
Packing is the longest way through the graph of blocks side by side, which is exact. The
classes of blocks that they use for it instead had two flaws (corrected in 2020,
arXiv:2008.01252), so they are not used. Everything is in the space of places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import (
    Mask,
    by_key,
    counts,
    distinct_pairs,
    follow_adding,
    numbered,
)
from gradviz.layout.layered.layers import BEND_GAP, Layers
from gradviz.layout.layered.neighbours import Neighbours
from gradviz.layout.layered.ordering import Order

TIERS = 3


class Blocks(NamedTuple):
    """Places grouped into rigid blocks: the x of a place is that of its block plus its
    shift.
    """

    block: Ints
    shift: Floats
    total: int


class Pairs(NamedTuple):
    """Places or blocks in pairs, and how far right of the first the second has to be:
    above and below each other exactly as far, beside each other at least.
    """

    first: Ints
    second: Ints
    distance: Floats

    def of_blocks(self, blocks: Blocks) -> Pairs:
        """The same for the blocks of places."""
        first, second, distance = self
        block, shift, _ = blocks
        distance = distance + shift[first] - shift[second]
        return Pairs(block[first], block[second], distance)


def x_of_points(order: Order, gap: float) -> Floats:
    """Where the middle of every point is. Components do not touch each other, so x counts
    in each from anywhere.
    """
    above, below, above_offset, below_offset, _ = order.layers.pieces
    offset = above_offset - below_offset
    links = Pairs(order.place[above], order.place[below], offset)
    tier, room = _tiers(order.layers), _spacing(order, gap)
    x = _first_coordinates(links, tier, room, len(order.at))
    return _relax(x, links, tier < TIERS, room)[order.place]


def _tiers(layers: Layers) -> Ints:
    """How early each piece may become straight: longest way, bend chains, lone pieces."""
    above, below, _, _, main = layers.pieces
    down, up = counts(above, layers.size), counts(below, layers.size)
    tier = np.full(len(above), TIERS)
    # the only one at either of its ends
    tier[np.maximum(down[above], up[below]) == 1] = 2
    # between two bend points
    tier[np.minimum(above, below) >= layers.boxes] = 1
    # the longest way down is what a reader follows
    tier[main] = 0
    return tier


def _choose_alignments(places: int, links: Pairs, tier: Ints) -> Ints:
    """For every place the link up from it that will be vertical, or -1. No two of them
    cross or share an end.
    """
    partner = np.full(places, -1, np.int64)
    chosen = np.full(places, -1, np.int64)

    for value in range(TIERS):
        link = np.flatnonzero(tier == value)
        if not len(link):
            continue
        link_to = np.full(places, -1, np.int64)
        link_to[links.second[link]] = link
        wanted = np.where(link_to < 0, -1, links.first[link_to])
        # two lines that cross cannot both be vertical, and earlier tiers come first
        taken = _accept(partner, wanted)
        partner[taken], chosen[taken] = wanted[taken], link_to[taken]

    return chosen


def _accept(partner: Ints, wanted: Ints) -> Mask:
    """Wanted partners that cross nothing accepted before, scanning from the left within
    themselves.
    """
    places = len(partner)
    from_right = np.where(partner >= 0, partner, places)[::-1]
    after = np.minimum.accumulate(from_right)[::-1]
    after = np.append(after[1:], places)
    is_free = (wanted > _largest_before(partner)) & (wanted < after)
    wanted = np.where((partner < 0) & is_free, wanted, -1)
    return wanted > _largest_before(wanted)


def _largest_before(values: Ints) -> Ints:
    """The largest of all values before each; -1 before the first."""
    return np.append(-1, np.maximum.accumulate(values)[:-1])


def _make_blocks(places: int, links: Pairs, vertical: Ints) -> Blocks:
    """Join the ends of the given links. At most one of them may begin and one end at a
    place.
    """
    root, step = np.arange(places), np.zeros(places)
    root[links.second[vertical]] = links.first[vertical]
    step[links.second[vertical]] = links.distance[vertical]
    root, shift = follow_adding(root, step)
    block, total = numbered(root)
    return Blocks(block, shift, total)


def _spacing(order: Order, gap: float) -> Pairs:
    """Least distances between all neighbours."""
    left = order.neighbours()
    half, is_bend = order.layers.half[order.at], order.at >= order.layers.boxes
    room = np.where(is_bend[left] & is_bend[left + 1], gap * BEND_GAP, gap)
    return Pairs(left, left + 1, half[left] + half[left + 1] + room)


def _limits(blocks: Blocks, room: Pairs) -> Pairs:
    """What the distances between neighbours mean for their blocks, each pair once."""
    first, second, distance = room.of_blocks(blocks)
    left, right, index = distinct_pairs(np.array([first, second]), blocks.total)
    least = by_key(np.maximum, distance, index, len(left), -np.inf)
    return Pairs(left, right, least)


# -- packing ---------------------------------------------------------------------------


def _first_coordinates(links: Pairs, tier: Ints, room: Pairs, places: int) -> Floats:
    """x of every place: the mean of two packings."""
    vertical = _choose_alignments(places, links, tier)
    blocks = _make_blocks(places, links, vertical[vertical >= 0])
    limits = _limits(blocks, room)
    # the same packing from the right: the mean of both leans to neither side
    mirrored = Pairs(limits.second, limits.first, limits.distance)
    left = _pack(blocks.total, limits)[blocks.block] + blocks.shift
    right = blocks.shift - _pack(blocks.total, mirrored)[blocks.block]
    return (left + right) / 2


def _pack(count: int, limits: Pairs) -> Floats:
    """Blocks as far left as they can be, then each as far right as the blocks right of
    it allow.
    """
    near = Neighbours(count, limits.first, limits.second)
    distance = limits.distance.tolist()
    beside = [list(zip(*lists)) for lists in zip(near.below, near.edges_below)]
    _, from_right = near.heights
    x = [0.0] * count

    for block in reversed(from_right):
        for other, limit in beside[block]:
            x[other] = max(x[other], x[block] + distance[limit])

    # back from the right, to close the gaps that packing to the left has opened
    for block in from_right:
        furthest = [x[other] - distance[limit] for other, limit in beside[block]]
        x[block] = max(x[block], min(furthest, default=0.0))

    return np.array(x)


# -- polish ----------------------------------------------------------------------------

RELAX_ROUNDS = 72
STRAIGHT, SWING = 0.01, 1.0  # px


def _relax(x: Floats, links: Pairs, straight: Mask, room: Pairs) -> Floats:
    """Better x for every place: runs of links that should be straight, and are, move
    all at once to the mean of what they join.
    """
    bend = x[links.first] + links.distance - x[links.second]
    vertical = straight & (np.abs(bend) < STRAIGHT)
    blocks = _make_blocks(len(x), links, np.flatnonzero(vertical))
    pulls, limits = links.of_blocks(blocks), _limits(blocks, room)
    between = pulls.first != pulls.second
    pulls = Pairs(*(column[between] for column in pulls))
    block_x = np.zeros(blocks.total)
    block_x[blocks.block] = x - blocks.shift

    for _ in range(RELAX_ROUNDS):
        step = _relaxing_step(block_x, pulls, limits)
        block_x += step
        if np.abs(step).max(initial=0.0) < STRAIGHT:
            break
    # two blocks that join each other alone change sides for ever
    if np.abs(step).max(initial=0.0) > SWING:
        block_x -= step / 2

    return block_x[blocks.block] + blocks.shift


def _relaxing_step(x: Floats, links: Pairs, limits: Pairs) -> Floats:
    """How far each block moves: to the mean of what it joins, but at most half of the
    room beside it, so that the order in a row never changes, and neighbours come no
    closer than they may, though all move at once.
    """
    first, second, distance = links
    pull, count = x[second] - x[first] - distance, len(x)
    want = np.bincount(first, pull, count) - np.bincount(second, pull, count)
    joined = np.maximum(counts(first, count) + counts(second, count), 1)
    left, right, least = limits
    free = np.maximum(x[right] - x[left] - least, 0) / 2
    to_right = by_key(np.minimum, free, left, count, np.inf)
    to_left = by_key(np.minimum, free, right, count, np.inf)
    step: Floats = np.clip(want / joined, -to_left, to_right)
    return step
