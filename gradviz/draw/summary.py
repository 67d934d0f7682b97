"""The one-screen text that `print(graph)` shows: what the graph holds and what a reader must know.

This module counts what the Graph says; it measures nothing and draws nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gradviz.draw.footer import footer_lines, rank_bars
from gradviz.graph import Graph, Leaf, Root
from gradviz.graph.amounts import depth
from gradviz.report import labels

SHOWN = 6  # outputs, leaves, ops and notes that are listed before "+N more"


def summary(graph: Graph) -> str:
    """Counts, outputs, leaves, ops, depth, saved tensors, flags and notes, at most about 40 short lines.

    >>> from gradviz.graph import Graph, Node
    >>> print(summary(Graph((Node(0, "AddBackward0"),))))
    Graph
      1 backward function, 0 leaves, 0 outputs, 0 edges
      longest path  1 backward function
      ops           1 AddBackward0
    """
    return "\n".join(_lines(graph))


def _lines(graph: Graph) -> Iterator[str]:
    yield f"Graph of {labels.one_line(graph.title)}" if graph.title else "Graph"
    counts, *notes = footer_lines(graph)
    yield f"  {counts}"
    yield from _rows("longest path", [labels.plural(depth(graph), "backward function")])
    yield from _rows("outputs", [_root(root) for root in graph.roots])
    yield from _rows("leaves", [_leaf(leaf) for leaf in graph.leaves])
    yield from _rows("ops", _ops(graph))
    yield from _rows("saved", _saved(graph))
    yield from _rows("flags", _flags(graph))
    yield from _rows("modules", _scopes(graph))
    yield from _rows("notes", [note.replace("not drawn: ", "") for note in notes])
    yield from _rows("by rank", [one.text for one in rank_bars(graph)])
    if graph.torch:
        yield from _rows("recorded by", [f"torch {labels.one_line(graph.torch)}"])


def _rows(title: str, items: Sequence[str]) -> Iterator[str]:
    """A titled list, one item a line, cut after a few."""
    for i, item in enumerate(items[:SHOWN]):
        yield f"  {title if i == 0 else '':12}  {item}"
    if len(items) > SHOWN:
        yield f"  {'':12}  {labels.more(len(items) - SHOWN)}"


def _root(root: Root) -> str:
    why = "" if root.node is not None else f", no graph: {labels.clip(root.why) or 'reason unknown'}"
    return f"{labels.root_title(root)} {labels.tensor_line(root.tensor)}{why}"


def _leaf(leaf: Leaf) -> str:
    title = labels.leaf_title(leaf)
    kind = "" if leaf.kind in title else f", {leaf.kind}"
    return f"{title} {labels.tensor_line(leaf.tensor)}{kind}"


def _ops(graph: Graph) -> list[str]:
    found = Counter(labels.op_name(node) for node in graph.nodes if node.id not in graph.leaf_of)
    return [f"{labels.count_text(count)} {op}" for op, count in found.most_common()]


def _saved(graph: Graph) -> list[str]:
    states = Counter(labels.state_text(saved.state) for node in graph.nodes for saved in node.saved)
    return [f"{labels.plural(count, 'tensor')} {state}" for state, count in states.most_common()]


def _flags(graph: Graph) -> list[str]:
    found = Counter(words for node in graph.nodes for words in labels.flag_words(graph, node).values())
    return [f"{labels.plural(count, 'node')}: {words}" for words, count in found.most_common()]


def _scopes(graph: Graph) -> list[str]:
    if not graph.scopes:
        return []
    how = f", {graph.attribution}" if graph.attribution else ""
    return [f"{labels.plural(len(graph.scopes), 'call')} of modules{how}"]
