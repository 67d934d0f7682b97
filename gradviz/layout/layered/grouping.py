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


def starts_of(sizes: Ints | Mask) -> Ints:
    """Where groups of these sizes begin when laid one after another; one entry more for
    the end of the last.
    """
    start = np.zeros(len(sizes) + 1, np.int64)
    sizes.cumsum(out=start[1:])
    return start


def sizes_of(start: Ints) -> Ints:
    """The sizes of groups that begin there: what `starts_of` was given."""
    return start[1:] - start[:-1]


def group(keys: Ints, count: int) -> SortedGroups:
    """Group entries by `keys`, whose values lie in 0 .. count-1."""
    return SortedGroups(keys.argsort(kind="stable"), starts_of(counts(keys, count)))


def is_among(keys: Ints, some: Ints | list[int], count: int) -> Mask:
    """Whether each key, -1 or below `count`, is one of some that are at least 0."""
    mask = np.zeros(count + 1, np.bool_)
    mask[some] = True
    return mask[keys]


def ranges(sizes: Ints) -> tuple[Ints, Ints]:
    """The ranges 0 .. sizes[i]-1 one after another: (i of each entry, the entry).

    >>> owner, entry = ranges(np.array([2, 1]))
    >>> owner.tolist(), entry.tolist()
    ([0, 0, 1], [0, 1, 0])
    """
    owner = np.arange(len(sizes)).repeat(sizes)
    return owner, np.arange(len(owner)) - (sizes.cumsum() - sizes)[owner]


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
    chosen = np.empty(count, values.dtype)
    chosen.fill(start)
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
    keys, index = distinct(pairs[0] * count + pairs[1])
    return (*np.divmod(keys, max(count, 1)), index)


def distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Sorted distinct keys, and for every key the index of its like among them."""
    order = keys.argsort(kind="stable")
    ordered = keys[order]
    is_first = np.append(True, ordered[1:] != ordered[:-1])[: len(keys)]
    return ordered[is_first], unsorted(is_first.cumsum() - 1, order)


def place_in_group(keys: Ints) -> Ints:
    """0, 1, 2, ... within equal keys, in order of appearance."""
    order, start = group(distinct(keys)[1], len(keys))
    return unsorted(ranges(sizes_of(start))[1], order)


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
    return (heads.cumsum() - 1)[pointer], int(heads.sum())


def follow(pointer: Ints) -> Ints:
    """Follow pointers to the end of their chains; an end points at itself."""
    while True:
        # each round doubles the distance, so long chains take few rounds
        further = pointer[pointer]
        if (further == pointer).all():
            return pointer
        pointer = further


def follow_adding(pointer: Ints, step: Floats) -> tuple[Ints, Floats]:
    """Like `follow`, and the sum of `step` on the way. Ends have step 0."""
    while True:
        further = pointer[pointer]
        if (further == pointer).all():
            return pointer, step
        step = step + step[pointer]
        pointer = further
