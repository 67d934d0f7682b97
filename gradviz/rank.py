"""Which of several processes this is, where a launcher such as torchrun started them, and words for several of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


class Rank(NamedTuple):
    """This process and how many there are, as the launcher's RANK and WORLD_SIZE say."""

    number: int
    world: int

    def __str__(self) -> str:
        return f"rank {self.number} of {self.world}"

    def file(self, path: str) -> str:
        """The name that this process gives a file, so that no other one writes over it.

        >>> Rank(1, 2).file("out/train.svg")
        'out/train.rank1.svg'
        """
        stem, suffix = os.path.splitext(path)
        return f"{stem}.rank{self.number}{suffix}"


def rank(environment: Mapping[str, str] = os.environ) -> Rank | None:
    """This process among several, None when it is alone.

    >>> rank({"RANK": "1", "WORLD_SIZE": "2"})
    Rank(number=1, world=2)
    """
    number, world = environment.get("RANK", ""), environment.get("WORLD_SIZE", "")
    if not (number.isdecimal() and world.isdecimal()) or int(world) < 2:
        return None
    return Rank(int(number), int(world))


def spans(ranks: Iterable[int]) -> str:
    """Ranks as spans of numbers.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in _spans(sorted(set(ranks))))


def named(ranks: Iterable[int]) -> str:
    """The same with its noun: `rank 1`, `ranks 0-2, 5`."""
    distinct = sorted(set(ranks))
    return f"rank {distinct[0]}" if len(distinct) == 1 else f"ranks {spans(distinct)}"


def _spans(ranks: list[int]) -> Iterator[tuple[int, int]]:
    first: int | None = None
    last = -1
    for rank in ranks:
        if first is not None and rank != last + 1:
            yield first, last
            first = None
        first, last = rank if first is None else first, rank
    if first is not None:
        yield first, last


def grouped(groups: Iterable[tuple[int, ...]]) -> str:
    """Groups of ranks that are equal among each other, the largest first.

    >>> grouped([(7,), (0, 1, 2)])
    '0-2 alike, 7 differs'
    >>> grouped([(0, 1)]), grouped([(0,), (1,)])
    ('0-1 alike', '0 and 1 differ')
    """
    ordered = sorted(groups, key=lambda group: (-len(group), group))
    if not ordered:
        return "none"
    if len(ordered) == 1:
        return f"{spans(ordered[0])} alike" if len(ordered[0]) > 1 else spans(ordered[0])
    if all(len(group) == 1 for group in ordered):
        if len(ordered) == 2:
            return f"{ordered[0][0]} and {ordered[1][0]} differ"
        return f"{spans(rank for group in ordered for rank in group)} all differ"
    words = [f"{spans(group)} alike" for group in ordered if len(group) > 1]
    alone = [rank for group in ordered if len(group) == 1 for rank in group]
    if alone:
        words.append(f"{spans(alone)} {'differs' if len(alone) == 1 else 'differ'}")
    return ", ".join(words)
