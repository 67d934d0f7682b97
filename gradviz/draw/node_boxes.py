"""What stands in the box of a node: its kind, its lines and its flags.

This module knows a graph and what is asked of its picture; no boxes, and nothing of
what else is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gradviz.draw import details
from gradviz.draw.heat import HEATS, Heat
from gradviz.draw.kinds import kind_of_node
from gradviz.draw.marks import marked
from gradviz.draw.options import Options
from gradviz.draw.palette import HEAT, BoxKind
from gradviz.draw.summary import is_all_freed
from gradviz.features import load
from gradviz.graph import BackwardStep, Graph, Leaf, Node, column
from gradviz.graph.origins import module_path
from gradviz.report import labels


class NodeBox(NamedTuple):
    """One box."""

    kind: BoxKind
    lines: tuple[str, ...]
    flags: tuple[str, ...]


class NodeBoxes:
    """Of one graph. `brief` leaves out of a line what goes without saying. `signs`
    counts the titles so far that say a number of the script.
    """

    def __init__(
        self, graph: Graph, options: Options, brief: Callable[[str], str]
    ) -> None:
        self._graph, self._options = graph, options
        self._brief = brief
        self.heat: Heat | None = None
        if options.color in HEATS:
            self.heat = load(HEATS[options.color])(graph)

        self.numbers = _numbers(graph)
        self.results = self.numbers | _results(graph)
        self.marked = marked(graph)
        flags = enumerate(column(graph.nodes, "flags"))
        self.cut = {node for node, its_flags in flags if "cut" in its_flags}
        self._all_freed = is_all_freed(graph)
        self.signs = 0

    def op(self, node: Node) -> NodeBox:
        """The box of an op or a group."""
        module = self.path(node.scope)
        title, *rest = details.node_lines(self._graph, node, self._options, module)
        sign = details.sign_text(self._graph, node, title, self.numbers)
        self.signs += len(sign) > 1 and sign != title
        kind = "outside" if "outside" in node.flags else kind_of_node(node)
        return self._box(node, kind, (sign, *rest))

    def leaf(self, leaf: Leaf, uses: int, scope: int | None) -> NodeBox:
        """The box of a leaf in the frame of a module call."""
        node = self._graph.nodes[leaf.node]
        lines = details.leaf_lines(leaf, uses, self.path(scope))
        return self._box(node, "leaf", lines)

    def path(self, scope: int | None) -> str:
        """The module whose frame is around a box in this scope."""
        return module_path(self._graph.scopes, scope)

    def _box(self, node: Node, plain: BoxKind, lines: tuple[str, ...]) -> NodeBox:
        """A box with what is said of every node, below the lines that it has."""
        words = labels.flag_words(self._graph, node) if node.flags else {}
        said = (*labels.ALARMS, *labels.REMARKS)
        others = [text for flag, text in words.items() if flag not in said]
        lines = (*lines, *others)
        values = details.value_lines(self.results.get(node.id))
        if values:
            # a number in its place tells that the shape is ()
            shapes = [line for line in lines if self._brief(line) != "()"]
            lines = (*shapes, *values)
        if self.heat is not None:
            lines = (*lines, *filter(None, [self.heat.words(node.id)]))
        return NodeBox(self._kind(node.id, plain), lines, self._flags(node))

    def _kind(self, node: int, plain: BoxKind) -> BoxKind:
        """By what it holds or gets, by how it differs between the graphs that were
        merged into this one, or `plain`.
        """
        # it comes before any other colour
        if node in self.cut:
            return "ghost"
        step = self.heat.step(node) if self.heat is not None else 0
        # a heat map colours only what has some of it
        if step:
            return HEAT[step - 1]
        differing = {mark.kind for mark in self.marked.nodes.get(node, ())}
        if "added" in differing:
            return "added"
        return "changed" if "changed" in differing else plain

    def _flags(self, node: Node) -> tuple[str, ...]:
        alarms = [
            labels.FLAG_WORDS[flag]
            for flag in node.flags
            if flag in labels.ALARMS and not (flag == "freed" and self._all_freed)
        ]
        if self.heat is not None and node.id in self.heat.alarms:
            alarms.append(self.heat.alarms[node.id])
        marks = self.marked.nodes.get(node.id, ())
        return (*alarms, *labels.mark_words(marks))


def _numbers(graph: Graph) -> dict[int, BackwardStep]:
    """The steps of backward with numbers, by box of a single node."""
    steps = _steps(graph)
    if not steps:
        return {}
    return {
        box: steps[nodes[0]]
        for box, nodes in enumerate(graph.inside)
        if len(nodes) == 1 and nodes[0] in steps
    }


def _results(graph: Graph) -> dict[int, BackwardStep]:
    """The same of folded boxes that give one tensor to others: of the node that made
    it.
    """
    steps, whole = _steps(graph), graph.original or graph
    found: dict[int, BackwardStep] = {}
    for box, nodes in enumerate(graph.inside if steps else ()):
        inside = set(nodes)
        if len(inside) < 2:
            continue

        makers = [
            node
            for node in inside.difference(whole.leaf_of)
            if node in whole.roots_of
            or any(edge.consumer not in inside for edge in whole.consumers(node))
        ]
        if len(makers) == 1 and makers[0] in steps:
            found[box] = steps[makers[0]]
    return found


def _steps(graph: Graph) -> dict[int, BackwardStep]:
    """The steps of backward with numbers, by node of the whole graph."""
    return {
        step.node: step
        for step in (graph.original or graph).backward
        if step.value or step.arrived or step.spread or step.freed
    }
