"""The sheet of every group: what lies on it, numbered in the order of one walk, edges
between them, and all their places.

Cells are ops, leaves, inputs without gradient and outputs. In the order of the walk everything inside a group is
one range, so the file needs no lists of members. An edge between two far cells becomes
one edge where their groups are siblings, and one port edge for each border on the way.
Groups of one structure have one sheet, laid out once. Knows no text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gradviz.fold.groups import Child, Groups, Section, common
from gradviz.layout.layered.pipeline import place_sheet
from gradviz.layout.layered.routes import Routes, reversed_routes
from gradviz.layout.layered.sheet import BOTTOM, FREE, TOP, Sheet, SheetPlacement
from gradviz.page.inputs import input_boxes, sources_first
from gradviz.page.pack import Table
from gradviz.stages import Stage

SPLIT_ABOVE = 4
"""A leaf that more boxes of its sheet use is drawn once in each group that uses it."""


Homes = dict[int, tuple[Section, ...]]
"""The groups in which a box of a leaf stands, by id of its AccumulateGrad node."""


def homes_of_leaves(groups: Groups) -> Homes:
    """A parameter stands inside the group that all its users are in, any other leaf on
    the page, one of many uses per use.

    Parameters of a module that is called again stand in each of its calls. A leaf
    without users, which an output may be, stands on the page.
    """
    homes: Homes = {}
    graph = groups.graph
    for leaf in graph.leaves:
        homes_of_users = (groups.home[e.consumer] for e in graph.consumers(leaf.node))
        users = list(dict.fromkeys(home for home in homes_of_users if home is not None))
        is_parameter = leaf.kind == "parameter"
        meeting = common(users) if is_parameter and users else groups[0]
        beside = {
            next(g for g in user.around() if meeting in (g, g.parent)) for user in users
        }
        is_split = len(beside) > SPLIT_ABOVE or (
            is_parameter and _are_calls_of_one_module(users)
        )
        homes[leaf.node] = tuple(users) if is_split else (meeting,)

    return homes


def _are_calls_of_one_module(users: Iterable[Section]) -> bool:
    """Whether these are several calls of one module."""
    records = {user.scope: user.record for user in users}
    paths = {record and record.path for record in records.values()}
    return len(records) > 1 and len(paths) == 1


OP, LEAF, COPY, OUTPUT, DATA = range(5)
"""Kinds of cells. A copy is one of several boxes of one leaf; data has no gradient."""


Item = Child
"""A cell by its number, or a group."""


class Cell(NamedTuple):
    """One box that is no group. `record` is the id of the node, the place of the output
    among the roots, or of the box of data among those of the walk.
    """

    record: int
    kind: int
    group: Section


class Walk:
    """Everything in the order of a walk from the top of the page: leaves first, then
    what uses them, outputs at the end.

    `cells` and `groups` as they are met; `items[group]` are the children of a group:
    cells by their numbers, and groups. `inputs` are the boxes of data.
    """

    def __init__(self, tree: Groups) -> None:
        self.graph, self.tree = tree.graph, tree
        self.cells: list[Cell] = []
        self.items: dict[Section, list[Item]] = {}
        self.cell_of: dict[int, int] = {}  # the only cell of a node
        # the cell of a leaf in a group
        self.copy_of: dict[tuple[int, Section], int] = {}
        self._homes = homes_of_leaves(tree)
        self._inside: dict[Section, list[int]] = {}  # leaves by group
        for leaf, homes in self._homes.items():
            for home in homes:
                self._inside.setdefault(home, []).append(leaf)

        self.inputs = input_boxes(tree)
        self._inputs_in: dict[Section, list[int]] = {}  # by group
        for number in sources_first(self.inputs):
            group = self.inputs[number].group
            self._inputs_in.setdefault(group, []).append(number)

        self._walk()
        self.groups = list(self.items)

    def _walk(self) -> None:
        whole = self.tree[0]
        waiting = [(whole, self._entered(whole))]
        while waiting:
            group, children = waiting[-1]
            child = next(children, None)
            if child is None:
                waiting.pop()
            elif isinstance(child, Section):
                self.items[group].append(child)
                waiting.append((child, self._entered(child)))
            else:
                self._cell(child, OP, group)

        for root in range(len(self.graph.roots)):
            self._cell(root, OUTPUT, whole)

    def _entered(self, group: Section) -> Iterator[Child]:
        """The children of a group, of which leaves and data come first."""
        self.items[group] = []
        for leaf in sorted(self._inside.get(group, ())):
            self.copy_of[leaf, group] = len(self.cells)
            self._cell(leaf, COPY if len(self._homes[leaf]) > 1 else LEAF, group)
        for number in self._inputs_in.get(group, ()):
            self._cell(number, DATA, group)
        return iter(group.children)

    def _cell(self, record: int, kind: int, group: Section) -> None:
        if kind in (OP, LEAF):
            self.cell_of[record] = len(self.cells)
        self.items[group].append(len(self.cells))
        self.cells.append(Cell(record, kind, group))

    def edges(self) -> list[tuple[int, int]]:
        """Producer and consumer as cells, for every edge, from the maker of each output
        to its box, and from each box of data to the ops that take it.
        """
        graph = self.graph
        ends = zip(graph.producers, graph.users)
        edges = [
            (self._beside(producer, consumer), self._beside(consumer, producer))
            for producer, consumer in ends
        ]
        first = len(self.cells) - len(graph.roots)
        edges += [
            (self._beside(root.node, -1), first + i)
            for i, root in enumerate(graph.roots)
            if root.node is not None
        ]
        every = enumerate(self.cells)
        cell_of = {cell.record: i for i, cell in every if cell.kind == DATA}
        data = [(cell, self.inputs[record]) for record, cell in cell_of.items()]
        edges += [
            (cell, self.cell_of[node]) for cell, box in data for node in box.nodes
        ]
        edges += [(cell_of[one], cell) for cell, box in data for one in box.sources]
        return edges

    def _beside(self, node: int, other: int) -> int:
        """The cell of a node; of a leaf with several, the one in the group of the
        `other` node, or else the first.
        """
        if node in self.cell_of:
            return self.cell_of[node]
        group, homes = self.tree.home[other] if other >= 0 else None, self._homes[node]
        return self.copy_of[node, group if group in homes else homes[0]]


CELL_HEIGHT, GROUP_HEIGHT = 34.0, 38.0
GAP, RANK_GAP = 18.0, 34.0
PORTS = 40
"""With more producers outside, ports are one for each box that uses them."""


class Shape(NamedTuple):
    """What alike groups have in common. Local numbers: children first, then ports on
    top, then ports below.
    """

    widths: tuple[int, ...]
    is_group: tuple[bool, ...]
    into: int  # ports on top
    out: int
    edges: tuple[tuple[int, int], ...]


class Sheets(NamedTuple):
    """`of[group]` is an index into `shapes`. `ports[group]` are the cells that ports on
    top stand for, -1 for several. `placed` has the boxes and ports of all shapes one
    after another, then their edges, in whole pixels.
    """

    of: list[int]
    shapes: list[Shape]
    ports: list[list[int]]
    placed: SheetPlacement


def make_sheets(walk: Walk, width_of: Callable[[Item], float]) -> Sheets:
    """Sheets of all groups. `width_of` gives the width of an item."""
    borders = _Borders(walk)
    shapes, ports = zip(*(borders.shape(group, width_of) for group in walk.groups))
    table = Table()
    of = table.numbers(shapes)
    with Stage("layout"):
        return Sheets(of, table.rows, list(ports), lay_out(table.rows))


class _Borders:
    """Sorts every edge into the sheets that it passes through."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._number = {group: i for i, group in enumerate(walk.groups)}
        # of cells and groups among the children of their group
        self._place: dict[Item, int] = {}
        for items in walk.items.values():
            self._place.update((item, i) for i, item in enumerate(items))

        # by group: places of children, and (cell outside, place of the child)
        self._inner = defaultdict[Section, dict[tuple[int, int], None]](dict)
        self._into = defaultdict[Section, dict[tuple[int, int], None]](dict)
        self._out = defaultdict[Section, dict[int, None]](dict)
        for maker, user in walk.edges():
            self._sort(maker, user)

    def _sort(self, maker: int, user: int) -> None:
        cells, place, number = self._walk.cells, self._place, self._number
        a, b = cells[maker].group, cells[user].group
        x, y = place[maker], place[user]

        while a is not b:
            # the one that was met later is around nothing that was met earlier
            if number[a] > number[b]:
                self._out[a][x] = None
                a, x = a.parent or a, place[a]
            else:
                self._into[b][maker, y] = None
                b, y = b.parent or b, place[b]

        if x != y:
            self._inner[a][x, y] = None

    def shape(
        self, group: Section, width_of: Callable[[Item], float]
    ) -> tuple[Shape, list[int]]:
        """The structure of a group's sheet, and the cells outside that its ports on top
        stand for.
        """
        items, ways = self._walk.items[group], self._into[group]
        # a port is known by what it comes from, or where there are many leads to
        end = int(len({maker for maker, _ in ways}) > PORTS)
        port = {
            one: i
            for i, one in enumerate(dict.fromkeys(w[end] for w in ways), len(items))
        }
        into = [(port[way[end]], way[1]) for way in ways]
        ports = [-1] * len(port) if end else list(port)

        below = len(items) + len(ports)
        out = [(child, below + i) for i, child in enumerate(self._out[group])]
        shape = Shape(
            tuple(int(width_of(item)) for item in items),
            tuple(isinstance(item, Section) for item in items),
            len(ports),
            len(out),
            (*self._inner[group], *into, *out),
        )

        return shape, ports


