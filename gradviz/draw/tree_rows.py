"""The rows of a tree, as plain data: from each output down, one row per node, reference
or cut.

Reading rule: a row without a branch mark is the input of the row above it in its
column; rows with a mark are further inputs. So a chain goes straight down, however
long. This module decides rows and wording; `tree` prints them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from gradviz.draw import details
from gradviz.draw.marks import marked
from gradviz.draw.options import Options
from gradviz.draw.summary import is_all_freed
from gradviz.graph import Graph, Node, SavedTensor
from gradviz.report import labels
from gradviz.wording import clip, tensor_line

# Turns a graph into a tree for reading in rows: who shows each node, and which input
# goes straight on. A node with several consumers is shown once, under the consumer that
# is furthest from the outputs, so that a main stream is not swallowed by a shortcut
# around it; the others refer to it. Every walk is linear. This module knows no text.

# an input with at most this many rows below it is a branch, even when it is the only
# big one
SMALL = 3


class JoinedEdges(NamedTuple):
    """What one consumer takes from one producer, all its edges together."""

    node: int
    edges: int


class TreeShape:
    """The tree of one graph. `size[node]` counts the nodes shown in its part of the
    tree, itself included.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        leaves: bool = True,
    ) -> None:
        self.graph = graph
        self._skip = frozenset() if leaves else frozenset(graph.leaf_of)
        order = graph.order
        self.owner = self._owners(order)
        self.size = [1] * len(order)
        for node in reversed(order):
            if self.owner[node] >= 0 and node not in self._skip:
                self.size[self.owner[node]] += self.size[node]
        self.tops = tuple(self._tops())
        self.referenced = self._referenced()

    def inputs(self, node: int) -> list[JoinedEdges]:
        """What a node takes in, by position; several edges from one producer come as
        one.
        """
        joined: dict[int, int] = {}
        for edge in self.graph.inputs(node):
            if edge.producer not in self._skip:
                joined[edge.producer] = joined.get(edge.producer, 0) + edge.count
        return [JoinedEdges(*item) for item in joined.items()]

    def straight_on(self, node: int, inputs: list[JoinedEdges]) -> int:
        """Which of `inputs` goes on in the same column: the only one, else the biggest
        if it is not small; -1: none.

        At most one input of a node is more than half of its part, so columns grow with
        the logarithm of the graph.
        """
        if len(inputs) == 1:
            return 0
        owned = [
            (self.size[item.node], -i)
            for i, item in enumerate(inputs)
            if self.owner[item.node] == node
        ]
        biggest, index = max(owned, default=(0, 0))
        return -index if biggest > SMALL else -1

    def _owners(
        self,
        order: tuple[int, ...],
    ) -> list[int]:
        """The consumer furthest from the outputs, for each node; -1 when nobody
        consumes it.
        """
        depth, owner = [0] * len(order), [-1] * len(order)
        for node in order:
            below = depth[node] + 1
            for edge in self.graph.inputs(node):
                # the longest way decides, so that a row stands below all that use it
                if below > depth[edge.producer] and edge.producer != node:
                    depth[edge.producer], owner[edge.producer] = below, node
        return owner

    def _tops(self) -> Iterator[int]:
        """Nodes that nobody consumes and that made no output: only hand-made graphs
        have them.
        """
        roots_of = self.graph.roots_of
        for node, owner in enumerate(self.owner):
            if owner < 0 and node not in roots_of and node not in self._skip:
                yield node

    def _referenced(self) -> frozenset[int]:
        """Nodes that some row refers to, so that their own row must show their id."""
        referenced = {
            edge.producer
            for edge in self.graph.edges
            if self.owner[edge.producer] != edge.consumer
        }
        for node, roots in self.graph.roots_of.items():
            if len(roots) > 1 or self.owner[node] >= 0:
                referenced.add(node)
        return frozenset(referenced)


Style = Literal[
    "op",
    "group",
    "leaf",
    "output",
    "tensor",
    "name",
    "place",
    "saved",
    "flag",
    "note",
    "id",
]
Part = tuple[Style, str]
BRANCH, LAST, BAR, BLANK = "├─ ", "└─ ", "│  ", "   "


class TreeRow(NamedTuple):
    """One row: its guides, then parts to be set apart by two spaces."""

    guides: str
    parts: tuple[Part, ...]
    node: int | None = None  # the node shown in full
    see: int | None = None  # the node that the last part refers to
    first: bool = False  # begins another part, to be set apart by an empty line

    @property
    def text(self) -> str:
        """The row without colours."""
        return self.guides + "  ".join(text for _, text in self.parts)


class _Pending(NamedTuple):
    """A row of a node still to come. `lead` is its guides, `rest` those of the rows
    below it.
    """

    node: int
    owner: int = -1  # who shows it here; -2: an output whose node has its row elsewhere
    edges: int = 1
    lead: str = ""
    rest: str = ""


