"""The line of every node of one thread, by sequence number. Every number has a line that was seen, or none.

Knows nothing of torch: numbers come from outside.
"""

from __future__ import annotations

from gradviz.capture.lines import Place
from gradviz.capture.steps import Steps


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
        self._steps: Steps[Place] = Steps(start)
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
