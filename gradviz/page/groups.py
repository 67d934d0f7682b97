"""The tree of groups that the page opens and closes: calls of modules, and what the static picture joins into one box.

Groups are stretches of one topological order (`order`). A call that other ops interrupt becomes several groups, its parts; a joined
box that is not one stretch is no group. Knows nothing of leaves, text and places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gradviz.graph import Graph, Group, column

Kind = Literal["page", "module", "joined", "segment"]


@dataclass
class Groups:
    """Group 0 is the page. All lists are by group, but `home`, the group of each node, -1 for leaves."""

    home: list[int]
    parent: list[int] = field(default_factory=lambda: [-1])
    kind: list[Kind] = field(default_factory=lambda: ["page"])
    scope: list[int | None] = field(default_factory=lambda: [None])  # of a module
    box: list[Group | None] = field(default_factory=lambda: [None])  # of what is joined in the static picture
    part: list[int] = field(default_factory=lambda: [0])  # 0 for a whole call, else which part of it, from 1
    children: list[list[int]] = field(default_factory=lambda: [[]])  # in order; ops as ids, groups as ~group

    def add(self, parent: int, kind: Kind, scope: int | None = None, box: Group | None = None) -> int:
        """A new group; whoever calls puts it among the children of `parent`."""
        self.parent.append(parent)
        self.kind.append(kind)
        self.scope.append(scope)
        self.box.append(box)
        self.part.append(0)
        self.children.append([])
        return len(self.parent) - 1

    @property
    def size(self) -> int:
        """How many groups there are, the page included."""
        return len(self.parent)

    def top_down(self) -> list[int]:
        """All groups, every one after the group around it."""
        found = [0]
        for at in found:  # grows while it is read
            found.extend(~child for child in self.children[at] if child < 0)
        return found


def group(graph: Graph, shown: Graph, order: Sequence[int]) -> Groups:
    """Groups of `graph`, among them the joined boxes of `shown`, a graph folded from it."""
    boxes = {
        i: node.group for i, node in enumerate(shown.nodes) if node.group is not None and node.group.kind != "module"
    }
    while True:
        found, pieces = _Builder(graph, shown, boxes).build(order)
        torn = {box for box in boxes if pieces.get(~box, 1) > 1}
        if not torn:
            return found
        for box in torn:
            del boxes[box]


class _Builder:
    """Walks the order with a stack of open groups. Tokens name groups to come: a scope's id, or ~id of a joined box."""

    def __init__(self, graph: Graph, shown: Graph, boxes: dict[int, Group]) -> None:
        self._graph, self._shown, self._boxes = graph, shown, boxes
        self._box_of = {node: box for box, record in boxes.items() for node in record.nodes}
        self._scopes = column(graph.nodes, "scope")
        self._chains: dict[tuple[int | None, int | None], list[int]] = {}

    def build(self, order: Sequence[int]) -> tuple[Groups, dict[int, int]]:
        groups = Groups([-1] * len(self._graph.nodes))
        pieces: dict[int, list[int]] = {}
        stack: list[tuple[int, int]] = []  # token and group
        before: list[int] | None = None
        at = 0
        for node in order:
            chain = self._chain(self._scopes[node], self._box_of.get(node))
            if chain is not before:
                same = 0
                while same < min(len(stack), len(chain)) and stack[same][0] == chain[same]:
                    same += 1
                del stack[same:]
                at = stack[-1][1] if stack else 0
                for token in chain[same:]:
                    inner = self._open(groups, at, token)
                    pieces.setdefault(token, []).append(inner)
                    stack.append((token, inner))
                    at = inner
                before = chain
            groups.home[node] = at
            groups.children[at].append(node)
        for same_token in pieces.values():
            if len(same_token) > 1:
                for part, one in enumerate(same_token, 1):
                    groups.part[one] = part
        return groups, {token: len(found) for token, found in pieces.items()}

    def _open(self, groups: Groups, parent: int, token: int) -> int:
        if token >= 0:
            made = groups.add(parent, "module", scope=token)
        else:
            made = groups.add(parent, "joined", box=self._boxes[~token])
        groups.children[parent].append(~made)
        return made

    def _chain(self, scope: int | None, box: int | None) -> list[int]:
        key = (scope, box)
        if key not in self._chains:
            chain = self._around(scope)
            if box is not None:
                outside = self._around(self._outside(box))
                if chain[: len(outside)] == outside:
                    chain = [*outside, ~box, *chain[len(outside) :]]
            self._chains[key] = chain
        return self._chains[key]

    def _outside(self, box: int) -> int | None:
        """The call that a box lies in. Folding may have cut a call into parts, which the graph itself does not know."""
        scope = self._shown.nodes[box].scope
        while scope is not None and scope >= len(self._graph.scopes):
            scope = self._shown.scopes[scope].parent
        return scope

    def _around(self, scope: int | None) -> list[int]:
        chain: list[int] = []
        while scope is not None:
            chain.append(scope)
            scope = self._graph.scopes[scope].parent
        return chain[::-1]


def opened(groups: Groups, graph: Graph, shown: Graph) -> list[bool]:
    """Which groups the static picture shows open: those that it does not draw as one box, or inside of one.

    Segments, which it does not know, are closed where it folds anything: what they hold may be joined there with others.
    """
    if shown is graph:
        return [True] * groups.size
    box_of = [-1] * len(graph.nodes)
    for i, node in enumerate(shown.nodes):
        for member in node.group.nodes if node.group is not None else ():
            box_of[member] = i
    inside: list[int | None] = [
        None
    ] * groups.size  # the one box, -1 for several or for single ops, None for nothing yet
    for i, at in enumerate(groups.home):
        if at >= 0:
            inside[at] = _either(inside[at], box_of[i])
    for at in reversed(groups.top_down()):
        if at:
            inside[groups.parent[at]] = _either(inside[groups.parent[at]], inside[at])
    return [at == 0 or (inside[at] == -1 and groups.kind[at] != "segment") for at in range(groups.size)]


def _either(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return one if one == other else -1
