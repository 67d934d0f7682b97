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
    extremes,
    first_of_runs,
    follow_adding,
    group,
    numbered,
)
from gradviz.layout.layered.layers import BEND_GAP
from gradviz.layout.layered.ordering import Order

TIERS = 3


class Pieces(NamedTuple):
    """The pieces of a layered graph by the places of their ends."""

    above: Ints
    below: Ints
    # what to add to the x of the place above to get that of the place below when the
    # piece is vertical
    shift: Floats


class Blocks(NamedTuple):
    """Places grouped into rigid blocks: the x of a place is that of its block plus its
    shift.
    """

    block: Ints
    shift: Floats
    total: int


class Constraints(NamedTuple):
    """Places or blocks side by side: x[right] >= x[left] + distance. Each pair once;
    blocks are sorted by `left`.
    """

    left: Ints
    right: Ints
    distance: Floats


def pieces_by_place(order: Order) -> Pieces:
    """The pieces in the space of places."""
    layers = order.layers
    return Pieces(
        order.place[layers.above],
        order.place[layers.below],
        layers.above_offset - layers.below_offset,
    )


def tier_of_pieces(order: Order) -> Ints:
    """How early each piece may become straight: longest way, bend chains, lone pieces."""
    layers = order.layers
    down, up = counts(layers.above, layers.size), counts(layers.below, layers.size)
    tiers = (
        # the longest way down is what a reader follows
        layers.main,
        # between two bend points
        (layers.above >= layers.boxes) & (layers.below >= layers.boxes),
        # the only one at either of its ends
        (down[layers.above] == 1) & (up[layers.below] == 1),
    )
    return np.select(tiers, range(TIERS), default=TIERS)


def choose_alignments(places: int, pieces: Pieces, tier: Ints) -> Ints:
    """For every place the piece up from it that will be vertical, or -1. No two of them
    cross or share an end.
    """
    partner = np.full(places, -1, np.int64)
    chosen = np.full(places, -1, np.int64)

    for value in range(TIERS):
        piece = np.flatnonzero(tier == value)
        if not len(piece):
            continue
        piece_to = np.full(places, -1, np.int64)
        piece_to[pieces.below[piece]] = piece
        wanted = np.where(
            piece_to < 0,
            -1,
            pieces.above[piece_to],
        )
        # two lines that cross cannot both be vertical, and earlier tiers come first
        taken = _accept(partner, wanted)
        partner[taken], chosen[taken] = wanted[taken], piece_to[taken]

    return chosen


def _accept(partner: Ints, wanted: Ints) -> Mask:
    """Wanted partners that cross nothing accepted before, scanning from the left within
    themselves.
    """
    places = len(partner)
    before = np.concatenate(([-1], np.maximum.accumulate(partner)[:-1]))
    from_right = np.minimum.accumulate(np.where(partner >= 0, partner, places)[::-1])[
        ::-1
    ]
    after = np.append(from_right[1:], places)
    wanted = np.where(
        (partner < 0) & (wanted > before) & (wanted < after),
        wanted,
        -1,
    )

    return wanted > np.concatenate(([-1], np.maximum.accumulate(wanted)[:-1]))


def _chains(
    places: int,
    pieces: Pieces,
    chosen: Ints,
) -> tuple[Ints, Floats]:
    """Where the chain of given pieces begins that each place is on, and its shift from
    there when all of it is vertical.
    """
    root = np.arange(places)
    step = np.zeros(places)
    root[pieces.below[chosen]] = pieces.above[chosen]
    step[pieces.below[chosen]] = pieces.shift[chosen]
    return follow_adding(root, step)


def make_blocks(places: int, pieces: Pieces, vertical: Ints) -> Blocks:
    """Join the ends of the given pieces. At most one of them may begin and one end at a
    place.
    """
    root, shift = _chains(places, pieces, vertical)
    block, total = numbered(root)
    return Blocks(block, shift, total)


def spacing(order: Order) -> Constraints:
    """Least distances between all neighbours."""
    left, gap = order.neighbours(), order.layers.gap
    half, bend = order.layers.half[order.at], order.layers.bend[order.at]
    room = np.where(
        bend[left] & bend[left + 1],
        gap * BEND_GAP,
        gap,
    )

    return Constraints(
        left,
        left + 1,
        half[left] + half[left + 1] + room,
    )


