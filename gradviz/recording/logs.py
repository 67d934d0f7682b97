"""The line of every node of one thread, by sequence number. Every number has a line that was seen, or none.

Knows nothing of torch: numbers come from outside.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Generic, TypeVar

from gradviz.source.lines import Place

# What was current from each sequence number on: the one log behind source lines and module scopes. Autograd numbers
# its nodes upwards, thread by thread. So a value noted together with the next number to be given out holds for every
# node made until the next note. Knows nothing of torch, modules or lines.

T = TypeVar("T")

LIMIT = 2_000_000
"""Notes that one log keeps unless told otherwise."""


class IntervalMap(Generic[T]):
    """Values by sequence number. Notes at one number replace each other: nothing was made between them.

    Beyond `limit` notes the older half is dropped, so that a long run cannot fill the memory; `dropped` is then the number
    below which nothing is known any more.

    >>> steps = IntervalMap[str](0, "a")
    >>> steps.add(3, "b"), steps.add(3, "c")
    (None, None)
    >>> [steps.at(number) for number in (0, 2, 3, 9)]
    ['a', 'a', 'c', 'c']
    """

    __slots__ = ("dropped", "limit", "numbers", "values")

    def __init__(self, start: int, value: T | None = None, limit: int = LIMIT) -> None:
        self.limit = limit
        self.dropped = 0
        self.numbers = array("Q", (start,))
        self.values: list[T | None] = [value]

    def add(self, number: int, value: T | None) -> None:
        """From `number` on, `value` is current. Numbers never go down within one thread."""
        numbers = self.numbers
        size = len(numbers)
        if numbers[-1] == number:
            self.values[size - 1] = value
            return
        self.values[size:] = (value,)  # what an interrupt left half done is written over
        numbers.append(number)
        if size >= self.limit:
            self._drop(size // 2)

    def at(self, number: int) -> T | None:
        """What was current when `number` was given out, or None when that was before the first note that is kept."""
        found = bisect_right(self.numbers, number) - 1
        return self.values[found] if found >= 0 else None

    def _drop(self, count: int) -> None:
        self.dropped = self.numbers[count]
        del self.values[:count], self.numbers[:count]


class LineLog:
    """Places by sequence number; `seen` is the number up to which it is complete.

    >>> from gradviz.graph import SourceLine
    >>> log, place = LineLog(3), Place(SourceLine("train.py", 7))
    >>> log.made(3, place), log.made(6, place)  # nobody saw how 4 and 5 were made
    (None, None)
    >>> [found.source.line if found else None for found in map(log.at, (2, 3, 4, 5, 6, 7))]
    [None, 7, None, None, 7, None]
    """

    __slots__ = ("_place", "_steps", "seen")

    def __init__(self, start: int) -> None:
        self._steps: IntervalMap[Place] = IntervalMap(start)
        self._place: Place | None = None  # the last one noted
        self.seen = start

    @property
    def dropped(self) -> int:
        """Lines of nodes below this number were forgotten."""
        return self._steps.dropped

    def made(self, number: int, place: Place | None) -> None:
        """The node of this number was made at `place`. One that is known already stays as it is."""
        if number > self.seen:
            self.until(number, None)
        elif number < self.seen:
            return
        if self._place is not place:
            self._steps.add(number, place)
            self._place = place
        self.seen = number + 1

    def until(self, number: int, place: Place | None) -> None:
        """All nodes before `number` that nobody saw were made at `place`; None when nobody knows."""
        if number > self.seen:
            if self._place is not place:
                self._steps.add(self.seen, place)
                self._place = place
            self.seen = number

    def at(self, number: int) -> Place | None:
        """Where the node was made; None where that is not known."""
        return self._steps.at(number) if number < self.seen else None
