"""Which row each box lies in: as near to what uses it as possible, side outputs right under what makes them.

Rows count downwards from 0. Knows nothing of sizes or of the order within a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradviz.layout.layered.adjacency import counts, group
from gradviz.layout.model import Ints
from gradviz.layout.upwards import Cycle


class Neighbours(NamedTuple):
    """Both directions of a graph as plain lists, which Python loops read faster than arrays.

    The nodes below v are `below[below_start[v]:below_start[v + 1]]`, by edges `below_edge` in the same range.
    """

    below: list[int]
    below_start: list[int]
    below_edge: Ints
    above: list[int]
    above_start: list[int]


class Ranking(NamedTuple):
    """Row of every node, and the nodes in an order in which each comes after all nodes below it."""

    rank: Ints
    upwards: list[int]


def neighbours(size: int, above: Ints, below: Ints) -> Neighbours:
    """Neighbour lists of a graph."""
    down, up = group(above, size), group(below, size)
    return Neighbours(
        below[down.order].tolist(), down.start.tolist(), down.order, above[up.order].tolist(), up.start.tolist()
    )


def rank_nodes(size: int, above: Ints, below: Ints, near: Neighbours) -> Ranking:
    """Rank by the distance to the end; raises Cycle when the edges form one."""
    height, upwards = _heights(size, counts(above, size).tolist(), near)
    if len(upwards) < size:
        raise Cycle("the edges form a cycle, so the boxes cannot be placed in rows")
    deepest = max(height, default=0)
    rank = [deepest - h for h in height]
    ends = [node for node in range(size) if near.below_start[node] == near.below_start[node + 1]]
    if len(ends) > 1:
        main = _above_all(_main_ends(upwards, ends, near), near)
        _pull_up(rank, upwards, main, near)
    return Ranking(np.array(rank, np.int64), upwards)


def _heights(size: int, waiting: list[int], near: Neighbours) -> tuple[list[int], list[int]]:
    """Longest way down from every node, and the order in which that was settled. Nodes on cycles are never settled."""
    above, start = near.above, near.above_start
    height = [0] * size
    ready = [node for node, count in enumerate(waiting) if not count]
    settled: list[int] = []
    while ready:
        node = ready.pop()
        settled.append(node)
        here = height[node] + 1
        for other in above[start[node] : start[node + 1]]:
            if height[other] < here:
                height[other] = here
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return height, settled


def _main_ends(upwards: list[int], ends: list[int], near: Neighbours) -> list[int]:
    """Ends that matter most where they are: no node above them leads to a deeper end."""
    below, start = near.below, near.below_start
    depth = [0] * len(upwards)
    for node in reversed(upwards):
        here = depth[node] + 1
        for other in below[start[node] : start[node + 1]]:
            if depth[other] < here:
                depth[other] = here
    deepest = depth[:]  # of the ends that can be reached
    for node in upwards:
        for other in below[start[node] : start[node + 1]]:
            if deepest[other] > deepest[node]:
                deepest[node] = deepest[other]
    for node in reversed(upwards):  # ... and of the ends that any node above leads to
        here = deepest[node]
        for other in below[start[node] : start[node + 1]]:
            if deepest[other] < here:
                deepest[other] = here
    return [end for end in ends if deepest[end] == depth[end]]


def _above_all(ends: list[int], near: Neighbours) -> bytearray:
    """1 for the given nodes and everything that leads to them."""
    above, start = near.above, near.above_start
    found = bytearray(len(start) - 1)
    for end in ends:
        found[end] = 1
    todo = list(ends)
    while todo:
        node = todo.pop()
        for other in above[start[node] : start[node + 1]]:
            if not found[other]:
                found[other] = 1
                todo.append(other)
    return found


def _pull_up(rank: list[int], upwards: list[int], main: bytearray, near: Neighbours) -> None:
    """Move what does not lead to a main end right under what it is made from.

    Without this every auxiliary output would hang at the bottom of the page, at the end of a very long line.
    """
    above, above_start, below, below_start = near.above, near.above_start, near.below, near.below_start
    held = bytearray(main)
    for node in reversed(upwards):
        if not main[node]:
            made_from = [rank[v] for v in above[above_start[node] : above_start[node + 1]] if held[v]]
            if made_from:
                held[node] = 1
                rank[node] = max(made_from) + 1
    for node in upwards:  # what only feeds such nodes goes just above them
        if not held[node] and below_start[node] < below_start[node + 1]:
            rank[node] = min([rank[v] for v in below[below_start[node] : below_start[node + 1]]]) - 1


def rows_by_component(rank: Ints, component: Ints, count: int, pin: Ints) -> Ints:
    """Rows counted from 0 within each component. Ports get rows of their own, first and last."""
    inner = pin == 0
    top = np.full(count, np.iinfo(np.int64).max)
    bottom = np.full(count, -1, np.int64)
    np.minimum.at(top, component[inner], rank[inner])
    top[top == np.iinfo(np.int64).max] = 0  # a line straight through a frame: nothing but ports
    rows = rank - top[component]
    np.maximum.at(bottom, component[inner], rows[inner])
    has_top = np.zeros(count, np.int64)
    has_top[component[pin < 0]] = 1
    rows = np.where(pin < 0, 0, np.where(pin > 0, bottom[component] + 1, rows) + has_top[component])
    return rows.astype(np.int64, copy=False)