def block_constraints(blocks: Blocks, room: Constraints) -> Constraints:
    """What the distances between neighbours mean for their blocks."""
    left, right = blocks.block[room.left], blocks.block[room.right]
    distance = room.distance + blocks.shift[room.left] - blocks.shift[room.right]
    key = left * blocks.total + right
    order = np.argsort(key, kind="stable")
    key = key[order]
    first = first_of_runs(key)
    if len(first):
        distance = np.maximum.reduceat(distance[order], first)

    return Constraints(
        *np.divmod(
            key[first],
            max(blocks.total, 1),
        ),
        distance,
    )


# -- packing ---------------------------------------------------------------------------


def first_coordinates(
    order: Order, pieces: Pieces, room: Constraints
) -> tuple[Floats, Mask]:
    """x of every place, and for every piece whether it should be straight.

    x is the mean of two packings of each component, after moving the wider one to the
    near edge of the narrower.
    """
    component, count = order.layers.component[order.at], order.layers.components
    tier = tier_of_pieces(order)
    vertical = choose_alignments(len(component), pieces, tier)
    blocks = make_blocks(len(component), pieces, vertical[vertical >= 0])
    limits = block_constraints(blocks, room)
    # the same packing from the right: the mean of both leans to neither side
    mirrored = Constraints(limits.right, limits.left, limits.distance)
    left = pack(blocks.total, limits)[blocks.block] + blocks.shift
    right = blocks.shift - pack(blocks.total, mirrored)[blocks.block]

    (left_min, left_max), (right_min, right_max) = (
        extremes(x, component, count) for x in (left, right)
    )
    narrow_left = left_max - left_min <= right_max - right_min
    move_right = np.where(narrow_left, left_min - right_min, 0.0)
    move_left = np.where(narrow_left, 0.0, right_max - left_max)
    mean = (left + move_left[component] + right + move_right[component]) / 2
    return mean, tier < TIERS


def pack(count: int, limits: Constraints) -> Floats:
    """Blocks as far left as they can be, then each as far right as the blocks right of
    it allow.
    """
    by_left = group(limits.left, count)
    start = by_left.start.tolist()
    right, distance = (
        limits.right[by_left.order].tolist(),
        limits.distance[by_left.order].tolist(),
    )
    waiting = counts(limits.right, count).tolist()
    x = [0.0] * count
    ready = [block for block, n in enumerate(waiting) if not n]
    settled: list[int] = []

    while ready:
        block = ready.pop()
        settled.append(block)
        left = x[block]
        for i in range(start[block], start[block + 1]):
            other = right[i]
            if x[other] < left + distance[i]:
                x[other] = left + distance[i]
            waiting[other] -= 1
            # all blocks left of it have their places
            if not waiting[other]:
                ready.append(other)

    # back from the right, to close the gaps that packing to the left has opened
    for block in reversed(settled):
        first, end = start[block], start[block + 1]
        if first < end:
            furthest = min([x[right[i]] - distance[i] for i in range(first, end)])
            if furthest > x[block]:
                x[block] = furthest

    return np.array(x)


# -- polish ----------------------------------------------------------------------------

POLISH_ROUNDS, RELAX_ROUNDS = 3, 24
STRAIGHT, SWING = 0.01, 1.0  # px
FAR = 1e18


def polish(
    x: Floats,
    pieces: Pieces,
    straight: Mask,
    room: Constraints,
) -> Floats:
    """Better x for every place. `straight` says of the pieces which should be.

    Straight runs move towards what they join, and bent chains are straightened where
    there is room. Never changes the order in a row nor lets neighbours come closer than
    they may.
    """
    chain = np.flatnonzero(straight)
    for _ in range(POLISH_ROUNDS):
        before, x = (
            x,
            straighten(
                relax(x, pieces, chain, room),
                pieces,
                chain,
                room,
            ),
        )
        if np.abs(x - before).max(initial=0.0) < STRAIGHT:
            break

    return x


