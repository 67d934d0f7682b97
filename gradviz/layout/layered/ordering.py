"""The order of points in every row, how many edges cross between rows, and how
crossings become fewer.

A line is one row of one component. Places number all points through, line after line
and from left to right, so that one array describes the whole order. Crossings go by
exchanges of neighbours everywhere at once, and by sweeps over the lines.

Both only ever find the best order near the one they start from, so components that keep
crossings are tried from other first orders too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import counts, group, places, ranges, starts_of
from gradviz.layout.layered.layers import Layers

# steps across a box, for edges that meet it elsewhere than in the middle
PORT_STEPS = 1024


class Side(NamedTuple):
    """Pieces up, or down, from every point: those of point p are numbers start[p] up to,
    not including, start[p + 1].
    """

    start: Ints
    far: Ints  # point at the other end of each piece
    port: Ints  # where it meets that, in steps


class Order:
    """`at` is the point at every place, `place` the place of every point."""

    def __init__(self, layers: Layers, key: Ints) -> None:
        self.layers = layers
        self.line_start = starts_of(counts(layers.line, layers.lines))
        self.sort(key)
        above, below, above_offset, below_offset, _ = layers.pieces
        self.above_port = self._port(above, above_offset)
        self.below_port = self._port(below, below_offset)
        self.down = self._side(above, below, self.below_port)
        self.up = self._side(below, above, self.above_port)

    def _side(self, near: Ints, far: Ints, port: Ints) -> Side:
        pieces = group(near, self.layers.size)
        return Side(pieces.start, far[pieces.order], port[pieces.order])

    def _port(self, point: Ints, offset: Floats) -> Ints:
        """Where along its box a piece begins or ends, in steps."""
        share = offset / (2 * self.layers.half[point]) + 0.5
        return np.clip(share * PORT_STEPS, 0, PORT_STEPS - 1).astype(np.int64)

    def sort(self, key: Ints | Floats) -> None:
        """Order every line by the keys of its points."""
        self.at = np.lexsort((key, self.layers.line))
        self.place = places(self.at)

    def neighbours(self) -> Ints:
        """Places whose right neighbour is in the same line."""
        line = self.layers.line[self.at]
        return np.flatnonzero(line[:-1] == line[1:])

    def crossings(self) -> Ints:
        """Crossings below every line."""
        crossings = np.zeros(self.layers.lines, np.int64)
        above, below = self.layers.pieces[:2]
        if not len(above):
            return crossings

        upper = self.place[above] * PORT_STEPS + self.above_port
        lower = self.place[below] * PORT_STEPS + self.below_port
        beyond = self.layers.size * PORT_STEPS
        order = (upper * beyond + lower).argsort(kind="stable")
        line = self.layers.line[above[order]]
        return inversions(lower[order], line, self.layers.lines)


def inversions(values: Ints, groups: Ints, count: int) -> Ints:
    """For each group the number of pairs i < j in it with values[i] > values[j], by
    merging sorted runs of doubling length. Groups are sorted.

    >>> inversions(np.array([2, 0, 1, 1, 0]), np.array([0, 0, 0, 1, 1]), 2).tolist()
    [2, 1]
    """
    total, width = np.zeros(count, np.int64), 1
    is_lower = (values[1:] < values[:-1]) & (groups[1:] == groups[:-1])
    if not is_lower.any():
        return total  # nearly always

    sizes = counts(groups, count)
    start = starts_of(sizes)[groups]
    end = start + sizes[groups]
    place = np.arange(len(values)) - start
    beyond = int(values.max(initial=0)) + 1

    while width < sizes.max(initial=0):
        block = start + place // (2 * width) * (2 * width)
        from_right = place // width % 2
        key = (block * beyond + values) * 2 + from_right
        order = key.argsort(kind="stable")
        from_right = from_right[order]
        # a value of the right run is passed by the rest of the left one
        before = (1 - from_right).cumsum() - (1 - from_right)
        rest = np.minimum(width, end - block) - (before - before[block])
        passed = np.bincount(groups, rest * from_right, count)
        total += passed.astype(np.int64)
        values, width = values[order], 2 * width
    return total


# -- fewer crossings -------------------------------------------------------------------

EXCHANGE_ROUNDS = 20
SWEEPS = 4
# points; larger drawings improve one first order, without sweeps
LARGEST = 50_000
# pieces of one neighbour times those of the other, above which a pair is left as it is
LARGEST_PAIR = 4096


def best_order(layers: Layers, starts: Sequence[Ints]) -> Order:
    """An order with few crossings: for every component the best that was found from
    these first orders.
    """
    order = Order(layers, np.arange(layers.size))
    best, place = np.full(layers.components, np.iinfo(np.int64).max), order.place
    for crossings in _improvements(order, starts):
        # components do not touch each other, so each takes its own best
        is_better = crossings < best
        best = np.minimum(crossings, best)
        place = np.where(is_better[layers.component], order.place, place)
        if not best.any():
            break

    order.sort(place)
    return order


def _improvements(order: Order, starts: Sequence[Ints]) -> Iterator[Ints]:
    """Bring points into one order after another: the crossings of every component."""
    is_large = order.layers.size > LARGEST
    sweeps = 0 if is_large else SWEEPS
    for start in starts[:1] if is_large else starts:
        order.sort(start)
        seen = set[tuple[bool, bytes]]()
        for turn in range(sweeps + 1):
            # down and up in turn: either way alone sorts by one neighbour row only
            if turn:
                sweep(order, upwards=turn % 2 == 0)
            state = turn % 2 == 0, order.place.tobytes()
            if state in seen:
                break  # from here on everything comes again
            seen.add(state)
            crossings = order.crossings()
            if crossings.any() and exchange(order, EXCHANGE_ROUNDS):
                crossings = order.crossings()
            yield np.add.reduceat(crossings, order.layers.first_line[:-1])


def exchange(order: Order, rounds: int) -> bool:
    """Exchange neighbours where that removes crossings; whether it does anywhere.

    Lines of one parity and every other pair in them are tried at once: no exchange
    changes what another gains.
    """
    points, place = order.at, order.place
    pairs = order.neighbours()
    line = order.layers.line[points[pairs]]
    turn = (line % 2) * 2 + (pairs - order.line_start[line]) % 2

    for number in range(rounds):
        # nearly always the order is as good as that makes it
        if not len(_gaining(order, pairs)):
            return number > 0
        for k in range(4):
            left = _gaining(order, pairs[turn == k])
            both = np.stack((points[left], points[left + 1]))
            points[left + 1], points[left] = both
            place[both[1]], place[both[0]] = left, left + 1
    return True


def _gaining(order: Order, places: Ints) -> Ints:
    """The places of which the point crosses more than when it is exchanged with its
    right neighbour.
    """
    left, right = order.at[places], order.at[places + 1]
    gain = _gain(order, order.down, left, right) + _gain(order, order.up, left, right)
    return places[gain > 0]


def _gain(order: Order, side: Side, left: Ints, right: Ints) -> Floats:
    start = side.start
    of_left, of_right = start[left + 1] - start[left], start[right + 1] - start[right]
    pairs = of_left * of_right
    # two wide fans: comparing all their lines would take more than the rest
    pairs[pairs > LARGEST_PAIR] = 0
    owner, k = ranges(pairs)
    wide = of_right[owner]
    first = start[left[owner]] + k // wide
    second = start[right[owner]] + k % wide
    a, b = (
        order.place[side.far[piece]] * PORT_STEPS + side.port[piece]
        for piece in (first, second)
    )
    return np.bincount(owner, np.sign(a - b), len(left)).astype(np.float64)


def sweep(order: Order, upwards: bool) -> None:
    """Sort each line by the mean place of its neighbours in the line before."""
    side = order.down if upwards else order.up
    start, far, port = side.start.tolist(), side.far.tolist(), side.port.tolist()
    at, place = order.at.tolist(), order.place.tolist()

    def mean(point: int) -> float:
        """Mean place of the neighbours of a point."""
        pieces = range(start[point], start[point + 1])
        steps = sum(place[far[k]] * PORT_STEPS + port[k] for k in pieces)
        return float(steps / len(pieces))

    lines = list(pairwise(order.line_start.tolist()))
    for first, end in reversed(lines) if upwards else lines:
        points = at[first:end]
        means = {p: mean(p) for p in points if start[p] < start[p + 1]}
        others = iter(sorted(means, key=means.__getitem__))
        # points without neighbours keep their places
        for i, point in enumerate(points, first):
            place[next(others) if point in means else point] = i

    order.place = np.array(place, np.int64)
    order.at = places(order.place)
