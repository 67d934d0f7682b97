"""Cuts sheets with too many boxes into segments of the order, so that no sheet is large and a first look is never a wall.

A loop without modules, or a chain of a million ops, becomes a tree of segments. They end where few values are alive, and are whole
turns of what repeats, so that most of them are alike and share one layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.graph import Graph, column
from gradviz.layout.model import Ints
from gradviz.page.groups import Groups
from gradviz.page.order import alive, places

MOST = 60
"""Boxes that one sheet may hold."""
SIZE = 40
"""Boxes of one segment, about."""


def cut_into_segments(groups: Groups, graph: Graph, order: Sequence[int]) -> None:
    """Give every group of more than `MOST` children segments of its own making."""
    large = [at for at in range(groups.size) if len(groups.children[at]) > MOST]
    if not large:
        return
    cutter = _Cutter(groups, graph, order)
    for at in large:
        cutter.cut(at)


class _Cutter:
    def __init__(self, groups: Groups, graph: Graph, order: Sequence[int]) -> None:
        self._groups, self._graph = groups, graph
        self._alive: Ints = alive(graph, list(order))
        self._place = places(len(graph.nodes), list(order))
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
