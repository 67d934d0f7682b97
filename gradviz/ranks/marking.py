"""What a merged graph says of its ranks, whatever draws it: its title and note, marks, and what each of them holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gradviz.graph import (
    Edge,
    Graph,
    Mark,
    MarkKind,
    Process,
    RankMemory,
    RankShare,
)
from gradviz.rank import grouped, named
from gradviz.ranks.rank_diff import Varying
from gradviz.wording import few, one_line, plural

MOST = 40  # marks; what is left is in the last one


def title_of(first: Graph, ranks: tuple[int, ...]) -> str:
    """The first graph's title, said of all ranks."""
    own = first.process
    if own is None:
        return f"{first.title or 'graph'}, {named(ranks)}"
    return first.title.replace(f"rank {own.rank} of {own.world}", f"{named(ranks)} of {own.world}")


def summary(groups: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """Who is like whom, for under a picture; nothing of a rank alone.

    >>> summary([(0, 1), (2,)])
    ('ranks 0-1 alike, 2 differs',)
    """
    return (f"ranks {grouped(groups)}",) if sum(map(len, groups)) > 1 else ()


def shares(saved: Mapping[int, int], processes: Mapping[int, Process]) -> tuple[RankShare, ...]:
    """What each rank holds. Ranks with equal numbers, and on one machine where there are several, are one."""
    hosts = {process.host for process in processes.values()}
    ranks_of: dict[tuple[RankMemory, str], list[int]] = {}
    for rank, nbytes in sorted(saved.items()):
        process = processes.get(rank)
        memory = (process.memory if process is not None else RankMemory())._replace(saved=nbytes)
        host = process.host if process is not None and len(hosts) > 1 else ""
        ranks_of.setdefault((memory, host), []).append(rank)
    return tuple(RankShare(tuple(ranks), memory, host) for (memory, host), ranks in ranks_of.items())


def marks(
    graph: Graph,
    having: Sequence[tuple[int, ...]],
    varying: Iterable[Varying],
    some_edges: Iterable[tuple[Edge, tuple[int, ...]]],
    ranks: tuple[int, ...],
) -> tuple[Mark, ...]:
    """One mark for all that the same ranks have alone at one place, then one for each place that differs."""
    alone: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for node, own in enumerate(having):
        if len(own) < len(ranks):
            alone.setdefault((own, "" if node in graph.leaf_of else _place_of(graph, node)), []).append(node)
    links: dict[tuple[int, ...], list[Edge]] = {}
    for edge, own in some_edges:
        links.setdefault(own, []).append(edge)
    differing: dict[tuple[tuple[tuple[int, ...], ...], str], list[Varying]] = {}
    for varied in varying:
        key = (
            tuple(own for own, _ in varied.ways),
            "" if varied.node in graph.leaf_of else _place_of(graph, varied.node),
        )
        differing.setdefault(key, []).append(varied)
    every = [
        *(_alone(graph, own, where, nodes, links.pop(own, ())) for (own, where), nodes in alone.items()),
        *(_mark("added", f"{named(own)} only", _edges(edges), (), edges) for own, edges in links.items()),
        *(_differing(graph, where, items) for (_, where), items in differing.items()),
    ]
    if len(every) > MOST:
        rest = every[MOST - 1 :]
        nodes = tuple(node for mark in rest for node in mark.nodes)
        every[MOST - 1 :] = [Mark(0, "by rank", f"{plural(len(rest), 'place')} more", nodes, kind="changed")]
    return tuple(mark._replace(number=number) for number, mark in enumerate(every, 1))


def _alone(graph: Graph, own: tuple[int, ...], where: str, nodes: Sequence[int], edges: Sequence[Edge]) -> Mark:
    names = list(dict.fromkeys(_name_of(graph, node) for node in nodes))
    what = few(names, 4)
    words = f"{named(own)}: {where}: {what}" if where else f"{named(own)}: {what}"
    return _mark("added", f"{named(own)} only", words, nodes, edges)


def _differing(graph: Graph, where: str, items: Sequence[Varying]) -> Mark:
    first = items[0]
    ways = "; ".join(f"{named(own)}: {', '.join(words)}" for own, words in first.ways)
    more = f", and {plural(len(items) - 1, 'node')} more there" if len(items) > 1 else ""
    words = f"{where + ': ' if where else ''}{_name_of(graph, first.node)}: {ways}{more}"
    return _mark("changed", "differs by rank", words, [varied.node for varied in items], ())


def _edges(edges: Sequence[Edge]) -> str:
    return f"{plural(len(edges), 'edge')} between functions that others have, too"


def _mark(kind: MarkKind, id: str, words: str, nodes: Sequence[int], edges: Iterable[Edge]) -> Mark:
    return Mark(0, id, words, tuple(nodes), tuple((edge.consumer, edge.position) for edge in edges), kind=kind)


def _place_of(graph: Graph, node: int) -> str:
    """Module and line of a node, "" where nothing was recorded."""
    record = graph.nodes[node]
    line = record.script_line or record.source
    path = graph.scopes[record.scope].path if record.scope is not None else ""
    words = [path, f"{line.file.replace(chr(92), '/').rpartition('/')[2]}:{line.line}" if line is not None else ""]
    return one_line(", ".join(filter(None, words)))


def _name_of(graph: Graph, node: int) -> str:
    """A leaf's name, else the op."""
    leaf = graph.leaf_of.get(node)
    return one_line(leaf.names[0] if leaf is not None and leaf.names else graph.nodes[node].op)
