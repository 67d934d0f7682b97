"""The tree of groups that the page opens and closes: calls of modules, and what the static picture joins into one box.

Groups are stretches of one topological order (`order`). A call that other ops interrupt becomes several groups, its parts; a joined
box that is not one stretch is no group. Groups with too many children are cut into segments, so that no sheet is large and a first
look is never a wall: a loop without modules, or a chain of a million ops, becomes a tree of segments. Knows nothing of leaves, text
and places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from gradviz.graph import Graph, Group, column
from gradviz.graph.scopes import ScopeTree
from gradviz.layout import Ints
from gradviz.page.order import alive, common_start, outermost_first, places

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
        order = [0]
        for at in order:  # grows while it is read
            order.extend(~child for child in self.children[at] if child < 0)
        return order


def group(graph: Graph, shown: Graph, order: Sequence[int]) -> Groups:
    """Groups of `graph`, among them the joined boxes of `shown`, a graph folded from it."""
    boxes = {
        i: node.group for i, node in enumerate(shown.nodes) if node.group is not None and node.group.kind != "module"
    }
    while True:
        groups, pieces = _Builder(graph, shown, boxes).build(order)
        torn = {box for box in boxes if len(pieces.get(~box, ())) > 1}
        if not torn:
            return groups
        for box in torn:
            del boxes[box]


class _Builder:
    """Walks the order with a stack of open groups. Tokens name groups to come: a scope's id, or ~id of a joined box."""

    def __init__(self, graph: Graph, shown: Graph, boxes: dict[int, Group]) -> None:
        self._graph, self._shown, self._boxes = graph, shown, boxes
        self._box_of = {node: box for box, record in boxes.items() for node in record.nodes}
        self._scopes, self._tree = column(graph.nodes, "scope"), ScopeTree(graph)
        self._chains: dict[tuple[int | None, int | None], list[int]] = {}

    def build(self, order: Sequence[int]) -> tuple[Groups, dict[int, list[int]]]:
        """The groups, and those of each token."""
        groups = Groups([-1] * len(self._graph.nodes))
        pieces: dict[int, list[int]] = {}
        stack: list[tuple[int, int]] = []  # token and group
        before: list[int] | None = None
        at = 0
        for node in order:
            chain = self._chain(self._scopes[node], self._box_of.get(node))
            if chain is not before:
                same = common_start([token for token, _ in stack], chain)
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
                for part, piece in enumerate(same_token, 1):
                    groups.part[piece] = part
        return groups, pieces

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
            chain = outermost_first(self._tree, scope)
            if box is not None:
                outside = outermost_first(self._tree, self._outside(box))
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
    inside: list[int | None] = [None] * groups.size  # its only box, -1: several or single ops, None: nothing yet
    for i, at in enumerate(groups.home):
        if at >= 0:
            inside[at] = _either(inside[at], box_of[i])
    for at in reversed(groups.top_down()):
        if at:
            inside[groups.parent[at]] = _either(inside[groups.parent[at]], inside[at])
    return [at == 0 or (inside[at] == -1 and groups.kind[at] != "segment") for at in range(groups.size)]


def _either(box: int | None, other: int | None) -> int | None:
    if box is None or other is None:
        return other if box is None else box
    return box if box == other else -1


# -- segments: they end where few values are alive, and are whole turns of what repeats, so that most are alike ------

MOST = 60
"""Boxes that one sheet may hold."""
SIZE = 40
"""Boxes of one segment, about."""


def cut_into_segments(groups: Groups, graph: Graph, order: list[int]) -> None:
    """Give every group of more than `MOST` children segments of its own making."""
    large = [at for at in range(groups.size) if len(groups.children[at]) > MOST]
    if not large:
        return
    cutter = _Cutter(groups, graph, order)
    for at in large:
        cutter.cut(at)


class _Cutter:
    def __init__(self, groups: Groups, graph: Graph, order: list[int]) -> None:
        self._groups, self._graph = groups, graph
        self._alive: Ints = alive(graph, order)
        self._place = places(len(graph.nodes), order)
        self._ops = column(graph.nodes, "op")
        self._first = [0] * groups.size
        for at in range(groups.size - 1, -1, -1):  # children come after their parents
            inside = groups.children[at]
            self._first[at] = self._start(inside[0]) if inside else 0

    def cut(self, at: int) -> None:
        children = self._groups.children[at]
        cuts = self._cuts(children)
        while True:
            pieces = [children[a:b] for a, b in zip(cuts, [*cuts[1:], len(children)])]
            children = [self._segment(at, piece) if len(piece) > 1 else piece[0] for piece in pieces]
            if len(children) <= MOST:
                break
            cuts = list(range(0, len(children), SIZE))
        self._groups.children[at] = children

    def _cuts(self, children: list[int]) -> list[int]:
        """Where the lowest segments begin."""
        size = _whole_turns([self._sign(child) for child in children])
        count = -(-len(children) // size)
        if count > 1 and len(children) - (count - 1) * size < size // 3:
            count -= 1  # no stump at the end
        cuts = [0]
        room = size // 4
        for i in range(1, count):
            ideal = i * size
            near = range(max(ideal - room, cuts[-1] + 1), min(ideal + room, len(children) - 1) + 1)
            cuts.append(min(near, key=lambda k: (int(self._alive[self._start(children[k])]), abs(k - ideal))))
        return cuts

    def _segment(self, parent: int, children: list[int]) -> int:
        made = self._groups.add(parent, "segment")
        self._first.append(self._start(children[0]))
        self._groups.children[made] = children
        for child in children:
            if child < 0:
                self._groups.parent[~child] = made
            else:
                self._groups.home[child] = made
        return ~made

    def _start(self, child: int) -> int:
        return int(self._place[child]) if child >= 0 else self._first[~child]

    def _sign(self, child: int) -> str:
        if child >= 0:
            return str(self._ops[child])
        scope = self._groups.scope[~child]
        return self._graph.scopes[scope].type if scope is not None else self._groups.kind[~child]


def _whole_turns(signs: list[str]) -> int:
    """About `SIZE`, and a multiple of the period when the signs repeat.

    >>> _whole_turns(["mm", "add", "tanh"] * 30)
    39
    """
    middle = signs[len(signs) // 4 : 3 * len(signs) // 4 + 1][: 6 * SIZE]
    for period in range(1, SIZE + 1):
        if 2 * period <= len(middle) and middle[period:] == middle[:-period]:
            return period * max(SIZE // period, 1)
    return SIZE
