"""Which of several processes this is, where a launcher such as torchrun started them,
and words for several of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gradviz.wording import verb

Ranks = tuple[int, ...]
"""Numbers of ranks, in order."""


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
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(
        f"{run[0]}" if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs
    )


def named(ranks: Iterable[int]) -> str:
    """The same with its noun: `rank 1`, `ranks 0-2, 5`."""
    distinct = set(ranks)
    return f"{verb(distinct, 'rank', 'ranks')} {spans(distinct)}"


def grouped(groups: Iterable[Ranks]) -> str:
    """Groups of ranks that are equal among each other, the largest first.

    >>> grouped([(7,), (0, 1, 2)])
    '0-2 alike, 7 differs'
    >>> grouped([(0, 1)]), grouped([(0,), (1,)])
    ('0-1 alike', '0 and 1 differ')
    """
    ordered = sorted(groups, key=lambda group: (-len(group), group))
    alone = [group[0] for group in ordered if len(group) == 1]

    if len(alone) < len(ordered):
        words = [f"{spans(group)} alike" for group in ordered if len(group) > 1]
        if alone:
            words.append(f"{spans(alone)} {verb(alone, 'differs', 'differ')}")
        return ", ".join(words)

    if len(alone) == 2:
        return f"{alone[0]} and {alone[1]} differ"

    return f"{spans(alone)} all differ" if len(alone) > 1 else spans(alone) or "none"
