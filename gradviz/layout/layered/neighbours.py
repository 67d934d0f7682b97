"""A graph as lists of neighbours, and the longest ways down in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradviz.layout import Ints
from gradviz.layout.layered.grouping import counts


@dataclass
class Neighbours:
    """A graph by both ends of every edge. What lies beside each node are plain lists,
    which Python loops read faster than arrays, in the order of the edges.
    """

    size: int
    upper: Ints
    lower: Ints

    @cached_property
    def uses(self) -> Ints:
        """How many edges leave each node downwards."""
        return counts(self.upper, self.size)

    @cached_property
    def inputs(self) -> Ints:
        """How many edges enter each node from above."""
        return counts(self.lower, self.size)

    @cached_property
    def below(self) -> list[list[int]]:
        """The nodes below each."""
        return self._by_node(self.upper, self.lower)

    @cached_property
    def above(self) -> list[list[int]]:
        """The nodes above each."""
        return self._by_node(self.lower, self.upper)

    @cached_property
    def edges_below(self) -> list[list[int]]:
        """The edges below each node."""
        return self._by_node(self.upper, np.arange(len(self.upper)))

    @cached_property
    def edges_above(self) -> list[list[int]]:
        """The edges above each node."""
        return self._by_node(self.lower, np.arange(len(self.lower)))

    def _by_node(self, nodes: Ints, values: Ints) -> list[list[int]]:
        lists: list[list[int]] = [[] for _ in range(self.size)]
        for node, value in zip(nodes.tolist(), values.tolist()):
            lists[node].append(value)
        return lists

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


def stream_order(near: Neighbours) -> Ints:
    """Ranks by the distance to the end, also in a graph with cycles: what leads to one
    has no such distance, and comes first.
    """
    height, settled = near.heights
    order = np.full(near.size, -near.size)
    order[settled] = -np.array(height)[settled]
    return order
