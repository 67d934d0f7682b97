"""The block that is read first: the tree of groups, their sheets, and what stands in the boxes: a title and a line for each.

Names are given relative to the group around, so that groups of one structure read alike and share one layout.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, get_args

from gradviz.draw.typesetting import shorten, text_width
from gradviz.graph import Graph
from gradviz.graph.amounts import held_bytes, known_elements
from gradviz.page.groups import Groups, Kind, grouped, opened
from gradviz.page.pack import Pack, Table
from gradviz.page.sheets import COPY, LEAF, OP, Cell, Sheets, Walk, make_sheets
from gradviz.report import labels
from gradviz.wording import count_text, one_line, plural, tensor_line

TITLE_SIZE, LINE_SIZE = 11.0, 10.0
CELLS = 40
"""Longer lines are shortened in the middle; the panel has them in full."""
PAD = 10.0
LEAST = 56.0


class Text(NamedTuple):
    """`type` stands behind the title in a lighter tone: the class of a module."""

    title: str
    line: str = ""
    type: str = ""

    @property
    def width(self) -> float:
        """Of a box that holds it, in pixels, rounded up so that almost equal boxes are equal."""
        title = f"{self.title}  {self.type}" if self.type else self.title
        widest = max(text_width(title, TITLE_SIZE), text_width(self.line, LINE_SIZE))
        return max(LEAST, -(-(widest + 2 * PAD) // 4) * 4)


class Sums(NamedTuple):
    """What is inside a group."""

    ops: int
    parameters: int
    nbytes: int


class Texts:
    """Makes the texts of one graph."""

    def __init__(self, walk: Walk) -> None:
        self._graph, self._groups, self._walk = walk.graph, walk.tree, walk
        self._known: dict[object, Text] = {}
        self.held = held_bytes(walk.graph)
        self._copies = Counter(cell.record for cell in walk.cells if cell.kind == COPY)
        self.sums = self._all_sums()

    def cell(self, cell: Cell) -> Text:
        """The text of a cell; equal texts are one object."""
        if cell.kind == OP:
            node = self._graph.nodes[cell.record]
            key: object = (node.op, node.outputs)
            if key not in self._known:
                line = labels.outputs_line(node.outputs) if node.outputs else ""
                self._known[key] = _short(labels.op_name(node), line)
            return self._known[key]
        if cell.kind in (LEAF, COPY):
            leaf = self._graph.leaf_of[cell.record]
            around = self._path(cell.group)
            names = labels.names_text(_relative(name, around) for name in leaf.names)
            title = names or f"unnamed {leaf.kind}"
            if cell.kind == COPY:
                title += f" {labels.again(self._copies[cell.record])}"
            text = _short(title, tensor_line(leaf.tensor))
            return self._known.setdefault(text, text)
        root = self._graph.roots[cell.record]
        line = tensor_line(root.tensor) if root.node is not None else "no graph"
        return _short(labels.root_title(root), line)

    def group(self, at: int) -> Text:
        """The text of a group, by number of the walk."""
        old = self._walk.groups[at]
        groups = self._groups
        box, scope, part = groups[old].box, groups[old].scope, groups[old].part
        kind = ""
        if box is not None:
            title = _relative(labels.group_title(box), self._path(self._walk.parent[at]))
        elif scope is not None:
            record = self._graph.scopes[scope]
            title = one_line(_relative(record.path, self._path(self._walk.parent[at])))
            kind = one_line(record.type)
            if record.call > 1:
                kind += f" (call {count_text(record.call)})"
            if not title:
                title, kind = kind or "module", ""
        elif old == 0:
            title = one_line(self._graph.title) or "graph"
        else:
            title = self._of_segment(at)
        if part:
            title += f" (part {part})"
        sums = self.sums[at]
        words = [plural(sums.ops, "op")]
        if sums.parameters:
            words.append(f"{count_text(sums.parameters)} parameters")
        return Text(shorten(title, CELLS + 12), shorten(", ".join(words), CELLS), shorten(kind, 30))

    def _of_segment(self, at: int) -> str:
        ends = [self._name(item) for item in (self._first_item(at), self._walk.items[at][-1])]
        return f"{shorten(ends[0], 24)} … {shorten(ends[1], 24)}"

    def _first_item(self, at: int) -> int:
        """The first item that is no leaf."""
        cells = self._walk.cells
        return next(item for item in self._walk.items[at] if item < 0 or cells[item].kind == OP)

    def _name(self, item: int) -> str:
        """A short name of an op or a group: of segments, the one they begin with."""
        while item < 0 and self._groups[self._walk.groups[~item]].kind == "segment":
            item = self._first_item(~item)
        if item >= 0:
            return self.cell(self._walk.cells[item]).title
        scope = self._groups[self._walk.groups[~item]].scope
        call = self._graph.scopes[scope].call if scope is not None else 1
        return self.group(~item).title + (f" (call {count_text(call)})" if call > 1 else "")

    def _path(self, at: int) -> str:
        """Path of the innermost module around what is in a group."""
        while at >= 0:
            scope = self._groups[self._walk.groups[at]].scope
            if scope is not None:
                return self._graph.scopes[scope].path
            at = self._walk.parent[at]
        return ""

    def _all_sums(self) -> list[Sums]:
        walk, counted = self._walk, [[0, 0, 0] for _ in self._walk.groups]
        counted_leaves: set[int] = set()
        for cell in walk.cells:
            mine = counted[cell.group]
            if cell.kind == OP:
                mine[0] += 1
                mine[2] += self.held[cell.record]
            elif cell.kind in (LEAF, COPY) and cell.record not in counted_leaves:  # a copy counts where it stands first
                counted_leaves.add(cell.record)
                leaf = self._graph.leaf_of[cell.record]
                mine[1] += known_elements(leaf.tensor) if leaf.kind == "parameter" else 0
        for at in range(len(walk.groups) - 1, 0, -1):
            for k in range(3):
                counted[walk.parent[at]][k] += counted[at][k]
        return [Sums(*counts) for counts in counted]


def _short(title: str, line: str) -> Text:
    return Text(shorten(title, CELLS), shorten(line, CELLS))


def _relative(path: str, around: str) -> str:
    """A path as it is called inside another."""
    return (path.removeprefix(f"{around}.") or path) if around else path


CHEVRON = 20.0
"""Room in a closed group for the mark that says that it opens."""


def view(graph: Graph, shown: Graph) -> Pack:
    """Everything that is drawn of `graph`; what is open at first is what `shown`, a graph folded from it, does not fold."""
    groups = grouped(graph, shown)
    made = Walk(graph, groups)
    texts = Texts(made)
    cells, titles = [texts.cell(cell) for cell in made.cells], [texts.group(i) for i in range(len(made.groups))]

    def width(item: int) -> float:
        return cells[item].width if item >= 0 else titles[~item].width + CHEVRON

    sheets = make_sheets(made, width)
    pack = Pack()
    _tree(pack, groups, made, opened(groups, graph, shown))
    _texts(pack, cells, titles, texts)
    _sheets(pack, sheets)
    return pack


def _tree(pack: Pack, groups: Groups, made: Walk, is_open: list[bool]) -> None:
    kinds = get_args(Kind)
    pack.add(
        record=(cell.record for cell in made.cells),
        kind=(cell.kind for cell in made.cells),
        scope=(groups[old].scope for old in made.groups),
        groupKind=(kinds.index(groups[old].kind) for old in made.groups),
        open=(int(is_open[old]) for old in made.groups),
    )


def _texts(pack: Pack, cells: list[Text], titles: list[Text], texts: Texts) -> None:
    words, table = Table(), Table()
    cell_text, group_text = table.numbers(cells), table.numbers(titles)
    title, line, kind = zip(*(words.numbers(text) for text in table.rows))
    ops, parameters, nbytes = zip(*texts.sums)
    pack.put(words=words.rows)
    pack.add(title=title, line=line, type=kind, cellText=cell_text, groupText=group_text)
    pack.add(groupOps=ops, groupParameters=parameters, groupBytes=nbytes)


def _sheets(pack: Pack, sheets: Sheets) -> None:
    """Sheets one after another; the children of a group follow from the number of cells and groups on its sheet."""
    laid = sheets.laid
    shapes = [sheet.shape for sheet in laid]
    lines = [line for sheet in laid for line in sheet.points]
    pack.add(
        sheet=sheets.of,
        ports=(cell for ports in sheets.ports for cell in ports),
        children=(len(shape.widths) for shape in shapes),
        into=(shape.into for shape in shapes),
        out=(shape.out for shape in shapes),
        edges=(len(shape.edges) for shape in shapes),
        width=(sheet.width for sheet in laid),
        height=(sheet.height for sheet in laid),
        boxWidth=(w for shape in shapes for w in shape.widths),
        isGroup=(int(g) for shape in shapes for g in shape.is_group),
        x=(v for sheet in laid for v in sheet.x),
        y=(v for sheet in laid for v in sheet.y),
        above=(a for shape in shapes for a, _ in shape.edges),
        below=(b for shape in shapes for _, b in shape.edges),
        points=(len(line) // 2 for line in lines),
        pointX=(v for line in lines for v in line[::2]),
        pointY=(v for line in lines for v in line[1::2]),
    )
