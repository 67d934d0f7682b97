"""What is known of one box, for tooltips and details: pairs of a word and a text, nothing clipped.

They are made on demand, since a drawing of a million boxes shows few of them. This module knows no format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, overload
from urllib.parse import quote

from gradviz.draw.geometry import Block
from gradviz.draw.options import LinkSource
from gradviz.draw.scene import Box, subject
from gradviz.draw.sizing import Sized, placed, tooltip
from gradviz.graph import (
    Base,
    Graph,
    Leaf,
    Node,
    Root,
    SavedTensor,
    SourceLine,
)
from gradviz.layout.model import Floats, Rect
from gradviz.report import labels

# Addresses that open the line of code behind a box: in an editor, or as a file in the browser.


def source_link(about: object, to: LinkSource) -> str:
    """The address of the line that made a node, else of where its custom Function's backward is defined.

    "" for a box that draws no node, and where no line is known.

    >>> from gradviz.graph import Node, SourceLine
    >>> node = Node(0, "ExpBackward0", source=SourceLine("/code/my net.py", 7))
    >>> source_link(node, "vscode")
    'vscode://file/code/my%20net.py:7'
    """
    if to == "none" or not isinstance(about, Node):
        return ""
    source = about.source or (about.function.definition if about.function is not None else None)
    if source is None or source.file.startswith("<"):  # code that was typed in has no file
        return ""
    path = quote(_bytes(os.path.abspath(source.file).replace(os.sep, "/")))
    path = path if path.startswith("/") else f"/{path}"
    return f"vscode://file{path}:{source.line}" if to == "vscode" else f"file://{path}#L{source.line}"


def _bytes(path: str) -> bytes:
    """The path as the file system has it: a name there need not be UTF-8."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # no file has such a name
        return path.encode("utf-8", "replace")


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


# The boxes of a picture, each made when it is asked for. A million boxes with their texts take more memory than the
# graph, and a writer needs one at a time. This module joins a box of the scene, its size and its place; it knows no
# format.

MAX_TOOLTIPS = 10_000  # boxes; above, only what does not fit its box has one


def tooltip_note(count: int) -> str:
    """What to say about tooltips that are left out of a picture of that many boxes."""
    return (
        f"tooltips only where text is shortened, since there are more than {MAX_TOOLTIPS:,} boxes"
        if count > MAX_TOOLTIPS
        else ""
    )


class Blocks(Sequence[Block]):
    """Block i is box i of the scene with its middle at (x[i], y[i])."""

    def __init__(
        self,
        graph: Graph,
        boxes: Sequence[Box],
        sizes: Sequence[Sized],
        x: Floats,
        y: Floats,
        link: LinkSource = "none",
    ) -> None:
        self._graph, self._boxes, self._sizes, self._x, self._y, self._link = graph, boxes, sizes, x, y, link

    def __len__(self) -> int:
        return len(self._boxes)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> list[Block]: ...
    def __getitem__(self, index: int | slice) -> Block | list[Block]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        box, size, rect = self._boxes[index], self._sizes[index], self._rect(index)
        told = size.cut or not tooltip_note(len(self._boxes))
        tip = tooltip(facts(self._graph, subject(self._graph, box))) if told else ""
        link = source_link(subject(self._graph, box), self._link) if self._link != "none" else ""
        return Block(rect, box.kind, placed(size, rect), tip, bool(box.flags), link)

    def rects(self) -> Iterator[Rect]:
        """The boxes without their texts."""
        return map(self._rect, range(len(self)))

    def _rect(self, i: int) -> Rect:
        size = self._sizes[i]
        x, y = float(self._x[i]), float(self._y[i])
        return Rect(x - size.width / 2, y - size.height / 2, size.width, size.height)