class TreeRows:
    """Iterates over the rows of a graph; a limit of rows is the caller's."""

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph, self.options = graph, options
        self.shape = TreeShape(graph, leaves=options.leaves != "hidden")
        self.all_freed = is_all_freed(graph)
        self.marked = marked(graph)

    def __iter__(self) -> Iterator[TreeRow]:
        shown: set[int] = set()
        for i, root in enumerate(self.graph.roots):
            title, tensor, *why = details.root_lines(root)
            parts: list[Part] = [("output", title), ("tensor", tensor)]
            parts += [("note", line) for line in why]
            yield TreeRow("", tuple(parts), first=i > 0)
            if root.node is not None:
                first = root.node not in shown and self.shape.owner[root.node] < 0
                shown.add(root.node)
                yield from self._rows(_Pending(root.node, -1 if first else -2))

        for top in self.shape.tops:
            yield from self._rows(_Pending(top))

    def _rows(self, top: _Pending) -> Iterator[TreeRow]:
        """The row of a node and all below it."""
        stack: list[TreeRow | _Pending] = [top]
        while stack:
            step = stack.pop()
            if isinstance(step, TreeRow):
                yield step
            # shown elsewhere in full: here only a reference
            elif self.shape.owner[step.node] != step.owner:
                yield TreeRow(
                    step.lead,
                    self._reference(step),
                    see=step.node,
                )
            else:
                alone = step.owner == -1 and step.node not in self.graph.roots_of
                yield TreeRow(
                    step.lead,
                    self._node_parts(step),
                    step.node,
                    first=alone,
                )
                stack.extend(self._below(step))

    # -- what comes below a node -------------------------------------------------------

    def _below(self, step: _Pending) -> list[TreeRow | _Pending]:
        """What comes below a node, last first: its branches, then what goes straight
        on.
        """
        inputs = self.shape.inputs(step.node)
        on = self.shape.straight_on(step.node, inputs)
        slots = self.graph.nodes[step.node].saved if self.options.saved else ()
        branches: list[TreeRow | _Pending] = [
            TreeRow(
                "",
                (("saved", "saved"), ("saved", self._saved(slot))),
            )
            for slot in slots
        ]
        branches += [
            _Pending(item.node, step.node, item.edges)
            for i, item in enumerate(inputs)
            if i != on
        ]

        below: list[TreeRow | _Pending] = []
        for i, branch in enumerate(branches):
            is_last = on < 0 and i == len(branches) - 1
            lead = step.rest + (LAST if is_last else BRANCH)
            if isinstance(branch, TreeRow):
                below.append(branch._replace(guides=lead))
            else:
                rest = step.rest + (BLANK if is_last else BAR)
                below.append(branch._replace(lead=lead, rest=rest))

        if on >= 0:
            ahead = inputs[on]
            below.append(
                _Pending(ahead.node, step.node, ahead.edges, step.rest, step.rest)
            )

        # the stack takes the last first
        return below[::-1]

    # -- wording -----------------------------------------------------------------------

    def _saved(self, slot: SavedTensor) -> str:
        return ", ".join(details.saved_lines(slot, self.graph))

    def _title(self, node: int) -> list[Part]:
        """The title, and the op where that is another word."""
        leaf = self.graph.leaf_of.get(node)
        if leaf is not None:
            return [("leaf", labels.leaf_title(leaf))]
        record = self.graph.nodes[node]
        name, op = labels.op_title(
            self.graph, record, names=self.options.op_names("variable")
        )
        return [
            ("group" if record.folded else "op", name),
            *([("place", op)] if op else ()),
        ]

    def _use(self, step: _Pending) -> Iterator[Part]:
        """How the row above uses this one, where that is not plain."""
        if step.edges > 1:
            yield "note", labels.again(step.edges)

    def _reference(self, step: _Pending) -> tuple[Part, ...]:
        return (
            *self._title(step.node)[:1],
            *self._use(step),
            ("id", f"see #{step.node}"),
        )

    def _node_parts(self, step: _Pending) -> tuple[Part, ...]:
        node, leaf = self.graph.nodes[step.node], self.graph.leaf_of.get(step.node)
        parts = self._title(step.node)
        if leaf is not None:
            parts.append(("tensor", tensor_line(leaf.tensor)))
        else:
            parts += self._op_parts(step.node, parts[0][1])

        parts += self._use(step)
        parts += [
            ("flag", f"[{words}]")
            for flag, words in labels.flag_words(self.graph, node).items()
            if flag not in labels.REMARKS and not (flag == "freed" and self.all_freed)
        ]
        parts += [
            ("flag", f"[{words}]")
            for words in labels.mark_words(self.marked.nodes.get(step.node, ()))
        ]
        if step.node in self.shape.referenced:
            parts.append(("id", f"#{step.node}"))

        return tuple(parts)

    def _op_parts(self, id: int, title: str) -> Iterator[Part]:
        node = self.graph.nodes[id]
        if node.outputs:
            yield "tensor", labels.outputs_line(node.outputs)

        if node.group is not None:
            yield "note", labels.group_line(node.group)

        roots = {root.name for root in self.graph.roots_of.get(id, ())}
        names = labels.names_text(name for name in node.names if name not in roots)
        if names and names != title:
            yield "name", names

        place = _place(self.graph, node)
        if place:
            yield "place", place


def _place(graph: Graph, node: Node) -> str:
    """Module path and line of code, as far as they were recorded:
    `layer1.0, train.py:12`.
    """
    path = clip(graph.scopes[node.scope].path) if node.scope is not None else ""
    lines = [
        labels.source_text(line)
        for line in (node.script_line, node.source)
        if line is not None
    ]
    return ", ".join(part for part in (path, *lines) if part)