def lay_out(shapes: Sequence[Shape]) -> SheetPlacement:
    """Places for all shapes, in one run of the layered layout."""
    counts = [len(shape.widths) + shape.into + shape.out for shape in shapes]
    sizes: list[tuple[float, float, int]] = []  # width, height and pin of everything
    ends: list[tuple[int, int]] = []
    # against the order of the children: parts of cycles, which a joined graph of two
    # versions may have. The layout takes none, so these lines are turned back
    is_back: list[bool] = []

    for shape in shapes:
        offset, boxes = len(sizes), zip(shape.widths, shape.is_group)
        sizes += (
            (width, GROUP_HEIGHT if is_group else CELL_HEIGHT, FREE)
            for width, is_group in boxes
        )
        sizes += [(0, 0, TOP)] * shape.into + [(0, 0, BOTTOM)] * shape.out
        for start, end in shape.edges:
            is_back.append(end < start < len(shape.widths))
            top, bottom = (end, start) if is_back[-1] else (start, end)
            ends.append((offset + top, offset + bottom))

    widths, heights, pins = np.array(sizes, np.float64).reshape(-1, 3).T
    above, below = np.array(ends, np.int64).reshape(-1, 2).T
    nothing = np.zeros(len(ends))
    sheet = Sheet(
        widths=widths,
        heights=heights,
        above=above,
        below=below,
        above_offset=nothing,
        below_offset=nothing,
        part=np.repeat(np.arange(len(shapes)), counts),
        parts=len(shapes),
        pin=pins.astype(np.int64),
        side=np.zeros(len(widths), np.int64),
        gap=GAP,
        rank_gap=RANK_GAP,
        words=np.zeros(len(widths)),
    )
    middles, routes, rooms = place_sheet(sheet)
    points, starts = reversed_routes(routes, np.flatnonzero(is_back))
    return SheetPlacement(
        np.rint(middles), Routes(np.rint(points), starts), np.ceil(rooms)
    )
