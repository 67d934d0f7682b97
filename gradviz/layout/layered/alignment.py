"""Straight blocks: which points of neighbouring rows share one vertical line, and how far apart blocks must be.

The greedy scan for alignments that do not cross is the one of Brandes and Koepf, "Fast and Simple Horizontal Coordinate
Assignment" (2001), done for all rows at once with running maxima. Its classes of blocks, which its authors corrected in
2020 (arXiv:2008.01252), are not used: see `compaction`. Everything is in the space of places.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import Mask, first_of_runs, follow_adding
from gradviz.layout.layered.columns import LONG, MAIN, SHORT
from gradviz.layout.layered.crossings import Order
from gradviz.layout.layered.layers import inner_pieces, lone_pieces, separation
from gradviz.layout.model import Floats, Ints

TIERS = 5


class Pieces(NamedTuple):
    """The pieces of a layered graph by the places of their ends."""

    above: Ints
    below: Ints
    shift: Floats  # what to add to the x of the place above to get that of the place below when the piece is vertical


class Blocks(NamedTuple):
    """Places grouped into rigid blocks: the x of a place is that of its block plus its shift."""

    block: Ints
    shift: Floats
    total: int


class Constraints(NamedTuple):
    """Blocks side by side: x[right] >= x[left] + distance. Sorted by `left`, each pair once."""

    left: Ints
    right: Ints
    distance: Floats


def pieces_by_place(order: Order) -> Pieces:
    """The pieces in the space of places."""
    layers = order.layers
    return Pieces(order.place[layers.above], order.place[layers.below], layers.above_offset - layers.below_offset)


def tier_of_pieces(order: Order) -> Ints:
    """How early each piece may become straight: longest way, long ways, bend chains, short ways, lone pieces."""
    layers = order.layers
    tier = np.full(len(layers.above), TIERS, np.int64)
    for value, chosen in (
        (4, lone_pieces(layers)),
        (3, layers.kind == SHORT),
        (2, inner_pieces(layers)),
        (1, layers.kind == LONG),
        (0, layers.kind == MAIN),
    ):
        tier[chosen] = value
    return tier


def choose_alignments(places: int, pieces: Pieces, tier: Ints, allowed: Mask) -> Ints:
    """For every place the piece up from it that will be vertical, or -1. No two of them cross or share an end."""
    partner = np.full(places, -1, np.int64)
    chosen = np.full(places, -1, np.int64)
    for value in range(TIERS):
        piece = np.flatnonzero(allowed & (tier == value))
        if not len(piece):
            continue
        wanted, wanted_piece = np.full(places, -1, np.int64), np.full(places, -1, np.int64)
        wanted[pieces.below[piece]] = pieces.above[piece]
        wanted_piece[pieces.below[piece]] = piece
        taken = _accept(partner, wanted)
        partner[taken] = wanted[taken]
        chosen[taken] = wanted_piece[taken]
    return chosen


def _accept(partner: Ints, wanted: Ints) -> Mask:
    """Wanted partners that cross nothing accepted before, scanning from the left within themselves."""
    places = len(partner)
    before = np.concatenate(([-1], np.maximum.accumulate(partner)[:-1]))
    from_right = np.minimum.accumulate(np.where(partner >= 0, partner, places)[::-1])[::-1]
    after = np.append(from_right[1:], places)
    wanted = np.where((partner < 0) & (wanted > before) & (wanted < after), wanted, -1)
    return wanted > np.concatenate(([-1], np.maximum.accumulate(wanted)[:-1]))


def make_blocks(places: int, pieces: Pieces, vertical: Ints) -> Blocks:
    """Join the ends of the given pieces. At most one of them may begin and one end at a place."""
    root = np.arange(places)
    step = np.zeros(places)
    root[pieces.below[vertical]] = pieces.above[vertical]
    step[pieces.below[vertical]] = pieces.shift[vertical]
    root, shift = follow_adding(root, step)
    heads = root == np.arange(places)
    return Blocks((np.cumsum(heads) - 1)[root], shift, int(heads.sum()))


class Spacing(NamedTuple):
    """Neighbours in a row: `left` is the place of the left one, and the least distance between their middles."""

    left: Ints
    distance: Floats


def spacing(order: Order) -> Spacing:
    """Least distances between all neighbours."""
    left = order.neighbours()
    layers = order.layers
    return Spacing(left, separation(layers.half[order.at], layers.bend[order.at], layers.gap, left))


def block_constraints(blocks: Blocks, room: Spacing) -> Constraints:
    """What the distances between neighbours mean for their blocks."""
    left, right = blocks.block[room.left], blocks.block[room.left + 1]
    distance = room.distance + blocks.shift[room.left] - blocks.shift[room.left + 1]
    key = left * blocks.total + right
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = first_of_runs(key)
    if len(first):
        distance = np.maximum.reduceat(distance[order], first)
    key = key[first]
    return Constraints(key // max(blocks.total, 1), key % max(blocks.total, 1), distance)
