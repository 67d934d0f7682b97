"""The block that is read first: the tree of groups, their sheets, and what stands in
the boxes: a title and a line for each.

Names are given relative to the group around, so that groups of one structure read alike
and share one layout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from itertools import chain
from operator import attrgetter, itemgetter
from typing import NamedTuple, get_args

from gradviz.draw.kinds import kind_of_group, kind_of_node
from gradviz.draw.palette import BoxKind
from gradviz.draw.summary import without_dtype
from gradviz.draw.typesetting import shorten, text_width
from gradviz.fold.grouping import grouped
from gradviz.fold.groups import Groups, Kind
from gradviz.fold.titles import kind_of, title
from gradviz.graph import Graph, Group, Node
from gradviz.graph.amounts import held_bytes, known_elements
from gradviz.page.inputs import is_beside
from gradviz.page.pack import Pack, Table
from gradviz.page.sheets import (
    COPY,
    DATA,
    LEAF,
    OP,
    OUTPUT,
    Cell,
    Sheets,
    Walk,
    make_sheets,
)
from gradviz.report import labels
from gradviz.wording import count_text, one_line, plural, tensor_line

TITLE_SIZE, LINE_SIZE = 11.0, 10.0
CELLS = 64
"""Longer lines are shortened; the panel has them in full."""
NUMBERS = 20
"""Letters of a single number and its gradient: `= -0.959, grad 0.284`."""
PAD = 10.0
LEAST = 72.0


COLORS: dict[int, BoxKind] = {
    LEAF: "leaf",
    COPY: "leaf",
    OUTPUT: "output",
    DATA: "input",
}


class Text(NamedTuple):
    """`type` stands behind the title in a lighter tone: the class of a module."""

    title: str
    line: str = ""
    type: str = ""
    room: int = 0  # letters that may take the place of the line

    @property
    def width(self) -> float:
        """Of a box that holds it, in pixels, rounded up so that almost equal boxes are
        equal.
        """
        title = f"{self.title}  {self.type}" if self.type else self.title
        widest = max(
            text_width(title, TITLE_SIZE, bold=True),
            text_width(self.line, LINE_SIZE),
            text_width("0" * self.room, LINE_SIZE),
        )
        return max(
            LEAST,
            -(-(widest + 2 * PAD) // 4) * 4,
        )


class Sums(NamedTuple):
    """What is inside a group."""

    ops: int
    parameters: int
    nbytes: int


class Texts:
    """Makes the texts of one graph; `dtype` is the one that goes without saying."""

    def __init__(
        self, walk: Walk, dtype: str = "", names: labels.OpNames = "variable"
    ) -> None:
        self._names = names
        self._brief = without_dtype(dtype)
        self._graph, self._groups, self._walk = walk.graph, walk.tree, walk
        self._known: dict[Text, Text] = {}
        self.held = held_bytes(walk.graph)
        self._numbers = {
            step.node
            for step in walk.graph.backward
            if len(step.value) == 1 or len(step.arrived) == 1
        }
        self._copies = Counter(cell.record for cell in walk.cells if cell.kind == COPY)
        self.sums = self._all_sums()
        self._boxes: dict[int, Group] = {}

    def cell(self, cell: Cell) -> Text:
        """The text of a cell; equal texts are one object."""
        if cell.kind == OP:
            node = self._graph.nodes[cell.record]
            text = self._op(node)
            return self._known.setdefault(text, text)

        if cell.kind in (LEAF, COPY):
            leaf = self._graph.leaf_of[cell.record]
            copies = self._copies[cell.record] if cell.kind == COPY else 1
            title = labels.leaf_title(leaf, self._path(cell.group), copies)
            text = self._short(title, tensor_line(leaf.tensor), cell.record)
            return self._known.setdefault(text, text)

        if cell.kind == DATA:
            box = self._walk.inputs[cell.record]
            text = self._short(box.title, box.line)
            return self._known.setdefault(text, text)

        root = self._graph.roots[cell.record]
        line = tensor_line(root.tensor) if root.node is not None else "no graph"
        return self._short(labels.root_title(root), line)

    def group(self, number: int) -> Text:
        """The text of a group, by number of the walk: the title that it has in a
        picture.
        """
        groups, old = self._groups, self._walk.groups[number]
        group = groups[old]

        if group.op is not None:
            node, last = (
                self._graph.nodes[group.op],
                self._graph.nodes[groups.members(old)[-1]],
            )
            node = node._replace(assigned=last.assigned or node.assigned)
            return self._op(node)

        sums = self.sums[number]
        words = [plural(sums.ops, "op")]
        if sums.parameters:
            words.append(f"{count_text(sums.parameters)} parameters")

        line = shorten(", ".join(words), CELLS)
        if old == 0:
            return Text(
                shorten(one_line(self._graph.title) or "graph", CELLS),
                line,
            )

        name = one_line(
            labels.group_title(
                self._box(number),
                self._path(self._walk.parent[number]),
            )
        )
        record = groups.graph.scopes[group.scope] if group.scope is not None else None
        kind = one_line(record.type) if record is not None else ""
        if not kind or f" {kind}" not in name:
            return Text(shorten(name, CELLS), line)

        path, _, more = name.partition(f" {kind}")
        return Text(shorten(path, CELLS), line, shorten(f"{kind}{more}", CELLS))

    def _box(self, number: int) -> Group:
        """What a picture with the group closed says of it."""
        box = self._boxes.get(number)
        if box is None:
            groups, old = self._groups, self._walk.groups[number]
            ops, parameters, _ = self.sums[number]
            box = Group(kind_of(groups, old), title(groups, old), (), groups[old].turns)
            box = box._replace(ops=ops, parameters=parameters)
            self._boxes[number] = box
        return box

    def cell_color(self, cell: Cell) -> BoxKind:
        """The colour that a cell has in a picture."""
        if cell.kind == OP:
            return kind_of_node(self._graph.nodes[cell.record])
        return COLORS[cell.kind]

    def group_color(self, number: int) -> BoxKind:
        """The colour that a group has in a picture where it is closed."""
        host = self._groups[self._walk.groups[number]].op
        if host is not None:
            return kind_of_node(self._graph.nodes[host])
        return kind_of_group(self._box(number)) if number else "group"

    def _op(self, node: Node) -> Text:
        path = self._graph.scopes[node.scope].path if node.scope is not None else ""
        title, op = labels.op_title(
            self._graph,
            node,
            path,
            self._names,
        )
        return self._short(
            title, f"{op} {labels.outputs_line(node.outputs)}".strip(), node.id
        )

    def _short(
        self,
        title: str,
        line: str,
        node: int | None = None,
    ) -> Text:
        room = NUMBERS if node in self._numbers else 0
        return Text(
            shorten(title, CELLS),
            shorten(self._brief(line), CELLS),
            room=room,
        )

    def _path(self, group: int) -> str:
        """Path of the innermost module around what is in a group."""
        scope = self._groups.scope(self._walk.groups[group]) if group >= 0 else None
        return self._groups.graph.scopes[scope].path if scope is not None else ""

    def _all_sums(self) -> list[Sums]:
        walk, counted = self._walk, [[0, 0, 0] for _ in self._walk.groups]
        counted_leaves: set[int] = set()
        for cell in walk.cells:
            mine = counted[cell.group]
            if cell.kind == OP:
                mine[0] += 1
                mine[2] += self.held[cell.record]
            elif cell.kind in (LEAF, COPY) and cell.record not in counted_leaves:
                # a copy counts where it stands first
                counted_leaves.add(cell.record)
                leaf = self._graph.leaf_of[cell.record]
                mine[1] += (
                    known_elements(leaf.tensor) if leaf.kind == "parameter" else 0
                )

        for group in range(
            len(walk.groups) - 1,
            0,
            -1,
        ):
            for k in range(3):
                counted[walk.parent[group]][k] += counted[group][k]

        return [Sums(*counts) for counts in counted]


FEW = 3
"""A group of more ops that do more than change a shape has no main ones."""


def main_ops(walk: Walk) -> list[list[int]]:
    """The ops that carry the work of each group, where they are few, in order."""
    working: list[list[int]] = [[] for _ in walk.groups]  # cells
    for number, cell in enumerate(walk.cells):
        if cell.kind == OP and not is_beside(walk.graph.nodes[cell.record].op):
            working[cell.group].append(number)

    for group in range(
        len(walk.groups) - 1,
        0,
        -1,
    ):
        # which says that they are many
        working[walk.parent[group]] += working[group][: FEW + 1]

    mains: list[list[int]] = []
    for old, cells in zip(walk.groups, working):
        host = walk.tree[old].op
        if host is not None:
            # an op with its views: the op does the work
            mains.append([host])
        elif len(cells) <= FEW:
            mains.append([walk.cells[number].record for number in sorted(cells)])
        else:
            mains.append([])

    return mains


CHEVRON = 20.0
"""Room in a closed group for the mark that says that it opens."""


def view(
    graph: Graph,
    dtype: str = "",
    *,
    views: bool = False,
    names: labels.OpNames = "variable",
) -> Pack:
    """Everything that is drawn of a graph. What is open at first is what is not folded
    in it.
    """
    opening = graph.opening
    groups = opening.groups if opening is not None else grouped(graph, views=views)
    is_open = opening.open if opening is not None else range(len(groups))
    walk = Walk(groups.graph, groups)
    texts = Texts(walk, dtype, names)
    cells, titles = (
        [texts.cell(cell) for cell in walk.cells],
        [texts.group(i) for i in range(len(walk.groups))],
    )

    def width(item: int) -> float:
        return cells[item].width if item >= 0 else titles[~item].width + CHEVRON

    sheets = make_sheets(walk, width)
    pack = Pack()
    _tree(pack, groups, walk, is_open)
    _texts(pack, cells, titles, texts)
    _colors(pack, walk, texts)
    _sheets(pack, sheets)
    return pack


def _tree(
    pack: Pack,
    groups: Groups,
    walk: Walk,
    is_open: Container[int],
) -> None:
    kinds, mains = get_args(Kind), main_ops(walk)
    pack.add(
        record=(cell.record for cell in walk.cells),
        kind=(cell.kind for cell in walk.cells),
        scope=(groups[old].scope for old in walk.groups),
        groupKind=(kinds.index(groups[old].kind) for old in walk.groups),
        open=(int(old in is_open) for old in walk.groups),
        mains=chain.from_iterable(mains),
        mainCount=map(len, mains),
        boxData=chain.from_iterable(box.data for box in walk.inputs),
        boxDataCount=(len(box.data) for box in walk.inputs),
        taker=chain.from_iterable(box.nodes for box in walk.inputs),
        takerCount=(len(box.nodes) for box in walk.inputs),
    )


def _texts(
    pack: Pack,
    cells: list[Text],
    titles: list[Text],
    texts: Texts,
) -> None:
    words, table = Table(), Table()
    cell_text, group_text = table.numbers(cells), table.numbers(titles)
    title, line, kind = zip(*(words.numbers(text[:3]) for text in table.rows))
    ops, parameters, nbytes = zip(*texts.sums)
    pack.put(words=words.rows)
    pack.add(
        title=title, line=line, type=kind, cellText=cell_text, groupText=group_text
    )
    pack.add(groupOps=ops, groupParameters=parameters, groupBytes=nbytes)


def _colors(pack: Pack, walk: Walk, texts: Texts) -> None:
    names = Table()
    pack.add(
        cellColor=names.numbers(map(texts.cell_color, walk.cells)),
        groupColor=names.numbers(map(texts.group_color, range(len(walk.groups)))),
    )
    pack.put(colors=names.rows)


def _sheets(pack: Pack, sheets: Sheets) -> None:
    """Sheets one after another; the children of a group follow from the number of cells
    and groups on its sheet.
    """
    laid, flat = sheets.laid, chain.from_iterable
    shapes = [sheet.shape for sheet in laid]
    edges = [edge for shape in shapes for edge in shape.edges]
    lines = [line for sheet in laid for line in sheet.points]
    pack.add(
        sheet=sheets.of,
        ports=flat(sheets.ports),
        children=(len(shape.widths) for shape in shapes),
        into=map(attrgetter("into"), shapes),
        out=map(attrgetter("out"), shapes),
        edges=(len(shape.edges) for shape in shapes),
        width=map(attrgetter("width"), laid),
        height=map(attrgetter("height"), laid),
        boxWidth=flat(map(attrgetter("widths"), shapes)),
        isGroup=map(
            int,
            flat(map(attrgetter("is_group"), shapes)),
        ),
        x=flat(map(attrgetter("x"), laid)),
        y=flat(map(attrgetter("y"), laid)),
        above=map(itemgetter(0), edges),
        below=map(itemgetter(1), edges),
        points=(len(line) // 2 for line in lines),
        pointX=flat(line[::2] for line in lines),
        pointY=flat(line[1::2] for line in lines),
    )
