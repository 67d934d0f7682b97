"""Boxes for the tensors without gradient that ops were given, and the group in which
each stands.

What the user's code made stands on the page; what a module made stands in the module,
beside the box that takes it. Knows no cells and no places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from gradviz.draw import details
from gradviz.draw.data_boxes import Lines, few_of, sources
from gradviz.fold.groups import Child, Groups, Section, common
from gradviz.fold.order import is_view
from gradviz.graph import Data, column
from gradviz.graph.origins import ScopeTree, module_path

MOST_WAYS = 40
"""With more ways into one group, each use has a box beside it: every way is an edge
through the sheet of the group, as long as what lies before the use.
"""


class InputBox(NamedTuple):
    """Tensors that enter alike. Several are `x[:, t] ×11`, or those that are too many
    for a box each.
    """

    group: Section
    title: str
    line: str
    data: tuple[int, ...]  # places in `Graph.data`
    nodes: tuple[int, ...]  # the ops that take them
    sources: tuple[int, ...] = ()  # of these boxes they are computed


def _box(
    group: Section, lines: Lines, data: tuple[int, ...], nodes: tuple[int, ...]
) -> InputBox:
    title, *line = lines
    return InputBox(group, title, "".join(line), data, nodes)


def is_beside(op: str) -> bool:
    """Whether an op stands beside the one that a reader means."""
    return is_view(op) or op.startswith("ToCopyBackward")


Entry = tuple[Section, tuple[Child, ...]]
"""A group, and its children that take something."""


class _Use(NamedTuple):
    """One tensor, and those of its users that get it from one box."""

    data: int
    nodes: tuple[int, ...]


def input_boxes(groups: Groups) -> list[InputBox]:
    """The boxes of a graph, in the order of its data."""
    if not groups.graph.data:
        return []
    return _with_sources(groups, list(_Boxes(groups).boxes()))


def _with_sources(groups: Groups, boxes: list[InputBox]) -> list[InputBox]:
    """The boxes, and those of what they are computed from."""
    data = groups.graph.data
    place = {one: i for i, box in enumerate(boxes) for one in box.data}
    links: dict[int, dict[int, None]] = {}
    for one, of in sources(data, list(place)).items():
        for source in of:
            if source not in place:
                group = boxes[place[one]].group if data[source].inner else groups[0]
                place[source] = len(boxes)
                lines = details.data_lines(data[source])
                boxes.append(_box(group, lines, (source,), ()))
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


class _Boxes:
    def __init__(self, groups: Groups) -> None:
        self._groups, self._tree = groups, ScopeTree(groups.graph)
        self._working = working_ops(groups)

    def boxes(self) -> Iterator[InputBox]:
        uses, loops = self._uses()
        # what the shown turn takes and what the others take is one box
        for (loop, _), alike in loops.items():
            takers = {self._way(loop, use.nodes[0])[-1] for _, use in alike}
            if len(takers) > 1 and not takers.isdisjoint(loop.shown):
                yield from self._merged(loop, [use for _, use in alike])
            else:
                uses += alike

        for (group, _), some in self._entries(uses).items():
            if self._ways(group, some) <= MOST_WAYS:
                yield from self._merged(group, some)
                continue
            beside = (
                (user, _Use(use.data, tuple(nodes)))
                for use in some
                for user, nodes in self._by_group(use.nodes).items()
            )
            for (user, _), few in self._entries(beside).items():
                yield from self._merged(user, few)

    def _uses(
        self,
    ) -> tuple[
        list[tuple[Section, _Use]],
        dict[tuple[Section, Lines], list[tuple[Section, _Use]]],
    ]:
        """The uses of data, by the group that it stands in; those in the innermost loop
        by that and by the lines of the data.
        """
        home, uses = self._groups.home, list[tuple[Section, _Use]]()
        loops: dict[tuple[Section, Lines], list[tuple[Section, _Use]]] = {}
        for index, data in enumerate(self._groups.graph.data):
            nodes = tuple(node for node in data.nodes if home[node] is not None)
            if nodes:
                entry = self._home(data, nodes), _Use(index, nodes)
                around = entry[0].around()
                loop = next((one for one in around if one.is_loop and one.shown), None)
                if loop is not None:
                    key = loop, details.data_lines(data)
                    loops.setdefault(key, []).append(entry)
                else:
                    uses.append(entry)
        return uses, loops

    def _entries(self, uses: Iterable[tuple[Section, _Use]]) -> dict[Entry, list[_Use]]:
        """Uses by the group in which their box stands, and the children that take them."""
        entries: dict[Entry, list[_Use]] = {}
        for group, use in uses:
            takers = dict.fromkeys(self._way(group, node)[-1] for node in use.nodes)
            entries.setdefault((group, tuple(takers)), []).append(use)
        return entries

    def _home(self, data: Data, nodes: Iterable[int]) -> Section:
        group = self._open(common({self._user(node) for node in nodes}))
        home = self._tree.where_written(group.scope_around, data)
        scopes = {None, *self._tree.around(home)}
        return next(outer for outer in group.around() if outer.scope_around in scopes)

    def _user(self, node: int) -> Section:
        """The group of an op."""
        return self._groups.home[node] or self._groups[0]

    def _open(self, group: Section) -> Section:
        """The innermost group with more to see than one op that takes the tensor."""
        outwards = (outer for outer in group.around() if len(self._working[outer]) > 1)
        return next(outwards, self._groups[0])

    def _by_group(self, nodes: Iterable[int]) -> dict[Section, list[int]]:
        users: dict[Section, list[int]] = {}
        for node in nodes:
            users.setdefault(self._open(self._user(node)), []).append(node)
        return users

    def _way(self, group: Section, node: int) -> list[Child]:
        """A node, and the groups around it up to the child of a group that holds it."""
        way: list[Child] = [node]
        for outer in self._user(node).around():
            if outer is group:
                break
            way.append(outer)
        return way

    def _ways(self, group: Section, uses: Iterable[_Use]) -> int:
        """The most children of any group, from this one inwards, that take these."""
        takers = (
            (outer, child)
            for use in uses
            for node in use.nodes
            for child, outer in pairwise([*self._way(group, node), group])
        )
        return max(Counter(outer for outer, _ in set(takers)).values())

    def _merged(self, group: Section, uses: Iterable[_Use]) -> Iterator[InputBox]:
        """One box for what reads alike, and one for the rest of many."""
        alike: dict[Lines, list[_Use]] = {}
        path = module_path(self._groups.graph.scopes, group.scope_around)
        for use in uses:
            lines = details.data_lines(self._groups.graph.data[use.data], path)
            alike.setdefault(lines, []).append(use)

        for lines, several in few_of(alike):
            nodes = dict.fromkeys(node for use in several for node in use.nodes)
            places = tuple(use.data for use in several)
            yield _box(group, lines, places, tuple(nodes))


FEW = 3
"""Ops that do the work of a group, of which a reader is told each."""


def working_ops(groups: Groups) -> dict[Section, list[int]]:
    """The ops that do more than change a shape in each group, in order: all where they are
    few.
    """
    ops = column(groups.graph.nodes, "op")
    working: dict[Section, list[int]] = {group: [] for group in groups}
    for node in groups.order:
        home = groups.home[node]
        for outer in home.around() if home and not is_beside(ops[node]) else ():
            if len(working[outer]) > FEW:
                break  # and so have all around it
            working[outer].append(node)
    return working
