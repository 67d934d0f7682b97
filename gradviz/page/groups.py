"""The tree of groups that the page opens and closes: calls of modules, and what the static picture joins into one box.

Groups are stretches of one topological order. Any division of such an order into stretches, and of stretches into stretches, is
free of cycles, so groups can be open or closed in any mix. A call that other ops interrupt becomes several groups, its parts; a
joined box that is not one stretch is no group. Groups with too many children are cut into segments, so that no sheet is large and
a first look is never a wall: a loop without modules, or a chain of a million ops, becomes a tree of segments. Knows nothing of
leaves, text and places.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from gradviz.graph import Graph, Group, column
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import ScopeTree
from gradviz.layout import Ints

Kind = Literal["page", "module", "joined", "segment"]


@dataclass(slots=True)
class Stretch:
    """One group. Its children are in order: ops as ids, groups as ~group."""

    parent: int | None
    kind: Kind
    scope: int | None = None  # of a module
    box: Group | None = None  # of what is joined in the static picture
    part: int = 0  # 0 for a whole call, else which part of it, from 1
    children: list[int] = field(default_factory=list)


class Groups(list[Stretch]):
    """Group 0 is the page. `home` is the group of each node, -1 for leaves."""

    def __init__(self, nodes: int) -> None:
        super().__init__([Stretch(None, "page")])
        self.home = [-1] * nodes

    def add(self, group: Stretch) -> int:
        """Its number. Whoever calls puts it among the children of its parent."""
        self.append(group)
        return len(self) - 1

    def top_down(self) -> list[int]:
        """All groups, every one after the group around it."""
        order = [0]
        for at in order:  # grows while it is read
            order.extend(~child for child in self[at].children if child < 0)
        return order


def grouped(graph: Graph, shown: Graph) -> Groups:
    """Groups of `graph`, among them the joined boxes of `shown`, a graph folded from it, none of more than `MOST` children."""
    order = ops_in_order(graph)
    boxes = {
        i: node.group for i, node in enumerate(shown.nodes) if node.group is not None and node.group.kind != "module"
    }
    while True:
        groups, pieces = _Builder(graph, shown, boxes).build(order)
        torn = {box for box in boxes if len(pieces.get(~box, ())) > 1}
        if not torn:
            break
        for box in torn:
            del boxes[box]
    large = [at for at, group in enumerate(groups) if len(group.children) > MOST]
    if large:
        cutter = _Cutter(groups, graph, order)
        for at in large:
            cutter.cut(at)
    return groups


def opened(groups: Groups, graph: Graph, shown: Graph) -> list[bool]:
    """Which groups the static picture shows open: those that it does not draw as one box, or inside of one.

    Segments, which it does not know, are closed where it folds anything: what they hold may be joined there with others.
    """
    if shown is graph:
        return [True] * len(groups)
    box_of = [-1] * len(graph.nodes)
    for i, node in enumerate(shown.nodes):
        for member in node.group.nodes if node.group is not None else ():
            box_of[member] = i
    inside: list[int | None] = [None] * len(groups)  # its only box, -1: several or single ops, None: nothing yet
    for i, at in enumerate(groups.home):
        if at >= 0:
            inside[at] = _either(inside[at], box_of[i])
    for at in reversed(groups.top_down()):
        parent = groups[at].parent
        if parent is not None:
            inside[parent] = _either(inside[parent], inside[at])
    return [at == 0 or (inside[at] == -1 and group.kind != "segment") for at, group in enumerate(groups)]


def _either(box: int | None, other: int | None) -> int | None:
    if box is None or other is None:
        return other if box is None else box
    return box if box == other else -1


# -- the order: one in which every module call is one stretch wherever that is possible ------------------------------


def ops_in_order(graph: Graph) -> list[int]:
    """Ids of all nodes but the leaves, every one after those it uses, calls of modules kept together.

    The order of the forward pass is kept when it has both properties, as in every recorded graph.
    """
    leaves = graph.leaf_of
    ran = [node for node in forward_order(graph) if node not in leaves]
    made, used = _edges_inside(graph, ran)
    if (made < used).all() and _calls_are_stretches(graph, ran):
        return ran
    return _Sorter(graph, ran).sorted()


def alive(graph: Graph, order: list[int]) -> Ints:
    """How many values made before each place of the order are used at it or after it; one entry more for the end."""
    made, used = _edges_inside(graph, order)
    last = np.arange(len(order))
    np.maximum.at(last, made, used)
    change = np.zeros(len(order) + 2, np.int64)
    np.add.at(change, np.arange(len(order)) + 1, 1)
    np.add.at(change, last + 1, -1)
    return change.cumsum()


def _places(graph: Graph, order: list[int]) -> Ints:
    """Place of each node in the order, -1 for those that are not in it."""
    place = np.full(len(graph.nodes), -1, np.int64)
    place[np.asarray(order, np.int64)] = np.arange(len(order))
    return place


def _edges_inside(graph: Graph, order: list[int]) -> Ints:
    """Places of the producers, and of the consumers, of the edges between nodes of the order."""
    place = _places(graph, order)
    ends = np.stack([place[np.asarray(column(graph.edges, name), np.int64)] for name in ("producer", "consumer")])
    inside: Ints = ends[:, (ends >= 0).all(axis=0)]
    return inside


def _calls_are_stretches(graph: Graph, order: list[int]) -> bool:
    """Whether no call is left and entered again."""
    scopes, tree = column(graph.nodes, "scope"), ScopeTree(graph)
    left: set[int] = set()
    inside: list[int] = []
    before: int | None = None
    for node in order:
        scope = scopes[node]
        if scope == before:
            continue
        chain = _outermost_first(tree, scope)
        same = _common_start(inside, chain)
        left.update(inside[same:])
        if not left.isdisjoint(chain[same:]):
            return False
        inside, before = chain, scope
    return True


def _outermost_first(tree: ScopeTree, scope: int | None) -> list[int]:
    """The scope and all around it."""
    return list(tree.around(scope))[::-1]


def _common_start(chain: list[int], other: list[int]) -> int:
    """How many of the first entries two lists have in common."""
    return next((i for i, (a, b) in enumerate(zip(chain, other)) if a != b), min(len(chain), len(other)))


class _Sorter:
    """Takes what is ready, from the innermost call that has something ready, the earliest in the forward pass first."""

    def __init__(self, graph: Graph, ran: list[int]) -> None:
        self._graph, self._ran = graph, ran
        self._ready: dict[int | None, list[int]] = {}  # ranks by call; a node stands with every call around it
        self._done = bytearray(len(ran))
        self._scopes, self._tree = column(graph.nodes, "scope"), ScopeTree(graph)

    def sorted(self) -> list[int]:
        ran, ranks = self._ran, _places(self._graph, self._ran).tolist()
        _, used = _edges_inside(self._graph, ran)
        waiting = np.bincount(used, minlength=len(ran)).tolist()
        for rank, count in enumerate(waiting):
            if not count:
                self._offer(rank)
        order: list[int] = []
        scope: int | None = None
        while len(order) < len(ran):
            rank = self._next(scope)
            self._done[rank] = 1
            scope = self._scopes[ran[rank]]
            order.append(ran[rank])
            for edge in self._graph.consumers(ran[rank]):
                user = ranks[edge.consumer]
                if user >= 0 and not self._done[user]:
                    waiting[user] -= 1
                    if not waiting[user]:
                        self._offer(user)
        return order

    def _offer(self, rank: int) -> None:
        for scope in (None, *self._tree.around(self._scopes[self._ran[rank]])):
            heapq.heappush(self._ready.setdefault(scope, []), rank)

    def _next(self, scope: int | None) -> int:
        for around in (*self._tree.around(scope), None):
            heap = self._ready.get(around, [])
            while heap and self._done[heap[0]]:
                heapq.heappop(heap)
            if heap:
                return heapq.heappop(heap)
        return self._done.index(0)  # on a cycle, which a joined graph of two versions may have, the first goes first


# -- calls and joined boxes as stretches of the order ----------------------------------------------------------------


class _Builder:
    """Walks the order with a stack of open groups. Tokens name groups to come: a scope's id, or ~id of a joined box."""

    def __init__(self, graph: Graph, shown: Graph, boxes: dict[int, Group]) -> None:
        self._graph, self._shown, self._boxes = graph, shown, boxes
        self._box_of = {node: box for box, record in boxes.items() for node in record.nodes}
        self._scopes, self._tree = column(graph.nodes, "scope"), ScopeTree(graph)
        self._chains: dict[tuple[int | None, int | None], list[int]] = {}

    def build(self, order: Sequence[int]) -> tuple[Groups, dict[int, list[int]]]:
        """The groups, and those of each token."""
        groups = Groups(len(self._graph.nodes))
        pieces: dict[int, list[int]] = {}
        stack: list[tuple[int, int]] = []  # token and group
        before: list[int] | None = None
        at = 0
        for node in order:
            chain = self._chain(self._scopes[node], self._box_of.get(node))
            if chain is not before:
                same = _common_start([token for token, _ in stack], chain)
                del stack[same:]
                at = stack[-1][1] if stack else 0
                for token in chain[same:]:
                    scope, box = (token, None) if token >= 0 else (None, self._boxes[~token])
                    inner = groups.add(Stretch(at, "joined" if box else "module", scope, box))
                    groups[at].children.append(~inner)
                    pieces.setdefault(token, []).append(inner)
                    stack.append((token, inner))
                    at = inner
                before = chain
            groups.home[node] = at
            groups[at].children.append(node)
        for same_token in pieces.values():
            if len(same_token) > 1:
                for part, piece in enumerate(same_token, 1):
                    groups[piece].part = part
        return groups, pieces

    def _chain(self, scope: int | None, box: int | None) -> list[int]:
        key = (scope, box)
        if key not in self._chains:
            chain = _outermost_first(self._tree, scope)
            if box is not None:
                outside = _outermost_first(self._tree, self._outside(box))
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


