"""The sheet of every group: what lies on it, numbered in the order of one walk, edges
between them, and all their places.

Cells are ops, leaves, inputs without gradient and outputs. In the order of the walk everything inside a group is
one range, so the file needs no lists of members. An edge between two far cells becomes
one edge where their groups are siblings, and one port edge for each border on the way.
Groups of one structure have one sheet, laid out once. Knows no text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gradviz.fold.groups import Groups, Section, common
from gradviz.graph import column
from gradviz.layout import Ints
from gradviz.layout.layered.layers import BOTTOM, FREE, TOP, Sheet, no_levels
from gradviz.layout.layered.sheets import SheetPlacement, place_sheet
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


class Cell(NamedTuple):
    """One box that is no group. `record` is the id of the node, the place of the output
    among the roots, or of the box of data among those of the walk.
    """

    record: int
    kind: int
    group: int  # by number of the walk


class Walk:
    """Everything in the order of a walk from the top of the page: leaves first, then
    what uses them, outputs at the end.

    `cells` and `groups` as they are met; `items[i]` are the children of group i: cells,
    or ~group by its number here. `inputs` are the boxes of data.
    """

    def __init__(self, tree: Groups) -> None:
        self.graph, self.tree = tree.graph, tree
        self.cells: list[Cell] = []
        self.groups: list[Section] = []
        self.items: list[list[int]] = []
        self.parent: list[int] = []
        self.cell_of: dict[int, int] = {}  # the only cell of a node
        self.copy_of: dict[
            tuple[int, Section], int
        ] = {}  # the cell of a leaf in a group
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

    def _walk(self) -> None:
        whole = self.tree[0]
        waiting = [(self._enter(whole, -1), iter(whole.children))]
        while waiting:
            group, children = waiting[-1]
            for child in children:
                if isinstance(child, Section):
                    inner = self._enter(child, group)
                    self.items[group].append(~inner)
                    waiting.append((inner, iter(child.children)))
                    break
                self._cell(child, OP, group)
            else:
                waiting.pop()

        for root in range(len(self.graph.roots)):
            self._cell(root, OUTPUT, 0)

    def _enter(self, section: Section, parent: int) -> int:
        group = len(self.groups)
        self.groups.append(section)
        self.items.append([])
        self.parent.append(parent)

        for leaf in sorted(self._inside.get(section, ())):
            self.copy_of[leaf, section] = len(self.cells)
            self._cell(leaf, COPY if len(self._homes[leaf]) > 1 else LEAF, group)
        for number in self._inputs_in.get(section, ()):
            self._cell(number, DATA, group)

        return group

    def _cell(self, record: int, kind: int, group: int) -> None:
        if kind in (OP, LEAF):
            self.cell_of[record] = len(self.cells)
        self.items[group].append(len(self.cells))
        self.cells.append(Cell(record, kind, group))

    def edges(self) -> list[tuple[int, int]]:
        """Producer and consumer as cells, for every edge, from the maker of each output
        to its box, and from each box of data to the ops that take it.
        """
        graph = self.graph
        ends = zip(column(graph.edges, "producer"), column(graph.edges, "consumer"))
        edges = [
            (self._beside(producer, consumer), self._beside(consumer, producer))
            for producer, consumer in ends
        ]
        first = len(self.cells) - len(graph.roots)
        data_cells = {
            cell.record: number
            for number, cell in enumerate(self.cells)
            if cell.kind == DATA
        }
        output_cells = ((root.node, first + i) for i, root in enumerate(graph.roots))

        return [
            *edges,
            *(
                (self._beside(node, -1), output)
                for node, output in output_cells
                if node is not None
            ),
            *(
                (number, self.cell_of[node])
                for record, number in data_cells.items()
                for node in self.inputs[record].nodes
            ),
            *(
                (data_cells[source], number)
                for record, number in data_cells.items()
                for source in self.inputs[record].sources
            ),
        ]

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


class Laid(NamedTuple):
    """A sheet with places, in whole pixels: middles of boxes and ports, and polylines
    of the edges.
    """

    shape: Shape
    width: int
    height: int
    x: list[int]
    y: list[int]
    points: list[list[int]]  # x, y, x, y, ... of each edge


class Sheets(NamedTuple):
    """`of[group]` is an index into `laid`. `ports[group]` are the cells that ports on
    top stand for, -1 for several.
    """

    of: list[int]
    laid: list[Laid]
    ports: list[list[int]]


def make_sheets(walk: Walk, width_of: Callable[[int], float]) -> Sheets:
    """Sheets of all groups. `width_of` gives the width of an item: a cell, or ~group."""
    borders = _Borders(walk)
    shapes, ports = zip(*(borders.shape(i, width_of) for i in range(len(walk.groups))))
    table = Table()
    of = table.numbers(shapes)
    with Stage("layout"):
        return Sheets(of, lay_out(table.rows), list(ports))


class _Borders:
    """Sorts every edge into the sheets that it passes through."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        # of cells and groups among the children of their group
        self._place: dict[int, int] = {}
        for items in walk.items:
            self._place.update((item, i) for i, item in enumerate(items))

        count = len(walk.groups)
        self._inner: list[dict[tuple[int, int], None]] = [{} for _ in range(count)]
        # (cell outside, place of the child)
        self._into: list[dict[tuple[int, int], None]] = [{} for _ in range(count)]
        self._out: list[dict[int, None]] = [
            {} for _ in range(count)
        ]  # the child's place
        for maker, user in walk.edges():
            self._sort(maker, user)

    def _sort(self, maker: int, user: int) -> None:
        walk, place = self._walk, self._place
        a, b = walk.cells[maker].group, walk.cells[user].group
        x, y = place[maker], place[user]

        while a != b:
            # the one that was met later is around nothing that was met earlier
            if a > b:
                self._out[a][x] = None
                a, x = walk.parent[a], place[~a]
            else:
                self._into[b][maker, y] = None
                b, y = walk.parent[b], place[~b]

        if x != y:
            self._inner[a][x, y] = None

    def shape(
        self, group: int, width_of: Callable[[int], float]
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
            tuple(item < 0 for item in items),
            len(ports),
            len(out),
            (*self._inner[group], *into, *out),
        )

        return shape, ports


