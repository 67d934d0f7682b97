"""A graph as lists of neighbours, and the longest ways down in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from gradviz.layout import Ints
from gradviz.layout.layered.grouping import group


@dataclass
class Neighbours:
    """A graph: both ends of every edge, and the nodes below and above each, as plain
    lists, which Python loops read faster than arrays.
    """

    size: int
    upper: Ints
    lower: Ints
    below: list[list[int]]
    above: list[list[int]]

    def ends(self) -> list[int]:
        """The nodes with nothing below them."""
        return [node for node, below in enumerate(self.below) if not below]

    @cached_property
    def heights(self) -> tuple[list[int], list[int]]:
        """Longest way down from every node, and the order in which that was settled. Nodes
        on cycles are never settled.
        """
        waiting = [len(below) for below in self.below]
        height = [0] * self.size
        ready = self.ends()
        settled: list[int] = []

        while ready:
            node = ready.pop()
            settled.append(node)
            least = height[node] + 1
            for other in self.above[node]:
                if height[other] < least:
                    height[other] = least
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)

        return height, settled


def neighbours(size: int, upper: Ints, lower: Ints) -> Neighbours:
    """Neighbour lists of a graph."""
    down, up = group(upper, size), group(lower, size)
    below, above = lower[down.order], upper[up.order]
    lists = cut(below, down.start), cut(above, up.start)
    return Neighbours(size, upper, lower, *lists)


def cut(values: Ints, start: Ints) -> list[list[int]]:
    """Values in lists that begin at these places."""
    every = values.tolist()
    return [every[first:end] for first, end in pairwise(start.tolist())]


def stream_order(near: Neighbours) -> Ints:
    """Ranks by the distance to the end, also in a graph with cycles: what leads to one
    has no such distance, and comes first.
    """
    height, settled = near.heights
    order = np.full(near.size, -near.size)
    order[settled] = -np.array(height)[settled]
    return order
