"""What the ranks have in common and what differs, as text: the groups, the differences, and bytes per rank as a bar chart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradviz.graph import RankShare
from gradviz.rank import grouped, named, spans
from gradviz.ranks.rank_diff import RankDiff
from gradviz.wording import bar, bytes_text, one_line, plural, verb

_COLUMNS = ("saved", "parameters", "gradients", "optimizer")


def table(diff: RankDiff) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = [Text(line, overflow="fold") for line in head(diff)]
    parts += [Text(f"  {mark.number}. {one_line(mark.words)}", overflow="fold") for mark in diff.graph.marks]
    if diff.missing:
        parts.append(Text(f"no graph of {named(diff.missing)}", style="yellow"))
    return Group(*parts, Text(), memory(diff.graph.by_rank))


def head(diff: RankDiff) -> Iterator[str]:
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


def memory(shares: Sequence[RankShare]) -> Table:
    """Bytes per rank: what was read of each, and a bar for all of it. Ranks with equal numbers are one row."""
    columns = [name for name in _COLUMNS if any(getattr(share.memory, name) is not None for share in shares)]
    hosts = any(share.host for share in shares)
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
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
