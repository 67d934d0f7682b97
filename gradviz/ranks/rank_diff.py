"""What several ranks' graphs have in common, and what some have alone: plain data, its marks in the graph, and its table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gradviz.graph import Edge, Graph, Mark, Process, RankMemory, RankShare
from gradviz.graph.origins import own_line
from gradviz.rank import Rank, Ranks, grouped, named, spans
from gradviz.report.labels import source_text
from gradviz.report.results import displayed
from gradviz.wording import bar, bytes_text, few, one_line, plural, verb

if TYPE_CHECKING:
    from gradviz.report.rich_parts import RenderableType
    from gradviz.report.table import FittedTable


class Varying(NamedTuple):
    """A node that several ranks have, and that computed something else on some of them.

    `ways` are the ranks that agree, each with what the node was there, in words: `("(4, 8) float32", "saved 128 B")`.
    """

    node: int
    ways: tuple[tuple[Ranks, tuple[str, ...]], ...]


@displayed("gradviz.ranks.rank_diff.table")
@dataclass(frozen=True)
class RankDiff:
    """The graphs of several ranks as one.

    `graph` has every node of every rank once; ids in all other fields are its ids. `having` says for each node which ranks have
    it. What only some have is marked in `graph`, so that every renderer draws it.
    """

    graph: Graph
    ranks: Ranks
    having: Sequence[Ranks] = field(repr=False)
    groups: tuple[Ranks, ...]  # ranks whose graphs are equal, by lowest rank
    varying: tuple[Varying, ...]
    some_edges: tuple[tuple[Edge, Ranks], ...]  # edges between nodes of both that only some ranks have
    bytes_by_rank: Mapping[int, int]  # saved for backward, each storage once, without parameters and buffers
    processes: Mapping[int, Process]  # what the ranks said of themselves
    world: int = 0  # ranks that there should be, 0 when no file says
    stages: tuple[Ranks, ...] = ()  # ranks of each stage of a pipeline; empty where all have the same model

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
    def missing(self) -> Ranks:
        """Ranks that took part and of which no graph was given."""
        return tuple(rank for rank in range(self.world) if rank not in set(self.ranks))

    @property
    def empty(self) -> bool:
        """Whether all ranks are alike, in a pipeline those of each stage."""
        return len(self.groups) <= max(1, len(self.stages))

    def __repr__(self) -> str:
        return f"<RankDiff: ranks {grouped(self.groups)}; {plural(len(self.shared), 'node')} shared>"


def table(diff: RankDiff) -> RenderableType:
    """What the ranks have in common and what differs, and bytes per rank as a bar chart."""
    from gradviz.report.rich_parts import Group, Text

    lines = [*_head(diff), *(f"  {mark.number}. {one_line(mark.words)}" for mark in diff.graph.marks)]
    missing = [Text(f"no graph of {named(diff.missing)}", style="yellow")] if diff.missing else []
    return Group(*(Text(line, overflow="fold") for line in lines), *missing, Text(), _memory(diff.graph.by_rank))


def _head(diff: RankDiff) -> Iterator[str]:
    """Who is like whom, and how much all share."""
    yield one_line(diff.graph.title or "graph")
    for i, own in enumerate(diff.stages):
        yield f"stage {i}: {named(own)}"
    told = [f"{plural(len(diff.shared), 'node')} shared"]
    if len(diff.having) > len(diff.shared):
        told.append(f"{plural(len(diff.having) - len(diff.shared), 'node')} of some ranks only")
    if diff.varying:
        told.append(f"{plural(len(diff.varying), 'node')} with other sizes or state by rank")
    yield f"{verb(diff.ranks, 'rank', 'ranks')} {grouped(diff.groups)}; {', '.join(told)}"


def _memory(shares: Sequence[RankShare]) -> FittedTable:
    """Bytes per rank: what was read of each, and a bar for all of it. Ranks with equal numbers are one row."""
    from gradviz.report.rich_parts import Text
    from gradviz.report.table import Column, FittedTable, Kind

    columns = _columns(shares)
    kinds: dict[str, Kind] = {"rank": "word", "machine": "name", "bar": "bar"}
    heads = [Column(title, kinds.get(title, "number"), leaves=int(title == "bar")) for title in columns]
    return FittedTable(heads, [[*map(Text, cells)] for cells in zip(*columns.values())])


def _columns(shares: Sequence[RankShare]) -> dict[str, list[str]]:
    """The cells of each column by its title."""
    columns = {"rank": [spans(share.ranks) for share in shares]}
    hosts = [one_line(share.host) for share in shares]
    if any(hosts):
        columns["machine"] = hosts
    words = len(columns)
    for name in RankMemory._fields:
        amounts = [getattr(share.memory, name) for share in shares]
        if any(amount is not None for amount in amounts):
            columns["saved for backward" if name == "saved" else name] = [bytes_text(amount) for amount in amounts]
    if len(columns) > words + 1:
        columns["in all"] = [bytes_text(share.total) for share in shares]
    most = max((share.total for share in shares), default=0)
    columns["bar"] = [bar(share.total / most if most else None) for share in shares]
    return columns


# -- what a merged graph says of its ranks -----------------------------------------------------------------------------

MOST = 40  # marks; what is left is in the last one


def title_of(first: Graph, ranks: Ranks) -> str:
    """The first graph's title, said of all ranks."""
    own = first.process
    if own is None:
        return f"{first.title or 'graph'}, {named(ranks)}"
    return first.title.replace(str(Rank(own.rank, own.world)), f"{named(ranks)} of {own.world}")


