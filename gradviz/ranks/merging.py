"""Merges the graphs of several ranks into one, a rank at a time: time grows with the
nodes of all, memory with those that differ.

Who has what is a number with a bit for each rank. Knows nothing of torch. Also what
checks find in the merged graph.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from gradviz.comparison.merging import Merging, View
from gradviz.errors import GraphFileError
from gradviz.graph import Edge, Graph, Process, RankShare, column
from gradviz.graph.collector import paused
from gradviz.graph.files import load
from gradviz.rank import Rank, Ranks, grouped, named
from gradviz.ranks.rank_diff import RankDiff, Varying, marks
from gradviz.ranks.view import Alike, in_words, of_graph
from gradviz.stages import Stage

if TYPE_CHECKING:
    from gradviz.checks.finding import Findings

_RANK = re.compile(r"rank(\d+)")


def merge(
    graphs: Iterable[Graph] | Mapping[int, Graph],
) -> RankDiff:
    """What the graphs of several ranks have in common, and what some have alone.

    The rank is the key of a mapping, else the one that the graph knows of itself
    (`Graph.process`), else its place.

    Returns
    -------
    RankDiff
        node ids of what all ranks have (`shared`), and of what some have alone, by rank
        (`only`).

    Raises
    ------
    GraphFileError
        two graphs are of one rank, or there is none at all.

    Examples
    --------
    >>> from gradviz.graph import Edge, Graph, Node
    >>> both = (Node(0, "SumBackward0"), Node(1, "ExpBackward0"))
    >>> difference = merge([Graph(both, (Edge(0, 1, 0, 0),)), Graph(both[:1])])
    >>> difference.shared, dict(difference.only), difference.groups
    ((0,), {0: (1,), 1: ()}, ((0,), (1,)))
    """
    if isinstance(graphs, Mapping):
        return _merged(graphs.items())
    return _merged((None, graph) for graph in graphs)


def merge_files(paths: Sequence[str]) -> RankDiff:
    """The same of the graphs in these files, which are read one at a time.

    The rank is what the file says of itself, else `rank3` in its name, else its place.
    Raises GraphFileError for a file that is broken, and as `merge`.
    """
    with paused(), Stage("merge", "ranks", total=len(paths)) as reading:
        return _merged(map(_read, reading.each(paths)))


def _read(path: str) -> tuple[int | None, Graph]:
    graph, in_name = load(path), _RANK.findall(path)
    if graph.process is None and in_name:
        return int(in_name[-1]), graph
    return None, graph


def _merged(graphs: Iterable[tuple[int | None, Graph]]) -> RankDiff:
    merging, alike = RankMerging(), Alike()
    for place, (rank, graph) in enumerate(graphs):
        if rank is None:
            rank = graph.process.rank if graph.process is not None else place
        merging.add(rank, of_graph(graph, alike))
    return merging.result()


def findings_of(diff: RankDiff) -> Findings:
    """What checks find in the graphs of all ranks together."""
    from gradviz.checks.call import BackwardCall
    from gradviz.checks.registry import run

    return run([BackwardCall(diff.graph, ranks=diff)])


class RankMerging(Merging):
    """The merged graph while ranks are added to it. A set of ranks is a number with a
    bit for each.
    """

    def __init__(self) -> None:
        super().__init__()
        # by node: what it computed, and who has it so
        self._ways: list[dict[Hashable, int]] = []
        self._edges: dict[tuple[int, int, int, int], int] = {}
        self._saved: dict[int, int] = {}  # bytes by rank, in the order of the bits
        self._processes: dict[int, Process] = {}

    @property
    def _bit(self) -> int:
        """Of the rank that is added."""
        return 1 << len(self._saved) - 1

    def add(self, rank: int, view: View) -> None:
        """One rank more. Raises GraphFileError when it is there already."""
        if rank in self._saved:
            raise GraphFileError(
                f"there are two graphs of rank {rank}: give each rank's file once."
            )
        self._saved[rank] = sum(view.graph.held)
        if view.graph.process is not None:
            self._processes[rank] = view.graph.process

        merged, bit = self.merge(view), self._bit
        for consumer, producer, output, position in zip(
            *(column(view.graph.edges, name) for name in Edge._fields[:4])
        ):
            ends = merged[consumer], merged[producer], output, position
            self._edges[ends] = self._edges.get(ends, 0) | bit

    def _begin(self, view: View) -> None:
        super()._begin(view)
        self._ways = [{view.content[node]: 1} for node in range(len(self._place))]

    def _met(
        self,
        node: int,
        view: View,
        theirs: int,
    ) -> None:
        if node == len(self._ways):
            self._ways.append({})
        ways, content = self._ways[node], view.content[theirs]
        # who computed the same is one way
        ways[content] = ways.get(content, 0) | self._bit

    def result(self) -> RankDiff:
        """Everything that was added. Raises GraphFileError when that was nothing."""
        if self._first is None:
            raise GraphFileError(
                "there is no graph to merge: give the graph files of the ranks."
            )

        @cache
        def ranks(bits: int) -> Ranks:
            every = enumerate(self._saved)
            return tuple(sorted(rank for i, rank in every if bits >> i & 1))

        # every rank has a node in one way
        having = [sum(ways.values()) for ways in self._ways]
        edges = self._numbered_edges()
        some_edges = [
            (edge, ranks(bits))
            for edge, bits in edges.items()
            # some rank has both ends and not the edge
            if bits != having[edge.consumer] & having[edge.producer]
        ]
        varying = [
            Varying(
                node,
                tuple(
                    zip(
                        map(ranks, ways.values()),
                        in_words(list(ways)),
                    )
                ),
            )
            for node, ways in enumerate(self._ways)
            if len(ways) > 1
        ]

        every, groups = tuple(sorted(self._saved)), self._groups()
        notes = [f"ranks {grouped(groups)}"] if len(every) > 1 else []
        graph = self.graph(
            edges,
            title=_title(self._first, every),
            backward=(),
            process=None,
            by_rank=(RankShare(every),),
            notes=(*notes, *self._first.notes),
        )
        diff = RankDiff(
            graph,
            every,
            [ranks(bits) for bits in having],
            groups,
            tuple(varying),
            tuple(some_edges),
            dict(sorted(self._saved.items())),
            dict(sorted(self._processes.items())),
            max(
                (process.world for process in self._processes.values()),
                default=0,
            ),
        )
        return replace(diff, graph=replace(graph, marks=marks(diff)))

    def _groups(self) -> tuple[Ranks, ...]:
        """Ranks that no node, content or edge tells apart are one group."""
        telling = {*self._edges.values()}
        for ways in self._ways:
            telling.update(ways.values())

        groups: dict[tuple[int, ...], list[int]] = {}
        for i, rank in enumerate(self._saved):
            key = tuple(bits >> i & 1 for bits in telling)
            groups.setdefault(key, []).append(rank)
        return tuple(sorted(tuple(sorted(group)) for group in groups.values()))

    def _numbered_edges(self) -> dict[Edge, int]:
        """Who has each edge. Where ranks disagree on a position, later ones get one
        behind all others.
        """
        last: dict[int, int] = {}
        for consumer, _, _, position in self._edges:
            last[consumer] = max(last.get(consumer, 0), position)

        edges: dict[Edge, int] = {}
        taken: set[tuple[int, int]] = set()
        for (consumer, producer, output, position), bits in self._edges.items():
            if (consumer, position) in taken:
                # two ranks have different inputs there: both are drawn
                position = last[consumer] = last[consumer] + 1
            taken.add((consumer, position))
            edges[Edge(consumer, producer, output, position)] = bits
        return edges


def _title(first: Graph, every: Ranks) -> str:
    """The first graph's title, said of all ranks."""
    process = first.process
    if process is None:
        return f"{first.title or 'graph'}, {named(every)}"
    return first.title.replace(
        str(Rank(process.rank, process.world)), f"{named(every)} of {process.world}"
    )
