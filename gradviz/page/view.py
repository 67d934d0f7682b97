"""The block that is read first: the tree of groups, their sheets, and what stands in
the boxes: a title and a line for each.

Names are given relative to the group around, so that groups of one structure read alike
and share one layout.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import NamedTuple, get_args

from gradviz.draw.kinds import kind_of_group, kind_of_node
from gradviz.draw.palette import BoxKind
from gradviz.draw.summary import without_dtype
from gradviz.draw.typesetting import shorten, text_width
from gradviz.fold.groups import Groups, Kind, Section
from gradviz.fold.titles import group_of, op_of
from gradviz.graph import Node
from gradviz.graph.amounts import parameter_elements
from gradviz.graph.origins import module_path
from gradviz.page.inputs import FEW, working_ops
from gradviz.page.pack import Pack, Table
from gradviz.page.sheets import (
    COPY,
    DATA,
    LEAF,
    OP,
    Cell,
    Item,
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


class Text(NamedTuple):
    """`type` stands behind the title in a lighter tone: the class of a module."""

    title: str
    line: str = ""
    type: str = ""
    color: BoxKind = "group"  # that a picture gives the box where it is closed
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
        return max(LEAST, -(-(widest + 2 * PAD) // 4) * 4)


class Texts:
    """Makes the texts of one graph; `dtype` is the one that goes without saying, `held`
    the bytes that each node holds.
    """

    def __init__(
        self,
        walk: Walk,
        dtype: str = "",
        names: labels.OpNames = "variable",
        held: Sequence[int] = (),
    ) -> None:
        self._names = names
        self._brief = without_dtype(dtype)
        self._graph, self._walk = walk.graph, walk
        self._numbers = {
            step.node
            for step in walk.graph.backward
            if len(step.value) == 1 or len(step.arrived) == 1
        }
        self.sums = self._all_sums(held or [0] * len(walk.graph.nodes))

    def cell(self, cell: Cell) -> Text:
        """The text of a cell."""
        if cell.kind == OP:
            return self._op(self._graph.nodes[cell.record])

        if cell.kind in (LEAF, COPY):
            leaf = self._graph.leaf_of[cell.record]
            title = labels.leaf_title(leaf, self._path(cell.group))
            return self._short(title, tensor_line(leaf.tensor), "leaf", cell.record)

        if cell.kind == DATA:
            box = self._walk.inputs[cell.record]
            return self._short(box.title, box.line, "input")

        root = self._graph.roots[cell.record]
        line = tensor_line(root.tensor) if root.node is not None else "no graph"
        return self._short(labels.root_title(root), line, "output")

    def group(self, group: Section) -> Text:
        """The text of a group: the title that it has in a picture."""
        if group.op is not None:
            return self._op(op_of(group))

        ops, parameters, nbytes = self.sums[group]
        box = group_of(group)._replace(ops=ops, parameters=parameters, nbytes=nbytes)
        words = [plural(box.ops, "op")]
        if group.kind == "statement" and box.code:
            words = [box.code]
        if box.parameters and box.owns:
            words.append(f"{count_text(box.parameters)} parameters")
        line = shorten(", ".join(words), CELLS)
        if group.parent is None:
            return Text(shorten(one_line(self._graph.title) or "graph", CELLS), line)

        path = self._path(group.parent)
        name, kind = one_line(labels.group_title(box, path)), ""
        if group.record is not None:
            module = one_line(group.record.type)
            before, separator, after = name.partition(f" {module}")
            if module and separator:
                name, kind = before, f"{module}{after}"
        return Text(
            shorten(name, CELLS), line, shorten(kind, CELLS), kind_of_group(box)
        )

    def _op(self, node: Node) -> Text:
        path = module_path(self._graph.scopes, node.scope)
        title, op = labels.op_title(self._graph, node, path, names=self._names)
        line = f"{op} {labels.outputs_line(node.outputs)}".strip()
        return self._short(title, line, kind_of_node(node), node.id)

    def _short(
        self, title: str, line: str, color: BoxKind, node: int | None = None
    ) -> Text:
        title, line = shorten(title, CELLS), shorten(self._brief(line), CELLS)
        room = NUMBERS if node in self._numbers else 0
        return Text(title, line, color=color, room=room)

    def _path(self, group: Section) -> str:
        """Path of the innermost module around what is in a group."""
        return module_path(self._graph.scopes, group.scope_around)

    def _all_sums(self, held: Sequence[int]) -> dict[Section, list[int]]:
        """Ops, elements of parameters and bytes inside each group."""
        walk, sums = self._walk, {group: [0, 0, 0] for group in self._walk.groups}
        elements = parameter_elements(self._graph)
        for cell in walk.cells:
            if cell.kind == OP:
                sums[cell.group][0] += 1
                sums[cell.group][2] += held[cell.record]
            elif cell.kind in (LEAF, COPY):
                # a copy counts where it stands first
                sums[cell.group][1] += elements.pop(cell.record, 0)

        for group in reversed(walk.groups):
            # inner groups come later, so their sums are complete
            if group.parent is not None:
                pairs = zip(sums[group.parent], sums[group])
                sums[group.parent] = [outer + inner for outer, inner in pairs]
        return sums


def main_ops(walk: Walk) -> Iterator[list[int]]:
    """The ops that carry the work of each group, where they are few, in order."""
    working = working_ops(walk.tree)
    for group in walk.groups:
        if group.op is not None:
            # an op with its views: the op does the work
            yield [group.op]
        else:
            yield working[group] if len(working[group]) <= FEW else []


CHEVRON = 20.0
"""Room in a closed group for the mark that says that it opens."""


def view(
    groups: Groups,
    is_open: Container[Section],
    dtype: str,
    names: labels.OpNames,
    held: Sequence[int],
) -> Pack:
    """Everything that is drawn of a graph, with these groups open at first. `dtype` is
    the one that goes without saying, `held` the bytes that each node holds.
    """
    walk = Walk(groups)
    texts = Texts(walk, dtype, names, held)
    table, words, pack = Table(), Table(), Pack()
    cell_text = table.numbers(map(texts.cell, walk.cells))
    group_text = table.numbers(map(texts.group, walk.groups))
    title, line, kind, color = zip(*(words.numbers(text[:4]) for text in table.rows))
    ops, parameters, nbytes = zip(*texts.sums.values())
    pack.put(words=words.rows)
    pack.add(title=title, line=line, type=kind, color=color)
    pack.add(cellText=cell_text, groupText=group_text)
    pack.add(groupOps=ops, groupParameters=parameters, groupBytes=nbytes)
    _tree(pack, walk, is_open)

    widths: list[float] = [text.width for text in table.rows]

    of_group = dict(zip(walk.groups, group_text))

    def width(item: Item) -> float:
        if isinstance(item, Section):
            return widths[of_group[item]] + CHEVRON
        return widths[cell_text[item]]

    _sheets(pack, make_sheets(walk, width))
    return pack


def _tree(pack: Pack, walk: Walk, is_open: Container[Section]) -> None:
    kinds, mains = get_args(Kind), list(main_ops(walk))
    number = {group: ~i for i, group in enumerate(walk.groups)}
    items = chain.from_iterable(walk.items.values())
    pack.add(
        record=(cell.record for cell in walk.cells),
        kind=(cell.kind for cell in walk.cells),
        item=(number[i] if isinstance(i, Section) else i for i in items),
        scope=(group.scope for group in walk.groups),
        groupKind=(kinds.index(group.kind) for group in walk.groups),
        open=(int(group in is_open) for group in walk.groups),
        mains=chain.from_iterable(mains),
        mainCount=map(len, mains),
        boxData=chain.from_iterable(box.data for box in walk.inputs),
        boxDataCount=(len(box.data) for box in walk.inputs),
        taker=chain.from_iterable(box.nodes for box in walk.inputs),
        takerCount=(len(box.nodes) for box in walk.inputs),
    )


def _sheets(pack: Pack, sheets: Sheets) -> None:
    """Sheets one after another."""
    shapes, flat = sheets.shapes, chain.from_iterable
    middles, (points, starts), sizes = sheets.placed
    edges = [edge for shape in shapes for edge in shape.edges]
    pack.add(
        sheet=sheets.of,
        ports=flat(sheets.ports),
        children=(len(shape.widths) for shape in shapes),
        into=map(attrgetter("into"), shapes),
        out=map(attrgetter("out"), shapes),
        edges=(len(shape.edges) for shape in shapes),
        width=sizes[:, 0],
        height=sizes[:, 1],
        boxWidth=flat(map(attrgetter("widths"), shapes)),
        x=middles[:, 0],
        y=middles[:, 1],
        above=map(itemgetter(0), edges),
        below=map(itemgetter(1), edges),
        firstPoint=starts[:-1],
        lastPoint=starts[1:] - 1,
        pointX=points[:, 0],
        pointY=points[:, 1],
    )
