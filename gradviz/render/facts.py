"""What is known of one box, for tooltips and details: pairs of a word and a text, nothing clipped.

They are made on demand, since a drawing of a million boxes shows few of them. This module knows no format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradviz.graph import Base, Graph, Leaf, Node, Root, SavedTensor, SourceLine
from gradviz.render import labels

Fact = tuple[str, str]


def facts(graph: Graph, about: Node | Leaf | Root | Base | SavedTensor) -> tuple[Fact, ...]:
    """Facts of the record that a box draws, the most telling first; values are single lines.

    >>> from gradviz.graph import Graph, Node
    >>> facts(Graph(), Node(3, "AddBackward0", sequence=7))
    (('op', 'AddBackward0'), ('node', '3'), ('sequence number', '7'))
    """
    if isinstance(about, Node):
        found = _node(graph, about)
    elif isinstance(about, Leaf):
        found = _leaf(about)
    elif isinstance(about, Root):
        found = _root(about)
    elif isinstance(about, Base):
        found = _base(about)
    else:
        found = _saved(about)
    return tuple((word, labels.one_line(text)) for word, text in found if text)


def _node(graph: Graph, node: Node) -> Iterator[Fact]:
    yield "op", labels.group_title(node.group) if node.group else node.op
    if node.group:
        yield "inside", labels.group_line(node.group)
    yield "node", str(node.id)
    if node.function:
        yield "custom function", labels.function_line(node.function)
    for i, output in enumerate(node.outputs):
        yield "output" if len(node.outputs) == 1 else f"output {i}", labels.tensor_line(output)
    yield "names", ", ".join(node.names)
    yield "flags", ", ".join(labels.flag_words(graph, node).values())
    if node.scope is not None:
        scope = graph.scopes[node.scope]
        yield "module", f"{scope.path} ({scope.type})" + (f", call {scope.call}" if scope.call > 1 else "")
    if node.script_line is not None:
        yield from _source(node.script_line, "line")
        yield from _source(node.source, "library's line")
    else:
        yield from _source(node.source, "line")
    if node.sequence is not None:
        yield "sequence number", str(node.sequence)
    if node.none_inputs:
        yield "inputs without gradient", str(node.none_inputs)
    for saved in node.saved:
        yield f"saved {saved.slot}", _saved_text(saved)
    for name, value in node.attributes.items():
        yield name, _short(value)


def _source(source: SourceLine | None, word: str) -> Iterator[Fact]:
    if source is not None:
        yield word, f"{source.file}:{source.line}" + (f" in {source.function}" if source.function else "")
        yield "code", source.text.strip()


def _leaf(leaf: Leaf) -> Iterator[Fact]:
    yield "leaf", labels.leaf_title(leaf)
    yield "names", ", ".join(leaf.names)
    yield "node", str(leaf.node)
    yield "tensor", labels.tensor_line(leaf.tensor)
    yield "kind", leaf.kind
    yield ".grad", "set" if leaf.has_grad else "None"
    if leaf.hooks:
        yield "hooks", str(leaf.hooks)


def _root(root: Root) -> Iterator[Fact]:
    yield "output", root.name
    yield "tensor", labels.tensor_line(root.tensor)
    if root.node is None:
        yield "no graph", root.why or "reason unknown"
    else:
        yield "made by node", str(root.node)


def _base(base: Base) -> Iterator[Fact]:
    yield "base of a view", ", ".join(base.names) or "unnamed"
    yield "tensor", labels.tensor_line(base.tensor)
    if base.node is not None:
        yield "made by node", str(base.node)


def _saved(saved: SavedTensor) -> Iterator[Fact]:
    yield "saved", saved.slot
    yield "tensor", labels.tensor_line(saved.tensor) if saved.tensor else ""
    yield "kind", ("view of " if saved.view else "") + saved.kind if saved.kind else ""
    yield "state", labels.state_text(saved.state)
    if saved.nbytes is not None:
        yield "bytes", labels.bytes_text(saved.nbytes)
    if saved.storage is not None:
        yield "storage", str(saved.storage)
    yield "note", saved.note


def _saved_text(saved: SavedTensor) -> str:
    words = [labels.tensor_line(saved.tensor)] if saved.tensor else []
    if saved.kind:
        words.append(("view of " if saved.view else "") + saved.kind)
    if saved.state != "live" or not words:
        words.append(labels.state_text(saved.state))
    return ", ".join(words)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 200 else text[:199] + "…"
