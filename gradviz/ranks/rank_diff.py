"""What several ranks' graphs have in common, and what some have alone. Plain data; knows nothing of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from gradviz.graph import Edge, Graph, Process
from gradviz.rank import grouped
from gradviz.report.results import displayed
from gradviz.wording import plural


class Varying(NamedTuple):
    """A node that several ranks have, and that computed something else on some of them.

    `ways` are the ranks that agree, each with what the node was there, in words: `("(4, 8) float32", "saved 128 B")`.
    """

    node: int
    ways: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]


@displayed("gradviz.ranks.table.table")
@dataclass(frozen=True)
class RankDiff:
    """The graphs of several ranks as one.

    `graph` has every node of every rank once; ids in all other fields are its ids. `having` says for each node which ranks have
    it. What only some have is marked in `graph`, so that every renderer draws it.
    """

    graph: Graph
    ranks: tuple[int, ...]
    having: Sequence[tuple[int, ...]] = field(repr=False)
    groups: tuple[tuple[int, ...], ...]  # ranks whose graphs are equal, by lowest rank
    varying: tuple[Varying, ...]
    some_edges: tuple[tuple[Edge, tuple[int, ...]], ...]  # edges between nodes of both that only some ranks have
    bytes_by_rank: Mapping[int, int]  # saved for backward, each storage once, without parameters and buffers
    processes: Mapping[int, Process]  # what the ranks said of themselves
    world: int = 0  # ranks that there should be, 0 when no file says
    stages: tuple[tuple[int, ...], ...] = ()  # ranks of each stage of a pipeline; empty where all have the same model

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """Nodes that every rank has."""
        return tuple(node for node, ranks in enumerate(self.having) if len(ranks) == len(self.ranks))

    @cached_property
    def only(self) -> Mapping[int, tuple[int, ...]]:
        """For each rank, the nodes that it has and another one lacks. Empty tuples where all are alike."""
        nodes_of: dict[int, list[int]] = {rank: [] for rank in self.ranks}
        for node, ranks in enumerate(self.having):
            if len(ranks) < len(self.ranks):
                for rank in ranks:
                    nodes_of[rank].append(node)
        return {rank: tuple(nodes) for rank, nodes in nodes_of.items()}

    @property
    def missing(self) -> tuple[int, ...]:
        """Ranks that took part and of which no graph was given."""
        return tuple(rank for rank in range(self.world) if rank not in set(self.ranks))

    @property
    def empty(self) -> bool:
        """Whether all ranks are alike, in a pipeline those of each stage."""
        return len(self.groups) <= max(1, len(self.stages))

    def __repr__(self) -> str:
        return f"<RankDiff: ranks {grouped(self.groups)}; {plural(len(self.shared), 'node')} shared>"
