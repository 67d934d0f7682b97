"""Merges the graphs of several ranks into one, a rank at a time: time grows with the nodes of all, memory with those that differ.

Who has what is a number with a bit for each rank. Knows nothing of torch and of files. Also what checks find in the merged graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from gradviz.comparison.merging import Merging, View
from gradviz.errors import GraphFileError
from gradviz.graph import Edge, Graph, Process, column
from gradviz.rank import Ranks
from gradviz.ranks.rank_diff import RankDiff, Varying, marks, shares, summary, title_of
from gradviz.ranks.view import Alike, Ends, Ways, in_words, of_graph, saved_bytes

if TYPE_CHECKING:
    from gradviz.checks.finding import Findings


def merge(graphs: Iterable[Graph] | Mapping[int, Graph]) -> RankDiff:
    """What the graphs of several ranks have in common, and what some have alone.

    The rank is the key of a mapping, else the one that the graph knows of itself (`Graph.process`), else its place. Raises
    GraphFileError for two graphs of one rank, and for none at all.

    >>> from gradviz.graph import Edge, Graph, Node
    >>> both = (Node(0, "SumBackward0"), Node(1, "ExpBackward0"))
    >>> difference = merge([Graph(both, (Edge(0, 1, 0, 0),)), Graph(both[:1])])
    >>> difference.shared, dict(difference.only), difference.groups
    ((0,), {0: (1,), 1: ()}, ((0,), (1,)))
    """
    items = graphs.items() if isinstance(graphs, Mapping) else ((None, graph) for graph in graphs)
    staged, alike = Staged(), Alike()
    for place, (key, graph) in enumerate(items):
        own = graph.process.rank if graph.process is not None else place
        staged.of(graph.process).add(own if key is None else key, of_graph(graph, alike))
    return staged.result()


class Staged:
    """One merging for each stage; a single one where nobody is a stage."""

    def __init__(self) -> None:
        self._mergings = defaultdict[int | None, RankMerging](RankMerging)

    def of(self, process: Process | None) -> RankMerging:
        """The merging that a rank belongs to."""
        return self._mergings[process.stage if process is not None else None]

    def result(self) -> RankDiff:
        """All ranks as one. Raises GraphFileError when none was added, or only some of them are stages."""
        if len(self._mergings) < 2:
            return next(iter(self._mergings.values()), RankMerging()).result()
        if None in self._mergings:
            raise GraphFileError("only some of these graphs are of stages of a pipeline: give those of one launch.")
        from gradviz.ranks.pipeline import stitched

        return stitched({stage: merging.result() for stage, merging in self._mergings.items() if stage is not None})


class RankMerging(Merging):
    """The merged graph while ranks are added to it.

    Ranks known to be equal are one class, and a set of classes is a number with a bit for each, so that sets cost nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._classes: list[list[int]] = []
        self._bit = 1  # of the class that is added
        self._having: list[int] = []
        self._content: list[Hashable] = []
        self._other: dict[int, dict[Hashable, int]] = {}  # node -> contents unlike that of the first, and who has them
        self._edges: dict[Ends, int] = {}
        self._saved: dict[int, int] = {}
        self._processes: dict[int, Process] = {}

    def add(self, rank: int, view: View) -> None:
        """One rank more. Raises GraphFileError when it is there already."""
        self._enter(rank, saved_bytes(view.graph), view.graph.process)
        self._bit = 1 << len(self._classes)
        self._classes.append([rank])
        merged = self.merge(view)
        for consumer, producer, output, position in zip(*(column(view.graph.edges, name) for name in Edge._fields[:4])):
            ends = merged[consumer], merged[producer], output, position
            self._edges[ends] = self._edges.get(ends, 0) | self._bit

    def add_equal(self, rank: int, like: int, process: Process | None) -> None:
        """One rank more, whose graph is known to equal that of rank `like`."""
        self._enter(rank, self._saved[like], process)
        next(ranks for ranks in self._classes if like in ranks).append(rank)

    def _enter(self, rank: int, saved: int, process: Process | None) -> None:
        if rank in self._saved:
            raise GraphFileError(f"there are two graphs of rank {rank}: give each rank's file once.")
        self._saved[rank] = saved
        if process is not None:
            self._processes[rank] = process

    def _begin(self, view: View) -> None:
        super()._begin(view)
        self._having = [1] * len(self._place)
        self._content = [view.content[node] for node in range(len(self._place))]

    def _met(self, node: int, view: View, theirs: int) -> None:
        content = view.content[theirs]
        if node == len(self._having):
            self._having.append(0)
            self._content.append(content)
        self._having[node] |= self._bit
        if content != self._content[node]:
            others = self._other.setdefault(node, {})
            others[content] = others.get(content, 0) | self._bit

    def _ways(self, node: int) -> Ways:
        """Who has a node with which content, the first one's content first."""
        others = self._other.get(node, {})
        rest = self._having[node]
        for bits in others.values():
            rest &= ~bits
        return [(self._content[node], rest), *others.items()]

    # -- the result ----------------------------------------------------------------------------------------------------

    def result(self) -> RankDiff:
        """Everything that was added. Raises GraphFileError when that was nothing."""
        if not self._classes:
            raise GraphFileError("there is no graph to merge: give the graph files of the ranks.")

        @cache
        def ranks(bits: int) -> Ranks:
            return tuple(sorted(rank for i, some in enumerate(self._classes) if bits >> i & 1 for rank in some))

        everyone = (1 << len(self._classes)) - 1
        edges, places = self._numbered_edges()
        some = tuple(
            (Edge(*ends[:3], places[ends]), ranks(bits))
            for ends, bits in self._edges.items()
            if bits != self._having[ends[0]] & self._having[ends[1]]
        )
        varying = []
        for node in sorted(self._other):
            contents, sets = zip(*self._ways(node))
            varying.append(Varying(node, tuple(zip(map(ranks, sets), in_words(contents)))))
        groups = self._groups(everyone)
        first = self._first
        assert first is not None
        graph = self.graph(
            edges,
            title=title_of(first, ranks(everyone)),
            backward=(),
            process=None,
            by_rank=shares(self._saved, self._processes),
            notes=(*summary(groups), *first.notes),
        )
        diff = RankDiff(
            graph,
            ranks(everyone),
            [ranks(bits) for bits in self._having],
            groups,
            tuple(varying),
            some,
            dict(sorted(self._saved.items())),
            dict(sorted(self._processes.items())),
            max((process.world for process in self._processes.values()), default=0),
        )
        return replace(diff, graph=replace(graph, marks=marks(diff)))

    def _groups(self, everyone: int) -> tuple[Ranks, ...]:
        """Classes that no node, content or edge tells apart are one group."""
        sets = {*self._having, *self._edges.values()}
        for ways in self._other.values():
            sets.update(ways.values())
        telling = sorted(sets - {everyone})
        groups: dict[tuple[int, ...], list[int]] = {}
        for i, ranks in enumerate(self._classes):
            groups.setdefault(tuple(bits >> i & 1 for bits in telling), []).extend(ranks)
        return tuple(sorted(tuple(sorted(group)) for group in groups.values()))

    def _numbered_edges(self) -> tuple[list[Edge], dict[Ends, int]]:
        """Edges and their positions. Where ranks disagree on a position, the later ones get one behind all others."""
        taken = defaultdict[int, set[int]](set)
        clash: list[Ends] = []
        places: dict[Ends, int] = {}
        for ends in self._edges:
            consumer, _, _, position = ends
            if position in taken[consumer]:
                clash.append(ends)
            else:
                places[ends] = position
                taken[consumer].add(position)
        for ends in clash:
            places[ends] = max(taken[ends[0]]) + 1
            taken[ends[0]].add(places[ends])
        return [Edge(*ends[:3], place) for ends, place in places.items()], places


def findings_of(diff: RankDiff) -> Findings:
    """What only all ranks together show, of graphs that they saved."""
    from gradviz.checks.finding import Findings
    from gradviz.ranks.rendezvous import RankEnd
    from gradviz.ranks.reporter import Together, findings_of_all

    calls = {rank: process.calls for rank, process in diff.processes.items()}
    findings = findings_of_all(Together(diff, calls, dict.fromkeys(calls, RankEnd())), (), ())
    return Findings(tuple(findings), (), (diff.graph,), (None,))
