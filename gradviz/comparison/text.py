"""The difference of two graphs as lines of text: `+` added, `-` removed, `~` changed, in the order of the forward pass."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from gradviz.comparison.diff import GraphDiff
from gradviz.graph import Graph
from gradviz.report import labels

TOP = 100


def text(found: GraphDiff, top: int | None = TOP) -> str:
    """What differs, at most `top` lines of each kind (0 or None for all), then the counts."""
    return "\n".join(_lines(found, top))


def diff_table(found: GraphDiff, top: int | None = TOP) -> RenderableType:
    """The same for rich, one line of text a line."""
    return Text(text(found, top), overflow="fold")


def _lines(found: GraphDiff, top: int | None) -> Iterator[str]:
    yield f"before: {labels.one_line(found.before.title or 'graph')}"
    yield f"after:  {labels.one_line(found.after.title or 'graph')}"
    yield ""
    if found.empty:
        yield f"no difference: {labels.plural(len(found.matched), 'node')} and {labels.plural(len(found.after.edges), 'edge')}"
        return
    removed = [f"- {_node(found.before, node)}" for node in found.removed]
    added = [f"+ {_node(found.after, node)}" for node in found.added]
    changed = [f"~ {_node(found.after, one.after)}: {_words(one.changes)}" for one in found.changed]
    inner = set(found.matched.values())
    links = [
        f"- {_edge(found.before, e)}"
        for e in found.removed_edges
        if e.consumer in found.matched and e.producer in found.matched
    ] + [f"+ {_edge(found.after, e)}" for e in found.added_edges if e.consumer in inner and e.producer in inner]
    outputs = [f"~ {_words((one,))}" for one in found.outputs]
    for title, rows in (
        ("removed", removed),
        ("added", added),
        ("changed", changed),
        ("edges between nodes of both", links),
        ("outputs", outputs),
    ):
        yield from _section(title, rows, top)
    yield (
        f"{labels.plural(len(removed), 'node')} removed, {labels.count_text(len(added))} added, "
        f"{labels.count_text(len(changed))} changed, {labels.count_text(len(found.matched) - len(changed))} the same; "
        f"{labels.plural(len(found.removed_edges), 'edge')} removed, {labels.count_text(len(found.added_edges))} added"
    )


def _section(title: str, rows: list[str], top: int | None) -> Iterator[str]:
    if rows:
        yield title
        yield from (f"  {row}" for row in (rows[:top] if top else rows))
        if top and len(rows) > top:
            yield f"  {labels.more(len(rows) - top)}"
        yield ""


def _node(graph: Graph, node: int) -> str:
    record = graph.nodes[node]
    leaf = graph.leaf_of.get(node)
    parts = [labels.leaf_title(leaf) if leaf is not None else labels.op_name(record)]
    if record.names and leaf is None:
        parts.append(labels.names_text(record.names))
    parts.append(labels.outputs_line(record.outputs))
    if record.scope is not None:
        parts.append(f"in {graph.scopes[record.scope].path or graph.scopes[record.scope].type}")
    if record.source is not None:
        parts.append(labels.source_text(record.source))
    return labels.one_line("  ".join(part for part in parts if part))


def _edge(graph: Graph, edge: tuple[int, ...]) -> str:
    consumer, producer = (labels.op_name(graph.nodes[node]) for node in edge[:2])
    name = labels.leaf_title(graph.leaf_of[edge[1]]) if edge[1] in graph.leaf_of else producer
    return labels.one_line(f"{name} -> {consumer}, input {edge[3]}")


def _words(changes: tuple[tuple[str, str, str], ...]) -> str:
    return labels.one_line("; ".join(f"{what} {_short(before)} -> {_short(after)}" for what, before, after in changes))


def _short(value: str) -> str:
    return labels.clip(value, 40)
