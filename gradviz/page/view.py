"""The block that is read first: the tree of groups, their sheets, and what stands in the boxes."""

from __future__ import annotations

from itertools import chain

from gradviz.graph import Graph
from gradviz.page.cells import Walk, place_leaves, walk
from gradviz.page.groups import Groups, group, opened
from gradviz.page.order import cut_into_segments, ops_in_order
from gradviz.page.pack import Pack, Table
from gradviz.page.sheets import Sheets, make_sheets
from gradviz.page.texts import Text, Texts

CHEVRON = 20.0
"""Room in a closed group for the mark that says that it opens."""


def view(graph: Graph, shown: Graph) -> Pack:
    """Everything that is drawn of `graph`; what is open at first is what `shown`, a graph folded from it, does not fold."""
    order = ops_in_order(graph)
    groups = group(graph, shown, order)
    cut_into_segments(groups, graph, order)
    leaves = place_leaves(groups, graph)
    made = walk(graph, groups, leaves)
    texts = Texts(graph, groups, made)
    cells, titles = [texts.cell(cell) for cell in made.cells], [texts.group(i) for i in range(len(made.groups))]

    def width(item: int) -> float:
        return cells[item].width if item >= 0 else titles[~item].width + CHEVRON

    sheets = make_sheets(graph, groups, leaves, made, width)
    pack = Pack()
    _tree(pack, groups, made, opened(groups, graph, shown))
    _texts(pack, cells, titles, texts)
    _sheets(pack, sheets)
    return pack


def _tree(pack: Pack, groups: Groups, made: Walk, is_open: list[bool]) -> None:
    pack.add("record", [cell.record for cell in made.cells])
    pack.add("kind", [cell.kind for cell in made.cells])
    pack.add("scope", [-1 if (scope := groups.scope[old]) is None else scope for old in made.groups])
    kinds = ("page", "module", "joined", "segment")
    pack.add("groupKind", [kinds.index(groups.kind[old]) for old in made.groups])
    pack.add("open", [int(is_open[old]) for old in made.groups])


def _texts(pack: Pack, cells: list[Text], titles: list[Text], texts: Texts) -> None:
    words, table = Table(), Table()
    cell_text, group_text = table.numbers(cells), table.numbers(titles)
    numbers = [words.numbers(text) for text in table.rows]
    pack.put("words", words.rows)
    for k, name in enumerate(("title", "line", "type")):
        pack.add(name, [row[k] for row in numbers])
    pack.add("cellText", cell_text)
    pack.add("groupText", group_text)
    for k, name in enumerate(("groupOps", "groupParameters", "groupBytes")):
        pack.add(name, [sums[k] for sums in texts.sums])


def _sheets(pack: Pack, sheets: Sheets) -> None:
    """Sheets one after another; the children of a group follow from the number of cells and groups on its sheet."""
    laid = sheets.laid
    pack.add("sheet", sheets.of)
    pack.add("ports", list(chain.from_iterable(sheets.ports)))
    shapes = [one.shape for one in laid]
    pack.add("children", [len(shape.widths) for shape in shapes])
    pack.add("into", [shape.into for shape in shapes])
    pack.add("out", [shape.out for shape in shapes])
    pack.add("edges", [len(shape.edges) for shape in shapes])
    pack.add("width", [one.width for one in laid])
    pack.add("height", [one.height for one in laid])
    pack.add("boxWidth", [w for shape in shapes for w in shape.widths])
    pack.add("isGroup", [int(g) for shape in shapes for g in shape.is_group])
    pack.add("x", [v for one in laid for v in one.x])
    pack.add("y", [v for one in laid for v in one.y])
    pack.add("above", [a for shape in shapes for a, _ in shape.edges])
    pack.add("below", [b for shape in shapes for _, b in shape.edges])
    lines = [line for one in laid for line in one.points]
    pack.add("points", [len(line) // 2 for line in lines])
    pack.add("pointX", [v for line in lines for v in line[::2]])
    pack.add("pointY", [v for line in lines for v in line[1::2]])
