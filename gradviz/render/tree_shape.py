"""Turns a graph into a tree for reading in rows: who shows each node, and which input goes straight on.

A node with several consumers is shown once, under the consumer that is furthest from the outputs, so that a main stream
is not swallowed by a shortcut around it; the others refer to it. Every walk is linear. This module knows no text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gradviz.graph import Graph

SMALL = 3  # an input with at most this many rows below it is a branch, even when it is the only big one


class Input(NamedTuple):
    """What one consumer takes from one producer, all its edges together."""

    node: int
    edges: int
    outputs: tuple[int, ...]


class TreeShape:
    """The tree of one graph. `size[node]` counts the nodes shown in its part of the tree, itself included."""

    def __init__(self, graph: Graph, *, leaves: bool = True) -> None:
        self.graph = graph
        self._skip = frozenset() if leaves else frozenset(graph.leaf_of)
        order = graph.order
        self.owner = self._owners(order)
        self.size = [1] * len(order)
        for node in reversed(order):
            if self.owner[node] >= 0 and node not in self._skip:
                self.size[self.owner[node]] += self.size[node]
        self.tops = tuple(self._tops())
        self.referenced = self._referenced()

    def inputs(self, node: int) -> list[Input]:
        """What a node takes in, by position; several edges from one producer come as one."""
        edges = self.graph.inputs(node)
        if len(edges) == 1:
            edge = edges[0]
            return [] if edge.producer in self._skip else [Input(edge.producer, edge.count, (edge.output,))]
        found: dict[int, Input] = {}
        for edge in edges:
            if edge.producer not in self._skip:
                before = found.get(edge.producer, Input(edge.producer, 0, ()))
                found[edge.producer] = Input(edge.producer, before.edges + edge.count, (*before.outputs, edge.output))
        return list(found.values())

    def straight_on(self, node: int, inputs: list[Input]) -> int:
        """Which of `inputs` goes on in the same column: the only one, else the biggest if it is not small; -1: none.

        At most one input of a node is more than half of its part, so columns grow with the logarithm of the graph.
        """
        if len(inputs) == 1:
            return 0
        owned = [(self.size[item.node], -i) for i, item in enumerate(inputs) if self.owner[item.node] == node]
        biggest, index = max(owned, default=(0, 0))
        return -index if biggest > SMALL else -1

    def _owners(self, order: tuple[int, ...]) -> list[int]:
        """The consumer furthest from the outputs, for each node; -1 when nobody consumes it."""
        depth, owner = [0] * len(order), [-1] * len(order)
        for node in order:
            below = depth[node] + 1
            for edge in self.graph.inputs(node):
                if below > depth[edge.producer]:
                    depth[edge.producer], owner[edge.producer] = below, node
        return owner

    def _tops(self) -> Iterator[int]:
        """Nodes that nobody consumes and that made no output: only hand-made graphs have them."""
        made = self.graph.roots_of
        for node, owner in enumerate(self.owner):
            if owner < 0 and node not in made and node not in self._skip:
                yield node

    def _referenced(self) -> frozenset[int]:
        """Nodes that some row refers to, so that their own row must show their id."""
        found = {edge.producer for edge in self.graph.edges if self.owner[edge.producer] != edge.consumer}
        for node, roots in self.graph.roots_of.items():
            if len(roots) > 1 or self.owner[node] >= 0:
                found.add(node)
        return frozenset(found)
