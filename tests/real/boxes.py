"""The boxes that a picture shows of a graph, and those that the page shows at first: each with its title and the ops in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gradviz.draw.options import Options
from gradviz.draw.typesetting import shorten
from gradviz.fold.folding import Folding
from gradviz.fold.grouping import grouped
from gradviz.graph import Graph
from gradviz.graph.origins import module_path
from gradviz.page.sheets import OP, Walk
from gradviz.page.view import CELLS, Texts
from gradviz.report import labels
from tests.drawn import shown

Box = tuple[str, tuple[int, ...]]


def differences(graph: Graph) -> list[str]:
    """Titles of boxes that only one of them shows."""
    folding = shown(graph, Options())
    picture, page = Counter(_of_picture(folding)), Counter(_of_page(folding))
    return [
        f"{who}: {title}" for who, some in (("picture", picture - page), ("page", page - picture)) for title, _ in some
    ]


def _of_picture(folding: Folding) -> Iterator[Box]:
    graph = folding.graph
    for node, inside in zip(folding.boxes, folding.inside):
        ops = tuple(sorted(member for member in inside if member not in graph.leaf_of))
        if ops:
            around = module_path(graph.scopes, node.scope)
            yield shorten(labels.op_title(graph, node, around, names="variable").name, CELLS), ops


def _of_page(folding: Folding) -> Iterator[Box]:
    groups = folding.opening.groups if folding.opening is not None else grouped(folding.graph)
    is_open = folding.opening.open if folding.opening is not None else set(groups)
    walk = Walk(groups)
    texts = Texts(walk)
    for group in walk.groups:
        if group not in is_open and (group.parent is None or group.parent in is_open):
            text = texts.group(group)
            yield " ".join(filter(None, (text.title, text.type))), tuple(sorted(group.nodes))
    for cell in walk.cells:
        if cell.kind == OP and cell.group in is_open:
            yield texts.cell(cell).title, (cell.record,)
