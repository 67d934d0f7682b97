"""Fewer crossings: exchanges of neighbours everywhere at once, then sweeps over the lines that still have crossings.

Both only ever find the best order near the one they start from, so components that keep crossings are tried from other
first orders too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gradviz.layout.layered.crossings import FirstOrder, Order
from gradviz.layout.layered.grouping import (
    Groups,
    Mask,
    counts,
    ranges,
)
from gradviz.layout.layered.layers import Layers
from gradviz.layout.model import Floats, Ints

EXCHANGE_ROUNDS = 20
SWEEPS = 4
REACH = 12  # lines above and below a crossing that a sweep takes in
LARGEST_RETRY = 300_000  # points; larger drawings are tried from the first start only
LARGEST_PAIR = 4096  # pieces of one neighbour times those of the other, above which a pair is left as it is


def best_order(layers: Layers, starts: Sequence[Callable[[], FirstOrder]]) -> Order:
    """An order with few crossings: for every component the best that was found from these first orders."""
    order = Order(layers, _keys(layers, starts[0]()))
    crossings = _by_component(layers, reduce_crossings(order))
    for start in starts[1:]:
        if not crossings.any() or layers.size > LARGEST_RETRY:
            break
        before = order.place.copy()
        order.sort(np.where((crossings > 0)[layers.component], _keys(layers, start()), before))
        now = _by_component(layers, reduce_crossings(order))
        better = now < crossings
        order.place = np.where(better[layers.component], order.place, before)
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
    summed: Ints = np.add.reduceat(crossings, layers.first_line[:-1])
    return summed


def reduce_crossings(order: Order) -> Ints:
    """Improve the order in place; the number of crossings never grows. Returns the crossings left below every line."""
    exchange(order, EXCHANGE_ROUNDS)
    before = order.crossings()
    for turn in range(SWEEPS):
        if not before.any():
            break
        before, better = _sweep_once(order, before, upwards=bool(turn % 2))
        if not better and turn % 2:
            break
    return before


def exchange(order: Order, rounds: int) -> None:
    """Exchange neighbours where that removes crossings.

    Lines of one parity and every other pair in them are tried at once: no exchange changes what another gains.
    """
    at, place = order.at, order.place
    pairs = order.neighbours()
    line = order.line[at[pairs]]
    turn = (line % 2) * 2 + (pairs - order.line_start[line]) % 2
    sets = [pairs[turn == k] for k in range(4)]
    active = np.ones(len(at), np.bool_)
    for _ in range(rounds):
        touched = np.zeros(len(at), np.bool_)
        for left in sets:
            left = left[active[left] | active[left + 1]]
            left = left[_gain(order, at[left], at[left + 1]) > 0]
            both = np.stack((at[left], at[left + 1]))
            at[left + 1], at[left] = both
            place[both[1]], place[both[0]] = left, left + 1
            _touch(order, touched, left, both.ravel())
        if not touched.any():
            return
        changed = np.flatnonzero(touched)
        touched[np.maximum(changed - 1, 0)] = True
        touched[np.minimum(changed + 1, len(at) - 1)] = True
        active = touched


def _touch(order: Order, touched: Mask, left: Ints, points: Ints) -> None:
    """Mark the places exchanged and those of their neighbours in other rows: something may be gained there now."""
    touched[left] = touched[left + 1] = True
    for groups, far in ((order.down, order.layers.below), (order.up, order.layers.above)):
        _, entry = ranges(groups.start[points], groups.start[points + 1] - groups.start[points])
        touched[order.place[far[groups.order[entry]]]] = True


def _gain(order: Order, left: Ints, right: Ints) -> Floats:
    """Crossings that go away when `left` and `right`, which are neighbours, are exchanged."""
    layers = order.layers
    gain = _side_gain(order, order.down, layers.below, order.below_port, left, right)
    return gain + _side_gain(order, order.up, layers.above, order.above_port, left, right)


def _side_gain(order: Order, groups: Groups, far: Ints, port: Ints, left: Ints, right: Ints) -> Floats:
    start = groups.start
    of_left, of_right = start[left + 1] - start[left], start[right + 1] - start[right]
    pairs = of_left * of_right
    pairs[pairs > LARGEST_PAIR] = 0
    owner, k = ranges(np.zeros(len(pairs), np.int64), pairs)
    wide = of_right[owner]
    first, second = groups.order[start[left[owner]] + k // wide], groups.order[start[right[owner]] + k % wide]
    a, b = (order.place[far[piece]] * order.steps + port[piece] for piece in (first, second))
    sign = (a > b).astype(np.float64) - (a < b)
    return np.bincount(owner, weights=sign, minlength=len(left)).astype(np.float64)


def _sweep_once(order: Order, before: Ints, upwards: bool) -> tuple[Ints, bool]:
    """One barycentre sweep over the windows with crossings; windows that got worse are put back.

    Returns the crossings below every line now, and whether a window got better.
    """
    windows, window = _windows(before, order)
    old = order.place.copy()
    for first, end in windows:
        _sweep_window(order, first, end, upwards)
    order.restore_places()
    exchange(order, 6)
    after = order.crossings()
    beside = np.maximum(window, np.append(window[1:], -1))  # of the gap below each line
    inside = beside >= 0
    change = np.bincount(beside[inside], weights=(after - before)[inside], minlength=len(windows))
    bad = (window >= 0) & (change[window] > 0)
    if not bad.any():
        return after, bool((change < 0).any())
    back = bad[order.line]
    order.place[back] = old[back]
    order.restore_places()
    return order.crossings(), bool((change < 0).any())


def _windows(crossings: Ints, order: Order) -> tuple[list[tuple[int, int]], Ints]:
    """Runs of lines near crossings as (first, end), and for each line the number of its run or -1.

    A run never reaches from one component into the next.
    """
    crossed = np.flatnonzero(crossings)
    first, end = np.maximum(crossed - REACH, 0), np.minimum(crossed + 2 + REACH, order.lines)
    inside = np.cumsum(counts(first, order.lines) - counts(end, order.lines + 1)[:-1]) > 0
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    first_line = order.layers.first_line[:-1]
    begins[first_line] = inside[first_line]
    window = np.where(inside, np.cumsum(begins) - 1, -1)
    first = np.flatnonzero(begins)
    return list(zip(first.tolist(), (first + counts(window[inside], len(first))).tolist())), window


def _sweep_window(order: Order, first: int, end: int, upwards: bool) -> None:
    """Sort each line of a window by the mean place of its neighbours in the line before."""
    base = int(order.line_start[first])
    points = order.at[base : order.line_start[end]]
    if upwards:
        groups, far, port = order.down, order.layers.below, order.below_port
    else:
        groups, far, port = order.up, order.layers.above, order.above_port
    size = groups.start[points + 1] - groups.start[points]
    _, entry = ranges(groups.start[points], size)
    piece = groups.order[entry]
    sorter = _LineSorter(
        points.tolist(),
        order.place,
        far[piece].tolist(),
        (((port[piece] + 0.5) / order.steps) - 0.5).tolist(),
        np.append(0, np.cumsum(size)).tolist(),
    )
    bounds = (order.line_start[first : end + 1] - base).tolist()
    for i in range(end - first - 1, -1, -1) if upwards else range(end - first):
        sorter.sort_line(bounds[i], bounds[i + 1], base)


@dataclass
class _LineSorter:
    """Sorts the points of one window, line by line. Lists are in the old order of the window."""

    points: list[int]
    place: Ints
    far: list[int]
    port: list[float]
    start: list[int]
    moved: dict[int, int] = field(default_factory=dict)

    def sort_line(self, first: int, end: int, base: int) -> None:
        """Sort the points first .. end-1. Points without neighbours keep their places."""
        mean = {i: self._mean(i) for i in range(first, end) if self.start[i] < self.start[i + 1]}
        others = iter(sorted(mean, key=mean.__getitem__))
        new = [next(others) if i in mean else i for i in range(first, end)]
        for place, i in enumerate(new, start=base + first):
            self.moved[self.points[i]] = place
        self.place[[self.points[i] for i in new]] = np.arange(base + first, base + end)

    def _mean(self, i: int) -> float:
        """Mean place of the neighbours of the i-th point."""
        total = 0.0
        for k in range(self.start[i], self.start[i + 1]):
            other = self.far[k]
            place = self.moved.get(other)
            if place is None:
                place = self.moved[other] = int(self.place[other])
            total += place + self.port[k]
        return total / (self.start[i + 1] - self.start[i])
