"""Arrays of keys turned into groups: which edges begin at a node, which boxes lie in a
row, what is connected to what.

Plain index arithmetic on numpy arrays. Knows nothing of boxes, ranks or coordinates.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np

from gradviz.layout import Floats, Ints

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""One truth value per entry."""
Values = TypeVar("Values", Floats, Ints, Mask)


class SortedGroups(NamedTuple):
    """Entries sorted by key. Those with key k are `order[start[k]:start[k + 1]]`, in
    their old order.
    """

    order: Ints
    start: Ints

    def of(self, key: int) -> Ints:
        """The entries with this key."""
        return self.order[self.start[key] : self.start[key + 1]]


def counts(keys: Ints, count: int) -> Ints:
    """How often each of 0 .. count-1 occurs in `keys`."""
    return np.bincount(keys, minlength=count).astype(np.int64, copy=False)


def starts_of(sizes: Ints) -> Ints:
    """Where groups of these sizes begin when laid one after another; one entry more for
    the end of the last.
    """
    start = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=start[1:])
    return start


def group(keys: Ints, count: int) -> SortedGroups:
    """Group entries by `keys`, whose values lie in 0 .. count-1."""
    return SortedGroups(np.argsort(keys, kind="stable"), starts_of(counts(keys, count)))


def ranges(sizes: Ints) -> tuple[Ints, Ints]:
    """The ranges 0 .. sizes[i]-1 one after another: (i of each entry, the entry).

    >>> owner, entry = ranges(np.array([2, 1]))
    >>> owner.tolist(), entry.tolist()
    ([0, 0, 1], [0, 1, 0])
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    return owner, np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner]


def members(start: Ints, groups: Ints) -> tuple[Ints, Ints]:
    """What lies in these groups, which begin at `start`, one group after another:
    (sizes of the groups, the places of all).
    """
    sizes = start[groups + 1] - start[groups]
    owner, entry = ranges(sizes)
    return sizes, start[groups][owner] + entry


def by_key(
    choose: np.ufunc, values: Values, keys: Ints, count: int, start: float
) -> Values:
    """What `choose`, np.minimum or np.maximum, takes of the values of each key and
    `start`.
    """
    chosen = np.full(count, start, values.dtype)
    choose.at(chosen, keys, values)
    return chosen


def unsorted(values: Values, order: Ints) -> Values:
    """Values that stand in an order, back where they came from: the first belongs to
    entry order[0].
    """
    back = np.empty_like(values)
    back[order] = values
    return back


def places(order: Ints) -> Ints:
    """The place of every entry in an order of all of them."""
    return unsorted(np.arange(len(order)), order)


def distinct_pairs(pairs: Ints, count: int) -> tuple[Ints, Ints, Ints]:
    """Sorted distinct columns of two rows of numbers below `count`, and for every
    column the index of its like among them.
    """
    # one number for each pair, since one sort is cheaper than two
    keys, index = np.unique(pairs[0] * count + pairs[1], return_inverse=True)
    return (*np.divmod(keys, max(count, 1)), index)


def place_in_group(keys: Ints) -> Ints:
    """0, 1, 2, ... within equal keys, in order of appearance."""
    sizes = np.unique(keys, return_counts=True)[1]
    return unsorted(ranges(sizes)[1], np.argsort(keys, kind="stable"))


def components(count: int, first: Ints, second: Ints) -> tuple[Ints, int]:
    """Connected component of each of `count` nodes, numbered by their smallest member,
    and how many there are.
    """
    label = np.arange(count)
    while True:
        a, b = label[first], label[second]
        apart = a != b
        if not apart.any():
            break
        # edges inside one component are settled: each round has fewer to look at
        first, second, a, b = first[apart], second[apart], a[apart], b[apart]
        np.minimum.at(label, np.maximum(a, b), np.minimum(a, b))
        label = follow(label)

    return numbered(label)


def numbered(pointer: Ints) -> tuple[Ints, int]:
    """Numbers for the ends of pointers, 0, 1, ... from the first on: that of the end
    each points at, and how many there are.
    """
    heads = pointer == np.arange(len(pointer))
    return (np.cumsum(heads) - 1)[pointer], int(heads.sum())


def follow(pointer: Ints) -> Ints:
    """Follow pointers to the end of their chains; an end points at itself."""
    while True:
        # each round doubles the distance, so long chains take few rounds
        further = pointer[pointer]
        if np.array_equal(further, pointer):
            return pointer
        pointer = further


def follow_adding(pointer: Ints, step: Floats) -> tuple[Ints, Floats]:
    """Like `follow`, and the sum of `step` on the way. Ends have step 0."""
    while True:
        further = pointer[pointer]
        if np.array_equal(further, pointer):
            return pointer, step
        step = step + step[pointer]
        pointer = further