# -- segments: they end where few values are alive, and are whole turns of what repeats, so that most are alike ------

MOST = 60
"""Boxes that one sheet may hold."""
SIZE = 40
"""Boxes of one segment, about."""


class _Cutter:
    """Gives groups of many children segments of its own making."""

    def __init__(self, groups: Groups, graph: Graph, order: list[int]) -> None:
        self._groups, self._graph = groups, graph
        self._alive = alive(graph, order)
        self._place = _places(graph, order)
        self._ops = column(graph.nodes, "op")
        self._first = [0] * len(groups)
        for at in range(len(groups) - 1, -1, -1):  # children come after their parents
            inside = groups[at].children
            self._first[at] = self._start(inside[0]) if inside else 0

    def cut(self, at: int) -> None:
        children = self._groups[at].children
        cuts = self._cuts(children)
        while True:
            pieces = [children[a:b] for a, b in zip(cuts, [*cuts[1:], len(children)])]
            children = [self._segment(at, piece) if len(piece) > 1 else piece[0] for piece in pieces]
            if len(children) <= MOST:
                break
            cuts = list(range(0, len(children), SIZE))
        self._groups[at].children = children

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
        made = self._groups.add(Stretch(parent, "segment", children=children))
        self._first.append(self._start(children[0]))
        for child in children:
            if child < 0:
                self._groups[~child].parent = made
            else:
                self._groups.home[child] = made
        return ~made

    def _start(self, child: int) -> int:
        return int(self._place[child]) if child >= 0 else self._first[~child]

    def _sign(self, child: int) -> str:
        if child >= 0:
            return str(self._ops[child])
        group = self._groups[~child]
        return self._graph.scopes[group.scope].type if group.scope is not None else group.kind


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