def relax(
    x: Floats,
    pieces: Pieces,
    chain: Ints,
    room: Constraints,
) -> Floats:
    """Move straight runs, all at once, to the mean of what they join; each at most half
    of the room beside it.
    """
    bend = x[pieces.above[chain]] + pieces.shift[chain] - x[pieces.below[chain]]
    blocks = make_blocks(
        len(x),
        pieces,
        chain[np.abs(bend) < STRAIGHT],
    )
    count = blocks.total
    block_x = np.zeros(count)
    block_x[blocks.block] = x - blocks.shift
    limits = block_constraints(blocks, room)
    upper, lower = blocks.block[pieces.above], blocks.block[pieces.below]
    shift = pieces.shift + blocks.shift[pieces.above] - blocks.shift[pieces.below]
    between = upper != lower
    upper, lower, shift = upper[between], lower[between], shift[between]
    weight = np.maximum(
        np.bincount(upper, minlength=count) + np.bincount(lower, minlength=count), 1
    )

    for _ in range(RELAX_ROUNDS):
        pull = block_x[lower] - block_x[upper] - shift
        want = np.bincount(
            upper,
            weights=pull,
            minlength=count,
        ) - np.bincount(lower, weights=pull, minlength=count)
        # half of a gap for each of its two sides, so that all may move at once
        free = (
            np.maximum(
                block_x[limits.right] - block_x[limits.left] - limits.distance, 0
            )
            / 2
        )
        to_right, to_left = (
            by_key(np.minimum, free, side, count, np.inf)
            for side in (limits.left, limits.right)
        )
        step = np.clip(want / weight, -to_left, to_right)
        block_x += step
        if np.abs(step).max(initial=0.0) < STRAIGHT:
            break
    # two blocks that join each other alone change sides for ever
    if np.abs(step).max(initial=0.0) > SWING:
        block_x -= step / 2

    return block_x[blocks.block] + blocks.shift


def straighten(
    x: Floats,
    pieces: Pieces,
    chain: Ints,
    room: Constraints,
) -> Floats:
    """Redraw chains that bend with the fewest straight runs that fit between their
    neighbours, from the top down.
    """
    root, shift = _chains(len(x), pieces, chain)
    line = x - shift  # equal along a straight chain
    bent = np.zeros(len(x), np.bool_)
    bent[root[np.abs(line - line[root]) > STRAIGHT]] = True
    members = np.flatnonzero(bent[root])
    members = members[np.argsort(root[members], kind="stable")]

    if len(members):
        return _in_runs(
            x,
            shift,
            room,
            members.tolist(),
            root[members].tolist(),
        )

    return x


def _in_runs(
    x: Floats,
    shift: Floats,
    room: Constraints,
    member: list[int],
    root: list[int],
) -> Floats:
    """Straighten the chains with these members, one run after another; those of one
    chain lie together, from the top down.

    The neighbours of a run are where they are by then.
    """
    distances = np.full((2, len(x)), -1.0)  # to the left, to the right
    distances[0, room.right] = distances[1, room.left] = room.distance
    to_left, to_right = distances.tolist()
    x_of, shift_of = x.tolist(), shift.tolist()
    # where the next run begins, and the line of the one above it in its chain
    i, before = 0, None

    while i < len(member):
        if i and root[i] != root[i - 1]:
            before = None
        low, high, total, end = -FAR, FAR, 0.0, i
        while end < len(member) and root[end] == root[i]:
            place = member[end]
            offset = shift_of[place]
            left = (
                x_of[place - 1] + to_left[place] if to_left[place] >= 0 else -FAR
            ) - offset
            right = (
                x_of[place + 1] - to_right[place] if to_right[place] >= 0 else FAR
            ) - offset
            # no common x is left: the run ends here, and the chain bends
            if max(low, left) > min(high, right) + 1e-9:
                break
            low, high = max(low, left), min(high, right)
            total += x_of[place] - offset
            end += 1
        if end == i:  # no room at all, by rounding: stays
            before = x_of[member[i]] - shift_of[member[i]]
            i += 1
            continue
        before = min(
            max(total / (end - i) if before is None else before, low),
            high,
        )
        for place in member[i:end]:
            x_of[place] = before + shift_of[place]
        i = end

    return np.array(x_of)
