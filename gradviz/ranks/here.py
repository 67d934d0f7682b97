"""Which of several processes this is, where a launcher such as torchrun started the same program several times."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
