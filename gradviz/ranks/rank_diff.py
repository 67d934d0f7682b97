"""What several ranks' graphs have in common, and what some have alone: plain data, its
marks in the graph, and its text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gradviz.graph import Edge, Graph, Mark
from gradviz.graph.origins import own_line
from gradviz.rank import Ranks, grouped, named
from gradviz.report.labels import node_row, source_text
from gradviz.report.results import displayed
from gradviz.wording import bytes_text, few, one_line, plural, verb

if TYPE_CHECKING:
    from gradviz.report.rich_parts import RenderableType


class Varying(NamedTuple):
    """A node that several ranks have, and that computed something else on some of them.

    `ways` are the ranks that agree, each with what the node was there, in words:
    `("(4, 8) float32", "saved 128 B")`.
    """

    node: int
    ways: tuple[tuple[Ranks, tuple[str, ...]], ...]


@displayed("gradviz.ranks.rank_diff:table")
@dataclass(frozen=True)
class RankDiff:
    """The graphs of several ranks as one.

    `graph` has every node of every rank once; ids in all other fields are its ids.
    `having` says for each node which ranks have it. What only some have is marked in
    `graph`, so that every renderer draws it.
    """

    graph: Graph
    ranks: Ranks
    having: Sequence[Ranks] = field(repr=False)
    groups: tuple[Ranks, ...]  # ranks whose graphs are equal, by lowest rank
    varying: tuple[Varying, ...]
    # edges between nodes of both that only some ranks have
    some_edges: tuple[tuple[Edge, Ranks], ...]
    # saved for backward, each storage once, without parameters and buffers
    bytes_by_rank: Mapping[int, int]
    world: int = 0  # ranks that there should be, 0 when no file says

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """Nodes that every rank has."""
        return tuple(
            node
            for node, ranks in enumerate(self.having)
            if len(ranks) == len(self.ranks)
        )

    @cached_property
    def only(self) -> Mapping[int, tuple[int, ...]]:
        """For each rank, the nodes that it has and another one lacks. Empty tuples
        where all are alike.
        """
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
        """Whether all ranks are alike."""
        return len(self.groups) == 1

    def __iter__(self) -> Iterator[dict[str, str]]:
        """A row for each node that some ranks lack or that differs, for pandas."""
        rows: list[tuple[int, Ranks, Sequence[str]]] = []
        for node, ranks in enumerate(self.having):
            if len(ranks) < len(self.ranks):
                rows.append((node, ranks, ()))
        for node, ways in self.varying:
            rows += [(node, *way) for way in ways]
        for node, ranks, words in rows:
            row = {"ranks": named(ranks), **node_row(self.graph, node)}
            yield {**row, "what": ", ".join(words)}

    def __repr__(self) -> str:
        return f"<RankDiff: ranks {grouped(self.groups)}; {plural(len(self.shared), 'node')} shared>"


def table(diff: RankDiff) -> RenderableType:
    """What the ranks have in common and what differs, and the bytes of each."""
    from gradviz.report.rich_parts import Text

    counts = [f"{plural(len(diff.shared), 'node')} shared"]
    if len(diff.having) > len(diff.shared):
        counts.append(
            f"{plural(len(diff.having) - len(diff.shared), 'node')} of some ranks only"
        )
    if diff.varying:
        counts.append(
            f"{plural(len(diff.varying), 'node')} with other sizes or state by rank"
        )

    lines = [
        one_line(diff.graph.title),
        f"{verb(diff.ranks, 'rank', 'ranks')} {grouped(diff.groups)}; {', '.join(counts)}",
        *(f"  {mark.number}. {one_line(mark.words)}" for mark in diff.graph.marks),
    ]
    if diff.missing:
        lines.append(f"no graph of {named(diff.missing)}")

    ranks_of = defaultdict[int, list[int]](list)
    for rank, nbytes in diff.bytes_by_rank.items():
        ranks_of[nbytes].append(rank)
    for nbytes, ranks in sorted(ranks_of.items()):
        lines.append(f"held for backward: {bytes_text(nbytes)} on {named(ranks)}")
    return Text("\n".join(lines), overflow="fold")


# -- marks in the merged graph ---------------------------------------------------------

MOST = 40  # marks; what is left is in the last one


def marks(diff: RankDiff) -> tuple[Mark, ...]:
    """One mark for all that the same ranks have alone at one place, then one for each
    place that differs.
    """
    found = [*_alone(diff), *_differing(diff)]
    if len(found) > MOST:
        rest = found[MOST - 1 :]
        nodes = tuple(node for mark in rest for node in mark.nodes)
        found[MOST - 1 :] = [
            Mark(
                0,
                "by rank",
                f"{plural(len(rest), 'place')} more",
                nodes,
                kind="changed",
            )
        ]

    return tuple(mark._replace(number=number) for number, mark in enumerate(found, 1))


def _alone(diff: RankDiff) -> list[Mark]:
    nodes_of = defaultdict[tuple[Ranks, str], list[int]](list)
    for node, ranks in enumerate(diff.having):
        if len(ranks) < len(diff.ranks):
            nodes_of[ranks, _place(diff.graph, node)].append(node)

    edges_of = defaultdict[Ranks, list[tuple[int, int]]](list)
    for edge, ranks in diff.some_edges:
        edges_of[ranks].append((edge.consumer, edge.position))

    found = []
    for (ranks, place), nodes in nodes_of.items():
        names = dict.fromkeys(_name(diff.graph, node) for node in nodes)
        words = _joined(named(ranks), place, few(list(names), 4))
        found.append(
            Mark(
                0,
                f"{named(ranks)} only",
                words,
                tuple(nodes),
                tuple(edges_of.pop(ranks, ())),
                kind="added",
            )
        )
    for ranks, edges in edges_of.items():
        words = f"{plural(len(edges), 'edge')} between functions that others have, too"
        found.append(
            Mark(0, f"{named(ranks)} only", words, edges=tuple(edges), kind="added")
        )
    return found


def _differing(diff: RankDiff) -> list[Mark]:
    items_of = defaultdict[tuple[tuple[Ranks, ...], str], list[Varying]](list)
    for varying in diff.varying:
        groups = tuple(ranks for ranks, _ in varying.ways)
        items_of[groups, _place(diff.graph, varying.node)].append(varying)

    found = []
    for (_, place), items in items_of.items():
        first = items[0]
        ways = "; ".join(
            f"{named(ranks)}: {', '.join(words)}" for ranks, words in first.ways
        )
        words = _joined(place, _name(diff.graph, first.node), ways)
        if len(items) > 1:
            words += f", and {plural(len(items) - 1, 'node')} more there"
        found.append(
            Mark(
                0,
                "differs by rank",
                words,
                tuple(item.node for item in items),
                kind="changed",
            )
        )
    return found


def _joined(*parts: str) -> str:
    return ": ".join(filter(None, parts))


def _place(graph: Graph, node: int) -> str:
    """Module and line of a node, "" for a leaf, and where nothing was recorded."""
    record = graph.nodes[node]
    if node in graph.leaf_of:
        return ""
    line = own_line(record)
    path = graph.scopes[record.scope].path if record.scope is not None else ""
    place = source_text(line._replace(package="")) if line is not None else ""
    return ", ".join(filter(None, (one_line(path), place)))


def _name(graph: Graph, node: int) -> str:
    """A leaf's name, else the op."""
    leaf = graph.leaf_of.get(node)
    return one_line(
        leaf.names[0] if leaf is not None and leaf.names else graph.nodes[node].op
    )
