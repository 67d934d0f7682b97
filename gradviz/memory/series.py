"""Alike modules as one row: those of one class and size whose paths differ in one
number. Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

T = TypeVar("T")
Entry = tuple[list[int], str, int]
_NUMBER = re.compile(r"\d+")


class Series(NamedTuple):
    """How alike items are called together, such as `blocks.0–5`, and their places among
    all items.
    """

    title: str
    places: tuple[int, ...]


def series(
    items: Sequence[T],
    path: Callable[[T], str],
    alike: Callable[[T], Hashable],
) -> Iterator[Series]:
    """Items in the order of the first of each series. `alike` is what all items of one
    have in common.

    >>> [one.title for one in series(["a.0.x", "a.1.x", "b", "a.3.x"], str, len)]
    ['a.0–1.x', 'b', 'a.3.x']
    """
    kinds: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        kinds.setdefault(
            (pattern(path(item)), alike(item)),
            [],
        ).append(place)

    runs: list[Series] = []
    for places in kinds.values():
        runs += _runs([path(items[place]) for place in places], places)

    return iter(sorted(runs, key=lambda run: min(run.places)))


def pattern(path: str) -> str:
    """What alike modules have in common: `blocks.#.norm`."""
    return _NUMBER.sub("#", path)


def _runs(
    paths: Sequence[str],
    places: Sequence[int],
) -> list[Series]:
    """Runs in which one number counts on by one, of that number which makes the fewest
    of them.
    """
    entries = [(_numbers(path), path, place) for path, place in zip(paths, places)]
    varying = range(max(len(entries[0][0]), 1))
    return min(
        ([*_counting(entries, number)] for number in varying),
        key=len,
    )


def _counting(
    entries: Sequence[Entry],
    number: int,
) -> Iterator[Series]:
    ordered = sorted(
        entries,
        key=lambda entry: (entry[0][:number] + entry[0][number + 1 :], entry[0]),
    )
    runs = [ordered[:1]]
    for before, after in pairwise(ordered):
        counted_on = [
            *before[0][:number],
            sum(before[0][number : number + 1]) + 1,
            *before[0][number + 1 :],
        ]
        if after[0] != counted_on:
            runs.append([])
        runs[-1].append(after)

    for run in runs:
        yield Series(
            _title(
                run[0][1],
                run[-1],
                number,
            ),
            tuple(place for _, _, place in run),
        )


def _title(first: str, last: Entry, number: int) -> str:
    if first == last[1]:
        return first
    match = [*_NUMBER.finditer(first)][number]
    return f"{first[: match.start()]}{match[0]}–{last[0][number]}{first[match.end() :]}"


def _numbers(path: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(path)]
