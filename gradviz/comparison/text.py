"""The difference of two graphs as lines of text: `+` added, `-` removed, `~` changed, in the order of the forward pass."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from gradviz.comparison.diff import GraphDiff
from gradviz.graph import Graph
from gradviz.report import labels
from gradviz.wording import clip, count_text, one_line, plural

TOP = 100


def text(difference: GraphDiff, top: int | None = TOP) -> str:
    """What differs, at most `top` lines of each kind (0 or None for all), then the counts."""
    return "\n".join(_lines(difference, top))


def diff_table(difference: GraphDiff, top: int | None = TOP) -> RenderableType:
    """The same for rich, one line of text a line."""
    return Text(text(difference, top), overflow="fold")


def _lines(difference: GraphDiff, top: int | None) -> Iterator[str]:
    before, after, matched = difference.before, difference.after, difference.matched
    yield f"before: {one_line(before.title or 'graph')}"
    yield f"after:  {one_line(after.title or 'graph')}"
    yield ""
    if difference.empty:
        yield f"no difference: {plural(len(matched), 'node')} and {plural(len(after.edges), 'edge')}"
        return
    gone = [e for e in difference.removed_edges if {e.consumer, e.producer} <= matched.keys()]
    inner = set(matched.values())
    came = [e for e in difference.added_edges if {e.consumer, e.producer} <= inner]
    sections = {
        "removed": [f"- {_node(before, node)}" for node in difference.removed],
        "added": [f"+ {_node(after, node)}" for node in difference.added],
        "changed": [f"~ {_node(after, node.after)}: {_words(node.changes)}" for node in difference.changed],
        "edges between nodes of both": [
            *(f"- {_edge(before, edge)}" for edge in gone),
            *(f"+ {_edge(after, edge)}" for edge in came),
        ],
        "outputs": [f"~ {_words((change,))}" for change in difference.outputs],
    }
    for title, lines in sections.items():
        yield from _section(title, lines, top)
    changed = len(difference.changed)
    yield (
        f"{plural(len(difference.removed), 'node')} removed, {count_text(len(difference.added))} added, "
        f"{count_text(changed)} changed, {count_text(len(matched) - changed)} the same; "
        f"{plural(len(difference.removed_edges), 'edge')} removed, "
        f"{count_text(len(difference.added_edges))} added"
    )


def _section(title: str, lines: list[str], top: int | None) -> Iterator[str]:
    if lines:
        yield title
        yield from (f"  {line}" for line in (lines[:top] if top else lines))
        if top and len(lines) > top:
            yield f"  {labels.more(len(lines) - top)}"
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
    return one_line("  ".join(part for part in parts if part))


def _edge(graph: Graph, edge: tuple[int, ...]) -> str:
    consumer, producer = (labels.op_name(graph.nodes[node]) for node in edge[:2])
    name = labels.leaf_title(graph.leaf_of[edge[1]]) if edge[1] in graph.leaf_of else producer
    return one_line(f"{name} -> {consumer}, input {edge[3]}")


def _words(changes: tuple[tuple[str, str, str], ...]) -> str:
    return one_line("; ".join(f"{what} {_short(before)} -> {_short(after)}" for what, before, after in changes))


def _short(value: str) -> str:
    return clip(value, 40)
