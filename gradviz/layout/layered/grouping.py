"""Arrays of keys turned into groups: which edges begin at a node, which boxes lie in a row, what is connected to what.

Plain index arithmetic on numpy arrays. Knows nothing of boxes, ranks or coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.model import Floats, Ints

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
"""One truth value per entry."""


class Groups(NamedTuple):
    """Entries sorted by key. Those with key k are `order[start[k]:start[k + 1]]`, in their old order."""

    order: Ints
    start: Ints


def counts(keys: Ints, count: int) -> Ints:
    """How often each of 0 .. count-1 occurs in `keys`."""
    return np.bincount(keys, minlength=count).astype(np.int64, copy=False)


def starts_of(sizes: Ints) -> Ints:
    """Where groups of these sizes begin when laid one after another; one entry more for the end of the last."""
    start = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=start[1:])
    return start


def group(keys: Ints, count: int) -> Groups:
    """Group entries by `keys`, whose values lie in 0 .. count-1."""
    return Groups(np.argsort(keys, kind="stable"), starts_of(counts(keys, count)))


def ranges(starts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """The ranges starts[i] .. starts[i]+sizes[i]-1 one after another: (i of each entry, the entry).

    >>> owner, entry = ranges(np.array([5, 9]), np.array([2, 1]))
    >>> owner.tolist(), entry.tolist()
    ([0, 0, 1], [5, 6, 9])
    """
    owner = np.repeat(np.arange(len(sizes)), sizes)
    entry = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner] + starts[owner]
    return owner, entry


def first_of_runs(keys: Ints) -> Ints:
    """Index of the first entry of every run of equal neighbours."""
    if not len(keys):
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))


def distinct(keys: Ints) -> tuple[Ints, Ints]:
    """Sorted distinct keys, and for every entry the index of its key among them.

    One sort; `numpy.unique` hashes first and was the slowest call of the layout.
    """
    order = np.argsort(keys, kind="stable")
    sorted_keys = keys[order]
    first = first_of_runs(sorted_keys)
    index = np.empty(len(keys), np.int64)
    index[order] = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(keys))))
    return sorted_keys[first], index


def place_in_group(keys: Ints) -> Ints:
    """0, 1, 2, ... within equal keys, in order of appearance."""
    order = np.argsort(keys, kind="stable")
    first = first_of_runs(keys[order])
    place = np.empty(len(keys), np.int64)
    place[order] = np.arange(len(keys)) - np.repeat(first, np.diff(np.append(first, len(keys))))
    return place


def components(count: int, first: Ints, second: Ints) -> tuple[Ints, int]:
    """Connected component of each of `count` nodes, numbered by their smallest member, and how many there are."""
    label = np.arange(count)
    while True:
        a, b = label[first], label[second]
        apart = a != b
        if not apart.any():
            break
        first, second, a, b = first[apart], second[apart], a[apart], b[apart]
        np.minimum.at(label, np.maximum(a, b), np.minimum(a, b))
        label = follow(label)
    heads = label == np.arange(count)
    return (np.cumsum(heads) - 1)[label], int(heads.sum())


def follow(pointer: Ints) -> Ints:
    """Follow pointers to the end of their chains; an end points at itself."""
    while True:
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


def extremes(values: Floats, keys: Ints, count: int) -> tuple[Floats, Floats]:
    """The least and the largest value of each key; infinite where a key has none."""
    least, largest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, keys, values)
    np.maximum.at(largest, keys, values)
    return least, largest
