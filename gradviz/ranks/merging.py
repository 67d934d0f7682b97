"""Merges the graphs of several ranks into one, a rank at a time: time grows with the
nodes of all, memory with those that differ.

Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain

from gradviz.comparison.diff import facts
from gradviz.comparison.merging import Merging
from gradviz.errors import GraphFileError
from gradviz.graph import Edge, Graph, Node, RankShare
from gradviz.graph.collector import paused
from gradviz.graph.files import load
from gradviz.graph.given import graph_of
from gradviz.rank import Rank, Ranks, grouped, named
from gradviz.ranks.rank_diff import RankDiff, Varying, marks
from gradviz.stages import Stage

_RANK = re.compile(r"rank(\d+)")


def merge(graphs: Iterable[object] | Mapping[int, object]) -> RankDiff:
    """What the graphs of several ranks have in common, and what some have alone; each may
    be given as its tensors.

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
    ranks: list[tuple[int | None, Graph]] = []
    if isinstance(graphs, Mapping):
        for rank, graph in graphs.items():
            ranks.append((rank, graph_of(graph)))
    else:
        for graph in graphs:
            ranks.append((None, graph_of(graph)))
    return _merged(ranks)


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


Facts = tuple[tuple[str, str], ...]
"""What a node computed and keeps, as `facts` words it."""


def _merged(graphs: Iterable[tuple[int | None, Graph]]) -> RankDiff:
    """The merged graph of all ranks, and who has what in it."""
    merging = Merging()
    first: Graph | None = None
    # by node: what it computed, and who has it so
    ways: list[dict[Facts, Ranks]] = []
    edges: dict[tuple[int, ...], Ranks] = {}
    saved: dict[int, int] = {}
    world = 0
    same: dict[Facts, Facts] = {}  # equal ones as one object

    for rank, graph in _with_ranks(graphs):
        saved[rank] = sum(graph.held)
        if graph.process is not None:
            world = max(world, graph.process.world)
        first = first or graph
        number = merging.merge(graph)
        ways += [{} for _ in range(len(merging) - len(ways))]

        for node in graph.nodes:
            way, told = ways[number[node.id]], _facts(node)
            told = same.setdefault(told, told)
            way[told] = _with(way.get(told, ()), rank)
        for edge in graph.edges:
            ends = number[edge.consumer], number[edge.producer], *edge[2:4]
            edges[ends] = _with(edges.get(ends, ()), rank)

    if first is None:
        raise GraphFileError(
            "there is no graph to merge: give the graph files of the ranks."
        )

    having = [tuple(sorted(chain.from_iterable(way.values()))) for way in ways]
    numbered = _numbered_edges(edges)
    some_edges = [
        (edge, ranks)
        for edge, ranks in numbered.items()
        # some rank has both ends and not the edge
        if set(ranks) != {*having[edge.consumer]}.intersection(having[edge.producer])
    ]
    every, groups = tuple(sorted(saved)), _groups(saved, ways, edges)
    notes = [f"ranks {grouped(groups)}"] if len(every) > 1 else []
    graph = merging.graph(
        numbered,
        title=_title(first, every),
        backward=(),
        process=None,
        by_rank=(RankShare(every),),
        notes=(*notes, *first.notes),
    )
    diff = RankDiff(
        graph,
        every,
        having,
        groups,
        tuple(_varying(ways)),
        tuple(some_edges),
        dict(sorted(saved.items())),
        world,
    )
    return replace(diff, graph=replace(graph, marks=marks(diff)))


def _with_ranks(
    graphs: Iterable[tuple[int | None, Graph]],
) -> Iterator[tuple[int, Graph]]:
    """Each graph with its rank. Raises GraphFileError for one that is merged itself, and
    for a second one of a rank.
    """
    seen: set[int] = set()
    for place, (rank, graph) in enumerate(graphs):
        if graph.by_rank:
            several = chain.from_iterable(share.ranks for share in graph.by_rank)
            raise GraphFileError(
                f"a graph is merged of {named(several)} already: give the file that each of these ranks wrote."
            )
        if rank is None:
            rank = graph.process.rank if graph.process is not None else place
        if rank in seen:
            raise GraphFileError(
                f"there are two graphs of rank {rank}: give each rank's file once."
            )
        seen.add(rank)
        yield rank, graph


@cache
def _with(ranks: Ranks, rank: int) -> Ranks:
    """The ranks and one more; equal ones are one object."""
    return tuple(sorted((*ranks, rank)))


def _facts(node: Node) -> Facts:
    """Facts of a node by which ranks are told apart: that rank 3 computes on cuda:3 is
    no difference.
    """
    return tuple(
        (what, text.partition(":")[0] if what.startswith("device") else text)
        for what, text in facts(node).items()
    )


def _varying(ways: Iterable[Mapping[Facts, Ranks]]) -> Iterator[Varying]:
    """Nodes that are not the same everywhere, with what each of their ways says that
    not all of them say.
    """
    for node, way in enumerate(ways):
        if len(way) > 1:
            common = set.intersection(*map(set, way))
            told = []
            for said, ranks in way.items():
                words = [" ".join(fact) for fact in said if fact not in common]
                told.append((ranks, tuple(words)))
            yield Varying(node, tuple(told))


def _groups(
    every: Iterable[int],
    ways: Iterable[Mapping[Facts, Ranks]],
    edges: Mapping[tuple[int, ...], Ranks],
) -> tuple[Ranks, ...]:
    """Ranks that no node, content or edge tells apart are one group."""
    telling = {*edges.values(), *chain.from_iterable(way.values() for way in ways)}
    groups: dict[tuple[bool, ...], Ranks] = {}
    for rank in sorted(every):
        key = tuple(rank in some for some in telling)
        groups[key] = (*groups.get(key, ()), rank)
    return tuple(groups.values())


def _numbered_edges(edges: Mapping[tuple[int, ...], Ranks]) -> dict[Edge, Ranks]:
    """Who has each edge. Where ranks disagree on a position, later ones get one behind
    all others.
    """
    last: dict[int, int] = {}
    for consumer, _, _, position in edges:
        last[consumer] = max(last.get(consumer, 0), position)

    numbered: dict[Edge, Ranks] = {}
    taken: set[tuple[int, int]] = set()
    for (consumer, producer, output, position), ranks in edges.items():
        if (consumer, position) in taken:
            # two ranks have different inputs there: both are drawn
            position = last[consumer] = last[consumer] + 1
        taken.add((consumer, position))
        numbered[Edge(consumer, producer, output, position)] = ranks
    return numbered


def _title(first: Graph, every: Ranks) -> str:
    """The first graph's title, said of all ranks."""
    process = first.process
    if process is None:
        return f"{first.title or 'graph'}, {named(every)}"
    return first.title.replace(
        str(Rank(process.rank, process.world)), f"{named(every)} of {process.world}"
    )
