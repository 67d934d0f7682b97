"""Edges drawn as one: what runs from one box to another in three edges or more, one for each output, is one link.

This module decides which edges those are and what is said beside them; it knows no coordinates and no format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradviz.graph import Edge, Graph, column
from gradviz.render import labels

APART = 2  # edges between the same two boxes that are still drawn one by one
TOLD = 12  # edges that a tooltip lists


class Bundle(NamedTuple):
    """Edges with one producer and one consumer, in the order of the graph."""

    edges: tuple[Edge, ...]

    @property
    def uses(self) -> int:
        return sum(edge.count for edge in self.edges)

    def label(self) -> str:
        """`11 tensors`; with the number of uses where one is used more often: `11 tensors, 55 uses`."""
        text = labels.plural(len(self.edges), "tensor")
        return text if self.uses == len(self.edges) else f"{text}, {labels.plural(self.uses, 'use')}"


def bundles(graph: Graph) -> dict[tuple[int, int], Bundle]:
    """Bundles by (producer, consumer). Only a node with several outputs has parallel edges to one consumer."""
    several = set(zip(*(column(graph.edges, name) for name in ("producer", "consumer", "output"))))
    found: dict[tuple[int, int], list[Edge]] = {ends[:2]: [] for ends in several if ends[2] and ends[0] != ends[1]}
    if found:
        for edge in graph.edges:
            ends = found.get((edge.producer, edge.consumer))
            drawn = without_shared(graph, edge) if ends is not None else None
            if ends is not None and drawn is not None:
                ends.append(drawn)
    return {ends: Bundle(tuple(edges)) for ends, edges in found.items() if len(edges) > APART}


def without_shared(graph: Graph, edge: Edge) -> Edge | None:
    """The edge without its uses of parameters that are drawn with an earlier call, as the box says; None if that is all."""
    group = graph.nodes[edge.consumer].group
    if group is None or not group.shared:
        return edge
    shared = sum(uses.count for uses in group.shared if uses[:2] == (edge.producer, edge.output))
    return edge._replace(count=edge.count - shared) if edge.count > shared else None


def told(words: Sequence[str]) -> str:
    """The labels of the edges in a bundle, for a tooltip."""
    shown = ", ".join(words[:TOLD])
    return f"{shown}, {labels.more(len(words) - TOLD)}" if len(words) > TOLD else shown