def summary(groups: Sequence[Ranks]) -> tuple[str, ...]:
    """Who is like whom, for under a picture; nothing of a rank alone.

    >>> summary([(0, 1), (2,)])
    ('ranks 0-1 alike, 2 differs',)
    """
    return (f"ranks {grouped(groups)}",) if sum(map(len, groups)) > 1 else ()


def shares(saved: Mapping[int, int], processes: Mapping[int, Process]) -> tuple[RankShare, ...]:
    """What each rank holds. Ranks with equal numbers, and on one machine where there are several, are one."""
    hosts = {process.host for process in processes.values()}
    ranks_of = defaultdict[tuple[RankMemory, str], list[int]](list)
    for rank, nbytes in sorted(saved.items()):
        process = processes.get(rank, Process(rank, 0))
        host = process.host if len(hosts) > 1 else ""
        ranks_of[process.memory._replace(saved=nbytes), host].append(rank)
    return tuple(RankShare(tuple(ranks), memory, host) for (memory, host), ranks in ranks_of.items())


def marks(diff: RankDiff) -> tuple[Mark, ...]:
    """One mark for all that the same ranks have alone at one place, then one for each place that differs."""
    graph = diff.graph
    alone = defaultdict[tuple[Ranks, str], list[int]](list)
    for node, own in enumerate(diff.having):
        if len(own) < len(diff.ranks):
            alone[own, _place_of(graph, node)].append(node)
    links = defaultdict[Ranks, list[Edge]](list)
    for edge, own in diff.some_edges:
        links[own].append(edge)
    differing = defaultdict[tuple[tuple[Ranks, ...], str], list[Varying]](list)
    for varied in diff.varying:
        differing[tuple(own for own, _ in varied.ways), _place_of(graph, varied.node)].append(varied)
    every = [
        *(_alone(graph, own, where, nodes, links.pop(own, ())) for (own, where), nodes in alone.items()),
        *(
            _added(own, f"{plural(len(edges), 'edge')} between functions that others have, too", (), edges)
            for own, edges in links.items()
        ),
        *(_differing(graph, where, items) for (_, where), items in differing.items()),
    ]
    if len(every) > MOST:
        rest = every[MOST - 1 :]
        nodes = tuple(node for mark in rest for node in mark.nodes)
        every[MOST - 1 :] = [Mark(0, "by rank", f"{plural(len(rest), 'place')} more", nodes, kind="changed")]
    return tuple(mark._replace(number=number) for number, mark in enumerate(every, 1))


def _alone(graph: Graph, own: Ranks, where: str, nodes: Sequence[int], edges: Sequence[Edge]) -> Mark:
    names = list(dict.fromkeys(_name_of(graph, node) for node in nodes))
    return _added(own, ": ".join([named(own), *filter(None, [where]), few(names, 4)]), nodes, edges)


def _added(own: Ranks, words: str, nodes: Sequence[int], edges: Sequence[Edge]) -> Mark:
    places = tuple((edge.consumer, edge.position) for edge in edges)
    return Mark(0, f"{named(own)} only", words, tuple(nodes), places, kind="added")


def _differing(graph: Graph, where: str, items: Sequence[Varying]) -> Mark:
    first = items[0]
    ways = "; ".join(f"{named(own)}: {', '.join(words)}" for own, words in first.ways)
    more = f", and {plural(len(items) - 1, 'node')} more there" if len(items) > 1 else ""
    words = ": ".join([*filter(None, [where]), _name_of(graph, first.node), ways])
    return Mark(0, "differs by rank", words + more, tuple(varied.node for varied in items), kind="changed")


def _place_of(graph: Graph, node: int) -> str:
    """Module and line of a node, "" for a leaf, and where nothing was recorded."""
    record = graph.nodes[node]
    if node in graph.leaf_of:
        return ""
    line = own_line(record)
    path = graph.scopes[record.scope].path if record.scope is not None else ""
    place = source_text(line._replace(package="")) if line is not None else ""
    return ", ".join(filter(None, (one_line(path), place)))


def _name_of(graph: Graph, node: int) -> str:
    """A leaf's name, else the op."""
    leaf = graph.leaf_of.get(node)
    return one_line(leaf.names[0] if leaf is not None and leaf.names else graph.nodes[node].op)
