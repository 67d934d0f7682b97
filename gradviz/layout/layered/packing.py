"""Components of one drawing beside and below each other: on shelves, the highest first.

Components with ports stand side by side at the top, so that nothing lies between them and the border below.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import Mask, follow_adding, group
from gradviz.layout.layered.alignment import (
    Pieces,
    Spacing,
    block_constraints,
    make_blocks,
)
from gradviz.layout.model import Floats, Ints

ASPECT = 1.6  # width to height that shelves aim at


class Shelves(NamedTuple):
    """Upper left corner of every component in its drawing, and the size of every drawing."""

    x: Floats
    y: Floats
    widths: Floats  # (parts,)
    heights: Floats


def pack_components(
    widths: Floats,
    heights: Floats,
    ported: Mask,
    part: Ints,
    parts: int,
    gap: float,
    rank_gap: float,
) -> Shelves:
    """Pack the components of every part; `part` says whose they are."""
    found = Shelves(np.zeros(len(widths)), np.zeros(len(widths)), np.zeros(parts), np.zeros(parts))
    members = group(part, parts)
    size = np.diff(members.start)
    alone = members.order[members.start[:-1][size == 1]]
    found.widths[part[alone]], found.heights[part[alone]] = widths[alone], heights[alone]
    for p in np.flatnonzero(size > 1).tolist():
        here = members.order[members.start[p] : members.start[p + 1]]
        right, bottom = _row(found, here[ported[here]], widths, heights, gap)
        rest = here[~ported[here]]
        if len(rest):
            right, low = _shelves(found, rest, widths, heights, right, gap, rank_gap)
            bottom = max(bottom, low)
        found.widths[p], found.heights[p] = right - 2 * gap, bottom
    return found


def _row(found: Shelves, members: Ints, widths: Floats, heights: Floats, gap: float) -> tuple[float, float]:
    """Place components in one row. Returns where the next would begin, and the lowest point."""
    x = bottom = 0.0
    for component in members.tolist():
        found.x[component] = x
        x += float(widths[component]) + 2 * gap
        bottom = max(bottom, float(heights[component]))
    return x, bottom


def _shelves(
    found: Shelves, members: Ints, widths: Floats, heights: Floats, left: float, gap: float, rank_gap: float
) -> tuple[float, float]:
    """Place components on shelves from x = `left` on. Returns the furthest right (a gap on) and lowest points."""
    area = float(((widths[members] + 2 * gap) * (heights[members] + rank_gap)).sum())
    limit = max(float(widths[members].max()) + 2 * gap, (area * ASPECT) ** 0.5)
    x = y = tallest = furthest = 0.0
    for component in members[np.argsort(-heights[members], kind="stable")].tolist():
        wide = float(widths[component]) + 2 * gap
        if x and x + wide > limit:
            x, y, tallest = 0.0, y + tallest + rank_gap, 0.0
        found.x[component], found.y[component] = left + x, y
        x += wide
        furthest, tallest = max(furthest, x), max(tallest, float(heights[component]))
    return left + furthest, y + tallest


# After packing: straight runs move towards what they join, and bent chains are straightened where there is room.
# Never changes the order in a row nor lets neighbours come closer than they may. Everything is in the space of
# places.

RELAX_ROUNDS = 24
STRAIGHT = 0.01  # px
FAR = 1e18


def polish(x: Floats, pieces: Pieces, chain: Ints, room: Spacing) -> Floats:
    """Better x for every place. `chain` are the pieces that should be straight."""
    x = relax(x, pieces, chain, room)
    for _ in range(2):
        x = relax(straighten(x, pieces, chain, room), pieces, chain, room)
    return straighten(x, pieces, chain, room)


def relax(x: Floats, pieces: Pieces, chain: Ints, room: Spacing) -> Floats:
    """Move straight runs, all at once, to the mean of what they join; each at most half of the room beside it."""
    bend = x[pieces.above[chain]] + pieces.shift[chain] - x[pieces.below[chain]]
    blocks = make_blocks(len(x), pieces, chain[np.abs(bend) < STRAIGHT])
    count = blocks.total
    block_x = np.zeros(count)
    block_x[blocks.block] = x - blocks.shift
    limits = block_constraints(blocks, room)
    one, other = blocks.block[pieces.above], blocks.block[pieces.below]
    shift = pieces.shift + blocks.shift[pieces.above] - blocks.shift[pieces.below]
    between = one != other
    one, other, shift = one[between], other[between], shift[between]
    weight = np.maximum(np.bincount(one, minlength=count) + np.bincount(other, minlength=count), 1)
    for _ in range(RELAX_ROUNDS):
        pull = block_x[other] - block_x[one] - shift
        want = np.bincount(one, weights=pull, minlength=count) - np.bincount(other, weights=pull, minlength=count)
        free = np.maximum(block_x[limits.right] - block_x[limits.left] - limits.distance, 0) / 2
        to_right, to_left = np.full(count, np.inf), np.full(count, np.inf)
        np.minimum.at(to_right, limits.left, free)
        np.minimum.at(to_left, limits.right, free)
        block_x += np.clip(want / weight, -to_left, to_right)
    return block_x[blocks.block] + blocks.shift


def straighten(x: Floats, pieces: Pieces, chain: Ints, room: Spacing) -> Floats:
    """Redraw chains that bend with the fewest straight runs that fit between their neighbours, from the top down."""
    root = np.arange(len(x))
    step = np.zeros(len(x))
    root[pieces.below[chain]] = pieces.above[chain]
    step[pieces.below[chain]] = pieces.shift[chain]
    root, shift = follow_adding(root, step)
    line = x - shift  # equal along a straight chain
    bent = np.zeros(len(x), np.bool_)
    bent[root[np.abs(line - line[root]) > STRAIGHT]] = True
    members = np.flatnonzero(bent[root])
    members = members[np.argsort(root[members], kind="stable")]
    if not len(members):
        return x
    return _Straightener(x, shift, room).run(members, root[members])


class _Straightener:
    """Moves the members of bent chains one run after another; the neighbours of a run are where they are by then."""

    def __init__(self, x: Floats, shift: Floats, room: Spacing) -> None:
        to_left, to_right = np.full(len(x), -1.0), np.full(len(x), -1.0)
        to_right[room.left] = room.distance
        to_left[room.left + 1] = room.distance
        self.x: list[float] = x.tolist()
        self.shift: list[float] = shift.tolist()
        self.to_left: list[float] = to_left.tolist()
        self.to_right: list[float] = to_right.tolist()

    def run(self, members: Ints, roots: Ints) -> Floats:
        """Straighten the chains with these members; those of one chain lie together, from the top down."""
        member, root = members.tolist(), roots.tolist()
        i, before = 0, None
        while i < len(member):
            if i and root[i] != root[i - 1]:
                before = None
            i, before = self._one_run(member, root, i, before)
        return np.array(self.x)

    def _one_run(self, member: list[int], root: list[int], i: int, before: float | None) -> tuple[int, float]:
        """Make the longest straight run that begins at the i-th member. Returns where the next begins, and its line."""
        low, high, total, end = -FAR, FAR, 0.0, i
        while end < len(member) and root[end] == root[i]:
            place = member[end]
            left, right = self._free(place)
            if max(low, left) > min(high, right) + 1e-9:
                break
            low, high = max(low, left), min(high, right)
            total += self.x[place] - self.shift[place]
            end += 1
        if end == i:  # no room at all, by rounding: stays
            return i + 1, self.x[member[i]] - self.shift[member[i]]
        line = min(max(total / (end - i) if before is None else before, low), high)
        for place in member[i:end]:
            self.x[place] = line + self.shift[place]
        return end, line

    def _free(self, place: int) -> tuple[float, float]:
        """Between which lines a place can move."""
        left, right = self.to_left[place], self.to_right[place]
        low = self.x[place - 1] + left if left >= 0 else -FAR
        high = self.x[place + 1] - right if right >= 0 else FAR
        return low - self.shift[place], high - self.shift[place]
