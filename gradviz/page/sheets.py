"""The sheet of every group: its children as boxes, edges between them, and ports where edges cross the group's border.

An edge between two far cells becomes one edge where their groups are siblings, and one port edge for each border on the way. Groups
of one structure have one sheet, laid out once. Knows no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from gradviz.layout import Floats, Ints
from gradviz.layout.layered import SheetPlacement, place_sheet
from gradviz.layout.layered.layers import BOTTOM, FREE, TOP, Sheet
from gradviz.page.cells import Walk
from gradviz.stages import Stage

CELL_HEIGHT, GROUP_HEIGHT = 34.0, 38.0
GAP, RANK_GAP = 18.0, 34.0
PORTS = 40
"""With more producers outside, ports are one for each box that uses them."""


class Shape(NamedTuple):
    """What alike groups have in common. Local numbers: children first, then ports on top, then ports below."""

    widths: tuple[int, ...]
    is_group: tuple[bool, ...]
    into: int  # ports on top
    out: int
    edges: tuple[tuple[int, int], ...]


class Laid(NamedTuple):
    """A sheet with places, in whole pixels: middles of boxes and ports, and polylines of the edges."""

    shape: Shape
    width: int
    height: int
    x: list[int]
    y: list[int]
    points: list[list[int]]  # x, y, x, y, ... of each edge


class Sheets(NamedTuple):
    """`of[group]` is an index into `laid`. `ports[group]` are the cells that ports on top stand for, -1 for several."""

    of: list[int]
    laid: list[Laid]
    ports: list[list[int]]


def make_sheets(walk: Walk, width_of: Callable[[int], float]) -> Sheets:
    """Sheets of all groups. `width_of` gives the width of an item: a cell, or ~group."""
    borders = _Borders(walk)
    of: list[int] = []
    number: dict[Shape, int] = {}
    ports: list[list[int]] = []
    for at in range(len(walk.groups)):
        shape, mine = borders.shape(at, width_of)
        of.append(number.setdefault(shape, len(number)))
        ports.append(mine)
    with Stage("layout"):
        return Sheets(of, lay_out(list(number)), ports)


class _Borders:
    """Sorts every edge into the sheets that it passes through."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        count = len(walk.groups)
        self._depth = [0] * count
        for at in range(1, count):
            self._depth[at] = self._depth[walk.parent[at]] + 1
        self._local = [0] * len(walk.cells)  # place of a cell among the children of its group
        self._local_group = [0] * count
        for items in walk.items:
            for i, item in enumerate(items):
                if item >= 0:
                    self._local[item] = i
                else:
                    self._local_group[~item] = i
        self._inner: list[dict[tuple[int, int], None]] = [{} for _ in range(count)]
        self._into: list[dict[tuple[int, int], None]] = [{} for _ in range(count)]  # (cell outside, local child)
        self._out: list[dict[int, None]] = [{} for _ in range(count)]  # local child
        for made, used in walk.edges():
            self._sort(made, used)

    def _sort(self, made: int, used: int) -> None:
        cells, parent, depth = self._walk.cells, self._walk.parent, self._depth
        a, b = cells[made].group, cells[used].group
        x, y = self._local[made], self._local[used]
        while a != b:
            if depth[a] >= depth[b]:
                self._out[a][x] = None
                x = self._local_group[a]
                a = parent[a]
            else:
                self._into[b][made, y] = None
                y = self._local_group[b]
                b = parent[b]
        if x != y:
            self._inner[a][x, y] = None

    def shape(self, at: int, width_of: Callable[[int], float]) -> tuple[Shape, list[int]]:
        """The structure of a group's sheet, and the cells outside that its ports on top stand for."""
        items = self._walk.items[at]
        makers = list(dict.fromkeys(made for made, _ in self._into[at]))
        if len(makers) <= PORTS:
            port = {made: len(items) + i for i, made in enumerate(makers)}
            into = [(port[made], child) for made, child in self._into[at]]
            ports = makers
        else:
            users = list(dict.fromkeys(child for _, child in self._into[at]))
            into = [(len(items) + i, child) for i, child in enumerate(users)]
            ports = [-1] * len(users)
        below = len(items) + len(ports)
        out = [(child, below + i) for i, child in enumerate(self._out[at])]
        shape = Shape(
            tuple(int(width_of(item)) for item in items),
            tuple(item < 0 for item in items),
            len(ports),
            len(out),
            (*self._inner[at], *into, *out),
        )
        return shape, ports


def lay_out(shapes: Sequence[Shape]) -> list[Laid]:
    """Places for all shapes, in one run of the layered layout."""
    counts = [len(shape.widths) + shape.into + shape.out for shape in shapes]
    first = np.append(0, np.cumsum(counts, dtype=np.int64))
    widths = np.array([w for s in shapes for w in (*s.widths, *[0] * (s.into + s.out))], np.float64)
    heights = np.array([h for s in shapes for h in _heights(s)], np.float64)
    pins = [p for s in shapes for p in (*[FREE] * len(s.widths), *[TOP] * s.into, *[BOTTOM] * s.out)]
    ends = [(first[i] + a, first[i] + b) for i, s in enumerate(shapes) for a, b in _downwards(s)]
    edges = np.array(ends, np.int64).reshape(-1, 2)
    nothing = np.zeros(len(edges))
    sheet = Sheet(
        widths=widths,
        heights=heights,
        above=edges[:, 0],
        below=edges[:, 1],
        above_offset=nothing,
        below_offset=nothing,
        part=np.repeat(np.arange(len(shapes)), counts),
        parts=len(shapes),
        pin=np.array(pins, np.int64),
        gap=GAP,
        rank_gap=RANK_GAP,
    )
    if not len(widths):
        return [Laid(shape, 0, 0, [], [], []) for shape in shapes]
    return _cut_apart(shapes, first, place_sheet(sheet))


def _is_back(shape: Shape, above: int, below: int) -> bool:
    """Whether an edge runs against the order of the children: part of a cycle, which a joined graph of two versions may have."""
    return below < above < len(shape.widths)


def _downwards(shape: Shape) -> list[tuple[int, int]]:
    return [(b, a) if _is_back(shape, a, b) else (a, b) for a, b in shape.edges]


def _heights(shape: Shape) -> list[float]:
    boxes = [GROUP_HEIGHT if group else CELL_HEIGHT for group in shape.is_group]
    return [*boxes, *[0.0] * (shape.into + shape.out)]


def _cut_apart(shapes: Sequence[Shape], first: Ints, placed: SheetPlacement) -> list[Laid]:
    (x, y), sizes = _whole(placed.middles).T, np.ceil(placed.sizes).astype(np.int64).tolist()
    points, starts = _whole(placed.routes.points), placed.routes.starts.tolist()
    laid: list[Laid] = []
    edge = 0
    for i, shape in enumerate(shapes):
        lines = []
        for ends in shape.edges:
            line = points[starts[edge] : starts[edge + 1]]
            lines.append((line[::-1] if _is_back(shape, *ends) else line).ravel().tolist())
            edge += 1
        here = slice(int(first[i]), int(first[i + 1]))
        width, height = sizes[i]
        laid.append(Laid(shape, width, height, x[here].tolist(), y[here].tolist(), lines))
    return laid


def _whole(values: Floats) -> Ints:
    return np.rint(values).astype(np.int64)
