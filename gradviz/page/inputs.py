"""Boxes for the tensors without gradient that ops were given, and the group in which
each stands.

What the user's code made stands on the page; what a module made stands in the module,
beside the box that takes it. Knows no cells and no places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gradviz.draw.data_boxes import few_of, sources
from gradviz.fold.groups import Groups
from gradviz.fold.order import is_view
from gradviz.graph import Data, column
from gradviz.graph.origins import ScopeTree, around, common, module_path
from gradviz.report import labels
from gradviz.wording import tensor_line

MOST_WAYS = 40
"""With more ways into one group, each use has a box beside it: every way is an edge
through the sheet of the group, as long as what lies before the use.
"""


class InputBox(NamedTuple):
    """Tensors that enter alike. Several are `x[:, t] ×11`, or those that are too many
    for a box each.
    """

    group: int
    title: str
    line: str
    data: tuple[int, ...]  # places in `Graph.data`
    nodes: tuple[int, ...]  # the ops that take them
    sources: tuple[int, ...] = ()  # of these boxes they are computed


def is_beside(op: str) -> bool:
    """Whether an op stands beside the one that a reader means."""
    return is_view(op) or op.startswith("ToCopyBackward")


Entry = tuple[int, tuple[int, ...]]
"""A group, and its children that take something."""


class _Use(NamedTuple):
    """One tensor, and those of its users that get it from one box."""

    data: int
    nodes: tuple[int, ...]


def input_boxes(groups: Groups) -> list[InputBox]:
    """The boxes of a graph, in the order of its data."""
    if not groups.graph.data:
        return []
    return _with_sources(groups.graph.data, list(_Boxes(groups).boxes()))


def _with_sources(data: Sequence[Data], boxes: list[InputBox]) -> list[InputBox]:
    """The boxes, and those of what they are computed from."""
    place = {one: i for i, box in enumerate(boxes) for one in box.data}
    links: dict[int, dict[int, None]] = {}
    for one, of in sources(data, list(place)).items():
        for source in of:
            if source not in place:
                place[source] = len(boxes)
                group = boxes[place[one]].group if data[source].inner else 0
                boxes.append(InputBox(group, *_lines(data[source]), (source,), ()))
            links.setdefault(place[one], {})[place[source]] = None
    return [
        box._replace(sources=tuple(of for of in links.get(i, ()) if of != i))
        for i, box in enumerate(boxes)
    ]


def sources_first(boxes: Sequence[InputBox]) -> list[int]:
    """The boxes, by number, each after those that it is computed from."""
    order: dict[int, None] = {}
    entered = set[int]()
    waiting = list(reversed(range(len(boxes))))
    while waiting:
        number = waiting[-1]
        if number in entered:
            order[waiting.pop()] = None
            continue
        entered.add(number)
        waiting += [one for one in boxes[number].sources if one not in entered]
    return list(order)


def _lines(data: Data, path: str = "") -> tuple[str, str]:
    """Title and tensor, "" where that is not known."""
    line = "" if data.tensor.dtype == "unknown" else tensor_line(data.tensor)
    return labels.data_title(data, path), line


class _Boxes:
    def __init__(self, groups: Groups) -> None:
        self._groups, self._tree = groups, ScopeTree(groups.graph)
        self._working = _working_ops(groups)

    def boxes(self) -> Iterator[InputBox]:
        entries: dict[Entry, list[_Use]] = {}
        for index, data in enumerate(self._groups.graph.data):
            nodes = tuple(node for node in data.nodes if self._groups.home[node] >= 0)
            if nodes:
                self._enter(entries, self._home(data, nodes), _Use(index, nodes))

        for (group, _), uses in entries.items():
            if self._ways(group, uses) <= MOST_WAYS:
                yield from self._merged(group, uses)
            else:
                yield from self._beside_users(uses)

    def _beside_users(self, uses: Iterable[_Use]) -> Iterator[InputBox]:
        entries: dict[Entry, list[_Use]] = {}
        for use in uses:
            for group, nodes in self._by_group(use.nodes).items():
                self._enter(entries, group, _Use(use.data, tuple(nodes)))

        for (group, _), some in entries.items():
            yield from self._merged(group, some)

    def _enter(self, entries: dict[Entry, list[_Use]], group: int, use: _Use) -> None:
        takers = dict.fromkeys(self._child(group, node) for node in use.nodes)
        entries.setdefault((group, tuple(takers)), []).append(use)

    def _home(self, data: Data, nodes: Iterable[int]) -> int:
        users = {self._groups.home[node] for node in nodes}
        group = self._open(common(self._groups, users) or 0)
        home = self._tree.where_written(self._groups.scope(group), data)
        scopes = {None, *self._tree.around(home)}
        outwards = around(self._groups, group)
        return next(g for g in outwards if self._groups.scope(g) in scopes)

    def _open(self, group: int) -> int:
        """The innermost group with more to see than one op that takes the tensor."""
        for outer in around(self._groups, group):
            if self._working[outer] > 1:
                return outer
        return 0

    def _by_group(self, nodes: Iterable[int]) -> dict[int, list[int]]:
        users: dict[int, list[int]] = {}
        for node in nodes:
            group = self._open(self._groups.home[node])
            users.setdefault(group, []).append(node)
        return users

    def _child(self, group: int, node: int) -> int:
        """The child of a group that holds a node, groups as ~group."""
        child = node
        for outer in around(self._groups, self._groups.home[node]):
            if outer == group:
                break
            child = ~outer
        return child

    def _ways(self, group: int, uses: Iterable[_Use]) -> int:
        """The most children of any group, from this one inwards, that take these."""
        counts: Counter[int] = Counter()
        seen: set[int] = set()
        for use in uses:
            for node in use.nodes:
                child = node
                for outer in around(self._groups, self._groups.home[node]):
                    # from here outwards, this way was counted with another use
                    if child in seen:
                        break
                    seen.add(child)
                    counts[outer] += 1
                    if outer == group:
                        break
                    child = ~outer
        return max(counts.values())

    def _merged(self, group: int, uses: Iterable[_Use]) -> Iterator[InputBox]:
        """One box for what reads alike, and one for the rest of many."""
        alike: dict[tuple[str, ...], list[_Use]] = {}
        path = self._path(group)
        for use in uses:
            data = self._groups.graph.data[use.data]
            lines = _lines(data, path)
            alike.setdefault(lines, []).append(use)

        for (title, line), several in few_of(alike):
            nodes = dict.fromkeys(node for use in several for node in use.nodes)
            places = tuple(use.data for use in several)
            yield InputBox(group, title, line, places, tuple(nodes))

    def _path(self, group: int) -> str:
        scope = self._groups.scope(group)
        return module_path(self._groups.graph.scopes, scope)


def _working_ops(groups: Groups) -> list[int]:
    """How many ops do the work of each group."""
    counts = [0] * len(groups)
    ops = column(groups.graph.nodes, "op")
    for node, home in enumerate(groups.home):
        if home >= 0 and not is_beside(ops[node]):
            counts[home] += 1

    # inner groups first, so that each adds a complete count to its parent
    for group in reversed(groups.top_down()):
        parent = groups[group].parent
        if parent is not None:
            counts[parent] += counts[group]
    return counts
