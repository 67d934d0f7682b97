"""What several ranks' graphs have in common, and what some have alone: plain data, and its table. Knows nothing of torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gradviz.graph import Edge, Graph, Process, RankShare
from gradviz.rank import grouped, named, spans
from gradviz.report.results import borderless, displayed
from gradviz.wording import bar, bytes_text, one_line, plural, verb

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_COLUMNS = ("saved", "parameters", "gradients", "optimizer")


class Varying(NamedTuple):
    """A node that several ranks have, and that computed something else on some of them.

    `ways` are the ranks that agree, each with what the node was there, in words: `("(4, 8) float32", "saved 128 B")`.
    """

    node: int
    ways: tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]


@displayed("gradviz.ranks.rank_diff.table")
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


def table(diff: RankDiff) -> RenderableType:
    """What the ranks have in common and what differs, and bytes per rank as a bar chart."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(line, overflow="fold") for line in _head(diff)]
    parts += [Text(f"  {mark.number}. {one_line(mark.words)}", overflow="fold") for mark in diff.graph.marks]
    if diff.missing:
        parts.append(Text(f"no graph of {named(diff.missing)}", style="yellow"))
    return Group(*parts, Text(), _memory(diff.graph.by_rank))


def _head(diff: RankDiff) -> Iterator[str]:
    """Who is like whom, and how much all share."""
    yield one_line(diff.graph.title or "graph")
    for i, own in enumerate(diff.stages):
        yield f"stage {i}: {named(own)}"
    noun = verb(diff.ranks, "rank", "ranks")
    line = f"{noun} {grouped(diff.groups)}; {plural(len(diff.shared), 'node')} shared"
    alone = len(diff.having) - len(diff.shared)
    if alone:
        line += f", {plural(alone, 'node')} of some ranks only"
    if diff.varying:
        line += f", {plural(len(diff.varying), 'node')} with other sizes or state by rank"
    yield line


def _memory(shares: Sequence[RankShare]) -> Table:
    """Bytes per rank: what was read of each, and a bar for all of it. Ranks with equal numbers are one row."""
    from rich.text import Text

    columns = [name for name in _COLUMNS if any(getattr(share.memory, name) is not None for share in shares)]
    hosts = any(share.host for share in shares)
    made = borderless()
    made.add_column("rank", no_wrap=True)
    if hosts:
        made.add_column("machine", no_wrap=True)
    for name in columns:
        made.add_column(f"{name} for backward" if name == "saved" else name, justify="right", no_wrap=True)
    if len(columns) > 1:
        made.add_column("in all", justify="right", no_wrap=True)
    made.add_column(no_wrap=True)
    most = max((share.total for share in shares), default=0)
    for share in shares:
        cells = [spans(share.ranks), *([one_line(share.host)] if hosts else [])]
        cells += [bytes_text(getattr(share.memory, name)) for name in columns]
        if len(columns) > 1:
            cells.append(bytes_text(share.total))
        made.add_row(*(Text(cell) for cell in (*cells, bar(share.total / most if most else None))))
    return made
