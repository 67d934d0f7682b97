"""Frames that feed each other: which edges must be drawn upwards so that each drawing
still has rows.

Boxes never form a cycle, but two frames do when each holds something that the other
uses.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered.grouping import Mask, counts, distinct_pairs, places
from gradviz.layout.layered.neighbours import Neighbours


def against_the_stream(items: int, rank: Ints, edges: Ints, ends: Ints) -> Mask:
    """True for edges that have to go up; `ends` are the items of one drawing that hold
    their two boxes.

    Where items wait for each other, the one whose boxes lie higher on average goes
    first.
    """
    count = np.maximum(counts(ends.ravel(), items), 1)
    mean = np.bincount(ends.ravel(), rank[edges.T].ravel(), items) / count
    upper, lower, _ = distinct_pairs(ends, items)
    position = _line_up(items, upper, lower, mean)
    upwards: Mask = position[ends[0]] > position[ends[1]]
    return upwards


def _line_up(items: int, above: Ints, below: Ints, preference: Floats) -> Ints:
    """Put items in a line in which as few edges as may be go back: the place of each."""
    near = Neighbours(items, above, below)
    waiting = counts(below, items).tolist()
    ready = [item for item, count in enumerate(waiting) if not count]
    line: list[int] = []
    done = bytearray(items)

    for next_choice in [*np.argsort(preference, kind="stable").tolist(), -1]:
        while ready:
            item = ready.pop()
            if done[item]:
                continue
            done[item] = 1
            line.append(item)
            for other in near.below[item]:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
        if next_choice >= 0 and not done[next_choice]:
            ready.append(next_choice)

    return places(np.array(line, np.int64))
