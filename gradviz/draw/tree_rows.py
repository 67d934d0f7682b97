"""The rows of a tree of nodes, as plain data: the outputs, then each node above those
whose tensors it was given.

This module decides rows and wording; `tree` prints them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from gradviz.draw import details
from gradviz.draw.marks import marked
from gradviz.draw.options import Options
from gradviz.draw.summary import is_all_freed
from gradviz.fold.folding import folding_of
from gradviz.graph import Graph, Node, Root
from gradviz.report import labels
from gradviz.wording import clip, tensor_line

Style = Literal[
    "op", "group", "leaf", "output", "tensor", "place", "saved", "flag", "note", "id"
]
Part = tuple[Style, str]
FROM = "\u2190"


class TreeRow(NamedTuple):
    """One row: parts to be set apart by two spaces."""

    parts: tuple[Part, ...]
    node: int | None = None  # None for an output

    @property
    def text(self) -> str:
        """The row without colours."""
        return "  ".join(text for _, text in self.parts)


class TreeRows:
    """Iterates over the rows of a graph; a limit of rows is the caller's."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options
        hides = options.leaves == "hidden"
        self.hidden = frozenset(graph.leaf_of) if hides else frozenset()
        self.all_freed = is_all_freed(graph.nodes)
        self._folding = folding_of(graph)
        self.marks = marked(self._folding).boxes

    def __len__(self) -> int:
        graph = self.graph
        return len(graph.roots) + len(graph.nodes) - len(self.hidden)

    def __iter__(self) -> Iterator[TreeRow]:
        yield from map(self._output, self.graph.roots)
        for node in self.graph.order:
            if node not in self.hidden:
                yield TreeRow(tuple(self._parts(self.graph.nodes[node])), node)

    def _output(self, root: Root) -> TreeRow:
        title, tensor, *why = details.root_lines(root)
        parts: list[Part] = [("output", title), ("tensor", tensor)]
        parts += [("note", line) for line in why]
        if root.node is not None:
            parts.append(("id", f"{FROM} {self._name(root.node)}"))
        return TreeRow(tuple(parts))

    def _name(self, node: int) -> str:
        """How rows refer to a node: a leaf by its names."""
        leaf = self.graph.leaf_of.get(node)
        return labels.leaf_title(leaf) if leaf is not None else f"#{node}"

    def _parts(self, node: Node) -> Iterator[Part]:
        leaf = self.graph.leaf_of.get(node.id)
        if leaf is not None:
            yield "leaf", labels.leaf_title(leaf)
            yield "tensor", tensor_line(leaf.tensor)
        else:
            yield "id", f"#{node.id}"
            yield from self._op_parts(node)

        for flag, words in labels.flag_words(
            node, self._folding.nodes_in(node.id)
        ).items():
            said_below = flag == "freed" and self.all_freed
            if flag not in labels.REMARKS and not said_below:
                yield "flag", f"[{words}]"
        for words in labels.mark_words(self.marks.get(node.id, ())):
            yield "flag", f"[{words}]"

        given = self._given(node.id)
        if given:
            yield "id", f"{FROM} {given}"

        if self.options.saved:
            for slot in node.saved:
                lines = details.saved_lines(slot, self.graph)
                yield "saved", f"saved {', '.join(lines)}"

    def _op_parts(self, node: Node) -> Iterator[Part]:
        """The title, the op where that is another word, what it made, and where."""
        names = self.options.op_names("variable")
        title, op = labels.op_title(self.graph, node, names=names)
        yield "group" if node.folded else "op", title
        if op:
            yield "place", op
        if node.outputs:
            yield "tensor", labels.outputs_line(node.outputs)
        if node.group is not None:
            yield "note", labels.group_line(node.group)

        scope = self.graph.scopes[node.scope].path if node.scope is not None else ""
        lines = filter(None, (node.script_line, node.source))
        places = (clip(scope), *map(labels.source_text, lines))
        if any(places):
            yield "place", ", ".join(filter(None, places))

    def _given(self, node: int) -> str:
        """What a node was given, by position: `x, #3 ×2`."""
        uses: Counter[int] = Counter()
        for edge in self.graph.inputs(node):
            if edge.producer not in self.hidden:
                uses[edge.producer] += edge.count
        words = []
        for producer, count in uses.items():
            again = f" {labels.again(count)}" if count > 1 else ""
            words.append(self._name(producer) + again)
        return ", ".join(words)
