"""The order of points in every row, how many edges cross between rows, and how
crossings become fewer.

A line is one row of one component. Places number all points through, line after line
and from left to right, so that one array describes the whole order. Crossings go by
exchanges of neighbours everywhere at once, then by sweeps over the lines that still
have some.

Both only ever find the best order near the one they start from, so components that keep
crossings are tried from other first orders too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import (
    Mask,
    counts,
    group,
    members,
    places,
    ranges,
    starts_of,
)
from gradviz.layout.layered.layers import Layers
from gradviz.layout.layered.ranks import FirstOrder

# steps across a box, for edges that meet it elsewhere than in the middle
PORT_STEPS = 1024


class Side(NamedTuple):
    """Pieces up, or down, from every point: those of point p are start[p] .. start[p +
    1] - 1.
    """

    start: Ints
    far: Ints  # point at the other end of each piece
    port: Ints  # where it meets that, in steps


class Order:
    """`at` is the point at every place, `place` the place of every point."""

    def __init__(self, layers: Layers, key: Ints) -> None:
        self.layers = layers
        self.line = layers.line
        self.lines = layers.lines
        self.line_start = starts_of(counts(layers.line, self.lines))
        self.sort(key)
        self.steps = PORT_STEPS if layers.ported else 1
        self.above_port = self._port(layers.above, layers.above_offset)
        self.below_port = self._port(layers.below, layers.below_offset)
        self.down = self._side(
            layers.above,
            layers.below,
            self.below_port,
        )
        self.up = self._side(
            layers.below,
            layers.above,
            self.above_port,
        )

    def _side(
        self,
        near: Ints,
        far: Ints,
        port: Ints,
    ) -> Side:
        pieces = group(near, self.layers.size)
        return Side(
            pieces.start,
            far[pieces.order],
            port[pieces.order],
        )

    def _port(self, point: Ints, offset: Floats) -> Ints:
        """Where along its box a piece begins or ends, in steps."""
        # no edge begins beside the middle of its box
        if self.steps == 1:
            return np.zeros(len(point), np.int64)
        share = offset / (2 * self.layers.half[point]) + 0.5
        return np.clip(
            share * self.steps,
            0,
            self.steps - 1,
        ).astype(np.int64)

    def sort(self, key: Ints | Floats) -> None:
        """Order every line by the keys of its points."""
        self.at = np.lexsort((key, self.line))
        self.place = places(self.at)

    def restore_places(self) -> None:
        """Set `at` from `place`."""
        self.at = places(self.place)

    def neighbours(self) -> Ints:
        """Places whose right neighbour is in the same line."""
        line = self.line[self.at]
        return np.flatnonzero(line[:-1] == line[1:])

    def crossings(self) -> Ints:
        """Crossings below every line."""
        crossings = np.zeros(self.lines, np.int64)
        layers = self.layers
        if not len(layers.above):
            return crossings

        upper = self.place[layers.above] * self.steps + self.above_port
        lower = self.place[layers.below] * self.steps + self.below_port
        order = np.argsort(
            upper * (layers.size * self.steps) + lower,
            kind="stable",
        )
        return inversions(lower[order], self.line[layers.above[order]], self.lines)


def inversions(values: Ints, groups: Ints, count: int) -> Ints:
    """For each group the number of pairs i < j in it with values[i] > values[j], by
    merging sorted runs of doubling length. Groups are sorted.

    >>> inversions(np.array([2, 0, 1, 1, 0]), np.array([0, 0, 0, 1, 1]), 2).tolist()
    [2, 1]
    """
    sizes = counts(groups, count)
    start = starts_of(sizes)[groups]
    end, place = start + sizes[groups], np.arange(len(values)) - start
    beyond = int(values.max(initial=0)) + 1
    total, width = np.zeros(count, np.int64), 1

    while width < sizes.max(initial=0):
        block = start + place // (2 * width) * (2 * width)
        from_right = place // width % 2
        order = np.argsort((block * beyond + values) * 2 + from_right, kind="stable")
        from_right = from_right[order]
        # a value of the right run is passed by the rest of the left one
        before = np.cumsum(1 - from_right) - (1 - from_right)
        rest = np.minimum(width, end - block) - (before - before[block])
        total += np.bincount(groups, rest * from_right, count).astype(np.int64)
        values, width = values[order], 2 * width
    return total


# -- fewer crossings -------------------------------------------------------------------

EXCHANGE_ROUNDS = 20
SWEEPS = 4
REACH = 12  # lines above and below a crossing that a sweep takes in
LARGEST_RETRY = 300_000  # points; larger drawings are tried from the first start only
# pieces of one neighbour times those of the other, above which a pair is left as it is
LARGEST_PAIR = 4096


def best_order(
    layers: Layers,
    starts: Sequence[Callable[[], FirstOrder]],
) -> Order:
    """An order with few crossings: for every component the best that was found from
    these first orders.
    """
    order = Order(layers, _keys(layers, starts[0]()))
    crossings = _by_component(layers, reduce_crossings(order))

    for start in starts[1:]:
        # nothing to gain, or it would take too long
        if not crossings.any() or layers.size > LARGEST_RETRY:
            break
        before = order.place.copy()
        order.sort(
            np.where(
                (crossings > 0)[layers.component],
                _keys(layers, start()),
                before,
            )
        )
        now = _by_component(layers, reduce_crossings(order))
        # components do not touch each other, so each takes its own best
        better = now < crossings
        order.place = np.where(
            better[layers.component],
            order.place,
            before,
        )
        order.restore_places()
        crossings = np.where(better, now, crossings)

    return order


def _keys(layers: Layers, first: FirstOrder) -> Ints:
    """Keys of boxes and bend points."""
    return np.concatenate((first.box, first.edge[layers.bend_edge]))


def _by_component(layers: Layers, crossings: Ints) -> Ints:
    """Crossings of every component from those below every line."""
    if not layers.components:
        return crossings
    summed: Ints = np.add.reduceat(
        crossings,
        layers.first_line[:-1],
    )
    return summed


def reduce_crossings(order: Order) -> Ints:
    """Improve the order in place; the number of crossings never grows. Returns the
    crossings left below every line.
    """
    before = order.crossings()
    if before.any():
        exchange(order, EXCHANGE_ROUNDS)
        before = order.crossings()
    for turn in range(SWEEPS):
        if not before.any():
            break
        # down and up in turn: either way alone sorts by one neighbour row only
        before, better = _sweep_once(order, before, upwards=bool(turn % 2))
        if not better and turn % 2:
            break
    return before


def exchange(order: Order, rounds: int) -> None:
    """Exchange neighbours where that removes crossings.

    Lines of one parity and every other pair in them are tried at once: no exchange
    changes what another gains.
    """
    points, place = order.at, order.place
    pairs = order.neighbours()
    line = order.line[points[pairs]]
    turn = (line % 2) * 2 + (pairs - order.line_start[line]) % 2
    sets = [pairs[turn == k] for k in range(4)]
    active = np.ones(len(points), np.bool_)

    for _ in range(rounds):
        touched = np.zeros(len(points), np.bool_)
        for left in sets:
            left = left[active[left] | active[left + 1]]
            left = left[_gain(order, points[left], points[left + 1]) > 0]
            both = np.stack((points[left], points[left + 1]))
            points[left + 1], points[left] = both
            place[both[1]], place[both[0]] = left, left + 1
            _touch(order, touched, left, both.ravel())
        if not touched.any():
            return
        changed = np.flatnonzero(touched)
        touched[np.maximum(changed - 1, 0)] = True
        touched[np.minimum(changed + 1, len(points) - 1)] = True
        # only what stands beside a change can gain something now
        active = touched


def _touch(
    order: Order,
    touched: Mask,
    left: Ints,
    points: Ints,
) -> None:
    """Mark the places exchanged and those of their neighbours in other rows: something
    may be gained there now.
    """
    touched[left] = touched[left + 1] = True
    for side in (order.down, order.up):
        touched[order.place[side.far[members(side.start, points)[1]]]] = True


def _gain(order: Order, left: Ints, right: Ints) -> Floats:
    """Crossings that go away when `left` and `right`, which are neighbours, are
    exchanged.
    """
    return _side_gain(order, order.down, left, right) + _side_gain(
        order, order.up, left, right
    )


def _side_gain(
    order: Order,
    side: Side,
    left: Ints,
    right: Ints,
) -> Floats:
    start = side.start
    of_left, of_right = start[left + 1] - start[left], start[right + 1] - start[right]
    pairs = of_left * of_right
    # two wide fans: comparing all their lines would take more than the rest
    pairs[pairs > LARGEST_PAIR] = 0
    owner, k = ranges(pairs)
    wide = of_right[owner]
    first, second = start[left[owner]] + k // wide, start[right[owner]] + k % wide
    a, b = (
        order.place[side.far[piece]] * order.steps + side.port[piece]
        for piece in (first, second)
    )
    sign = (a > b).astype(np.float64) - (a < b)

    return np.bincount(
        owner,
        weights=sign,
        minlength=len(left),
    ).astype(np.float64)


def _sweep_once(
    order: Order,
    before: Ints,
    upwards: bool,
) -> tuple[Ints, bool]:
    """One barycentre sweep over the windows with crossings; windows that got worse are
    put back.

    Returns the crossings below every line now, and whether a window got better.
    """
    windows, window = _windows(before, order)
    old = order.place.copy()
    for first, end in windows:
        _sweep_window(order, first, end, upwards)

    order.restore_places()
    exchange(order, 6)
    after = order.crossings()
    # of the gap below each line
    beside = np.maximum(
        window,
        np.append(window[1:], -1),
    )
    inside = beside >= 0
    change = np.bincount(
        beside[inside],
        weights=(after - before)[inside],
        minlength=len(windows),
    )
    bad = (window >= 0) & (change[window] > 0)
    if not bad.any():
        return after, bool((change < 0).any())

    back = bad[order.line]
    # a sweep by means may make it worse
    order.place[back] = old[back]
    order.restore_places()
    return order.crossings(), bool((change < 0).any())


def _windows(
    crossings: Ints,
    order: Order,
) -> tuple[list[tuple[int, int]], Ints]:
    """Runs of lines near crossings as (first, end), and for each line the number of its
    run or -1.

    A run never reaches from one component into the next.
    """
    crossed = np.flatnonzero(crossings)
    first, end = (
        np.maximum(crossed - REACH, 0),
        np.minimum(crossed + 2 + REACH, order.lines),
    )
    inside = (
        np.cumsum(counts(first, order.lines) - counts(end, order.lines + 1)[:-1]) > 0
    )
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    first_line = order.layers.first_line[:-1]
    # a window ends where its component does
    begins[first_line] = inside[first_line]
    window = np.where(
        inside,
        np.cumsum(begins) - 1,
        -1,
    )
    first = np.flatnonzero(begins)

    return list(
        zip(
            first.tolist(),
            (first + counts(window[inside], len(first))).tolist(),
        )
    ), window


def _sweep_window(
    order: Order,
    first: int,
    end: int,
    upwards: bool,
) -> None:
    """Sort each line of a window by the mean place of its neighbours in the line
    before.
    """
    base = int(order.line_start[first])
    points = order.at[base : order.line_start[end]]
    side = order.down if upwards else order.up
    sizes, piece = members(side.start, points)
    number, far = points.tolist(), side.far[piece].tolist()
    port: list[float] = (((side.port[piece] + 0.5) / order.steps) - 0.5).tolist()
    start: list[int] = starts_of(sizes).tolist()
    moved: dict[int, int] = {}

    def mean(i: int) -> float:
        """Mean place of the neighbours of the i-th point."""
        total = 0.0
        for k in range(start[i], start[i + 1]):
            place = moved.get(far[k])
            if place is None:
                place = moved[far[k]] = int(order.place[far[k]])
            total += place + port[k]
        return total / (start[i + 1] - start[i])

    bounds = (order.line_start[first : end + 1] - base).tolist()
    for i in range(end - first - 1, -1, -1) if upwards else range(end - first):
        line = range(bounds[i], bounds[i + 1])
        means = {i: mean(i) for i in line if start[i] < start[i + 1]}
        others = iter(sorted(means, key=means.__getitem__))
        # points without neighbours keep their places
        new = [number[next(others) if i in means else i] for i in line]
        moved.update(
            zip(
                new,
                range(base + line.start, base + line.stop),
            )
        )
        order.place[new] = np.arange(
            base + line.start,
            base + line.stop,
        )
