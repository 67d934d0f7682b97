"""Frames that feed each other: which edges must be drawn upwards so that each drawing still has rows.

Boxes never form a cycle, but two frames do when each holds something that the other uses.
"""

from __future__ import annotations

import numpy as np

from gradviz.layout.layered.adjacency import Mask, counts, distinct, group
from gradviz.layout.model import Floats, Ints


def against_the_stream(home: Ints, boxes: int, depth: Ints, rank: Ints, one: Ints, other: Ints) -> Mask:
    """True for edges that have to go up. `one` and `other` are the items that hold the ends of each edge.

    `home` is the frame of every box, then of every frame; where items wait for each other, the one whose boxes lie
    higher on average goes first.
    """
    items = len(home)
    keys, _ = distinct(one * items + other)
    position = _line_up(items, keys // max(items, 1), keys % max(items, 1), _mean_rank(home, boxes, depth, rank))
    upwards: Mask = position[one] > position[other]
    return upwards


def _mean_rank(home: Ints, boxes: int, depth: Ints, rank: Ints) -> Floats:
    """Rank of every box, and the mean of the ranks inside every frame."""
    page = len(depth) - 1
    total = np.bincount(home[:boxes], weights=rank, minlength=page + 1).astype(np.float64)
    members = np.bincount(home[:boxes], minlength=page + 1).astype(np.float64)
    around = np.append(home[boxes:], page)
    for level in range(int(depth.max()), 1, -1):
        frames = np.flatnonzero(depth == level)
        np.add.at(total, around[frames], total[frames])
        np.add.at(members, around[frames], members[frames])
    return np.concatenate((rank, (total / np.maximum(members, 1))[:page]))


def _line_up(items: int, above: Ints, below: Ints, preference: Floats) -> Ints:
    """Put items in a line in which as few edges as may be go back: the place of each."""
    down = group(above, items)
    start, following = down.start.tolist(), below[down.order].tolist()
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
            for other in following[start[item] : start[item + 1]]:
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
        if next_choice >= 0 and not done[next_choice]:
            ready.append(next_choice)
    position = np.empty(items, np.int64)
    position[line] = np.arange(items)
    return position
