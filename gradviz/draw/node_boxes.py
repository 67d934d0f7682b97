"""What stands in a box: its kind, its lines and its flags.

This module knows a folding and what is asked of its picture; no boxes, and nothing of
what else is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from gradviz.draw import details
from gradviz.draw.heat import HEATS, Heat
from gradviz.draw.kinds import kind_of_node
from gradviz.draw.marks import marked
from gradviz.draw.options import Options
from gradviz.draw.palette import HEAT, BoxKind
from gradviz.draw.summary import is_all_freed, telling
from gradviz.features import load
from gradviz.fold.folding import Folding
from gradviz.graph import BackwardStep, column
from gradviz.graph.origins import module_path
from gradviz.report import labels


class NodeBox(NamedTuple):
    """One box."""

    kind: BoxKind
    lines: tuple[str, ...]
    flags: tuple[str, ...]


class NodeBoxes:
    """Of one folding. `brief` leaves out of a line what goes without saying. `signs`
    counts the titles so far that say a number of the script.
    """

    def __init__(
        self, folding: Folding, options: Options, brief: Callable[[str], str]
    ) -> None:
        self._folding, self._options = folding, options
        self._brief = brief
        self.heat: Heat | None = None
        if options.color in HEATS:
            self.heat = load(HEATS[options.color])(folding)

        steps = {
            step.node: step for step in folding.graph.backward if _has_numbers(step)
        }
        alone = {nodes[0] for nodes in folding.inside if steps and len(nodes) == 1}
        self.numbers = {node: steps[node] for node in steps.keys() & alone}
        self._results = _results(folding, steps)
        self.marked = marked(folding)
        flags = enumerate(column(folding.boxes, "flags"))
        self.cut_off = {box for box, its_flags in flags if "cut" in its_flags}
        self._all_freed = is_all_freed(folding.boxes)
        self.signs = 0

    def op(self, box: int) -> NodeBox:
        """The box of an op or a group."""
        graph, node = self._folding.graph, self._folding.boxes[box]
        module = self.path(node.scope)
        title, *rest = details.node_lines(graph, node, self._options, module)
        sign = title
        if node.group is None:
            sign = details.sign_text(graph, node, title, self.numbers)
        self.signs += len(sign) > 1 and sign != title
        kind = "outside" if "outside" in node.flags else kind_of_node(node)
        return self._box(box, kind, (sign, *rest))

    def leaf(self, box: int, uses: int, scope: int | None) -> NodeBox:
        """The box of a leaf in the frame of a module call."""
        leaf = self._folding.leaf_in[box]
        lines = details.leaf_lines(leaf, uses, self.path(scope))
        return self._box(box, "leaf", lines)

    def path(self, scope: int | None) -> str:
        """The module whose frame is around a box in this scope."""
        return module_path(self._folding.graph.scopes, scope)

    def _box(self, box: int, plain: BoxKind, lines: tuple[str, ...]) -> NodeBox:
        """A box with what is said of every one, below the lines that it has."""
        node = self._folding.boxes[box]
        words = (
            labels.flag_words(node, self._folding.nodes_in(box)) if node.flags else {}
        )
        said = (*labels.ALARMS, *labels.REMARKS)
        others = [text for flag, text in words.items() if flag not in said]
        lines = (*lines, *others)
        values = details.value_lines(self._results.get(box))
        if values:
            # a number in its place tells that the shape is ()
            title, *rest = lines
            lines = (title, *telling(rest, self._brief), *values)
        if self.heat is not None:
            lines = (*lines, *filter(None, [self.heat.words(box)]))
        return NodeBox(self._kind(box, plain), lines, self._flags(box))

    def _kind(self, box: int, plain: BoxKind) -> BoxKind:
        """By what it holds or gets, by how it differs between the graphs that were
        merged into this one, or `plain`.
        """
        # it comes before any other colour
        if box in self.cut_off:
            return "ghost"
        step = self.heat.step(box) if self.heat is not None else 0
        # a heat map colours only what has some of it
        if step:
            return HEAT[step - 1]
        differing = {mark.kind for mark in self.marked.boxes.get(box, ())}
        if "added" in differing:
            return "added"
        return "changed" if "changed" in differing else plain

    def _flags(self, box: int) -> tuple[str, ...]:
        alarms = [
            labels.FLAG_WORDS[flag]
            for flag in self._folding.boxes[box].flags
            if flag in labels.ALARMS and not (flag == "freed" and self._all_freed)
        ]
        if self.heat is not None and box in self.heat.alarms:
            alarms.append(self.heat.alarms[box])
        marks = self.marked.boxes.get(box, ())
        return (*alarms, *labels.mark_words(marks))


def _has_numbers(step: BackwardStep) -> bool:
    return bool(step.value or step.arrived or step.spread or step.freed)


def _results(
    folding: Folding, steps: Mapping[int, BackwardStep]
) -> dict[int, BackwardStep]:
    """The steps of backward by box: of a single node, or of the one node that makes what
    a closed box gives to others.
    """
    graph, found = folding.graph, dict[int, BackwardStep]()
    for box, nodes in enumerate(folding.inside if steps else ()):
        makers = list(nodes)
        if len(nodes) > 1:
            inside = set(nodes)
            makers = [
                node
                for node in inside.difference(graph.leaf_of)
                if node in graph.roots_of
                or any(edge.consumer not in inside for edge in graph.consumers(node))
            ]
        if len(makers) == 1 and makers[0] in steps:
            found[box] = steps[makers[0]]
    return found