def lay_out(shapes: Sequence[Shape]) -> list[Laid]:
    """Places for all shapes, in one run of the layered layout."""
    counts = [len(shape.widths) + shape.into + shape.out for shape in shapes]
    first = np.append(0, np.cumsum(counts, dtype=np.int64))
    sizes: list[tuple[float, float, int]] = []  # width, height and pin of everything
    ends: list[tuple[int, int]] = []

    for shape, offset in zip(shapes, first.tolist()):
        boxes = zip(shape.widths, shape.is_group)
        sizes += (
            (width, GROUP_HEIGHT if is_group else CELL_HEIGHT, FREE)
            for width, is_group in boxes
        )
        sizes += [(0, 0, TOP)] * shape.into + [(0, 0, BOTTOM)] * shape.out
        for edge in shape.edges:
            # the layout takes no cycles; `_cut_apart` turns the line back
            top, bottom = edge[::-1] if _is_back(shape, *edge) else edge
            ends.append((offset + top, offset + bottom))

    if not sizes:
        return [Laid(shape, 0, 0, [], [], []) for shape in shapes]

    widths, heights, pins = np.array(sizes, np.float64).T
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
        gap=GAP,
        rank_gap=RANK_GAP,
        words=np.zeros(len(widths)),
        levels=no_levels(len(widths)),
    )

    return _cut_apart(shapes, first, place_sheet(sheet))


def _is_back(shape: Shape, above: int, below: int) -> bool:
    """Whether an edge runs against the order of the children: part of a cycle, which a
    joined graph of two versions may have.
    """
    return below < above < len(shape.widths)


def _cut_apart(
    shapes: Sequence[Shape], first: Ints, placed: SheetPlacement
) -> list[Laid]:
    middles, points = (
        np.rint(values).astype(np.int64)
        for values in (placed.middles, placed.routes.points)
    )
    sizes, starts = (
        np.ceil(placed.sizes).astype(np.int64).tolist(),
        placed.routes.starts.tolist(),
    )
    lines = (points[begin:end] for begin, end in pairwise(starts))
    laid: list[Laid] = []

    for i, shape in enumerate(shapes):
        x, y = middles[first[i] : first[i + 1]].T.tolist()
        mine = zip(shape.edges, lines)
        routes = [
            (line[::-1] if _is_back(shape, *ends) else line).ravel().tolist()
            for ends, line in mine
        ]
        width, height = sizes[i]
        laid.append(Laid(shape, width, height, x, y, routes))

    return laid
