"""What the ranks have in common and what differs, as text: the groups, the differences, and bytes per rank as a bar chart."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gradviz.graph import RankMemory
from gradviz.rank import grouped, named, spans
from gradviz.ranks.rank_diff import RankDiff
from gradviz.report import labels
from gradviz.wording import verb

_BAR = 24  # characters of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_COLUMNS = ("saved", "parameters", "gradients", "optimizer")


def table(found: RankDiff) -> RenderableType:
    """The whole report."""
    parts: list[RenderableType] = [Text(line, overflow="fold") for line in head(found)]
    parts += [Text(f"  {mark.number}. {labels.one_line(mark.words)}", overflow="fold") for mark in found.graph.marks]
    if found.missing:
        parts.append(Text(f"no graph of {named(found.missing)}", style="yellow"))
    return Group(*parts, Text(), memory(found))


def head(found: RankDiff) -> Iterator[str]:
    """Who is like whom, and how much all share."""
    yield labels.one_line(found.graph.title or "graph")
    for i, own in enumerate(found.stages):
        yield f"stage {i}: {named(own)}"
    noun = verb(found.ranks, "rank", "ranks")
    line = f"{noun} {grouped(found.groups)}; {labels.plural(len(found.shared), 'node')} shared"
    alone = len(found.having) - len(found.shared)
    if alone:
        line += f", {labels.plural(alone, 'node')} of some ranks only"
    if found.varying:
        line += f", {labels.plural(len(found.varying), 'node')} with other sizes or state by rank"
    yield line


def memory(found: RankDiff) -> Table:
    """Bytes per rank: what was read of each, and a bar for what backward holds. Ranks with equal numbers are one row."""
    rows: dict[tuple[str, RankMemory], list[int]] = {}
    for rank in found.ranks:
        process = found.processes.get(rank)
        known = process.memory if process is not None else RankMemory()
        host = process.host if process is not None else ""
        rows.setdefault((host, known._replace(saved=found.bytes_by_rank[rank])), []).append(rank)
    columns = [name for name in _COLUMNS if any(getattr(one, name) is not None for _, one in rows)]
    hosts = {host for host, _ in rows} if len({host for host, _ in rows}) > 1 else set()
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column("rank", no_wrap=True)
    if hosts:
        made.add_column("machine", no_wrap=True)
    for name in columns:
        made.add_column(f"{name} for backward" if name == "saved" else name, justify="right", no_wrap=True)
    if len(columns) > 1:
        made.add_column("in all", justify="right", no_wrap=True)
    made.add_column(no_wrap=True)
    most = max((total(one) for _, one in rows), default=0)
    for (host, one), ranks in rows.items():
        cells = [spans(ranks), *([labels.one_line(host)] if hosts else [])]
        cells += [labels.bytes_text(getattr(one, name)) for name in columns]
        if len(columns) > 1:
            cells.append(labels.bytes_text(total(one)))
        made.add_row(*(Text(cell) for cell in (*cells, bar(total(one), most))))
    return made


def total(one: RankMemory) -> int:
    """All that is known of, in bytes."""
    return sum(nbytes or 0 for nbytes in one)


def bar(value: int, most: int) -> str:
    """A bar as long as the value is large.

    >>> bar(1, 2)
    '████████████'
    """
    eighths = round(8 * _BAR * value / most) if most else 0
    return _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
