"""A smaller Graph for a first look: modules, repeats and loops as single boxes, chosen so that the picture fits a page.

`fold` chooses the view: which module calls are open (their ops are shown) and closed (one box). Whatever is joined, the boxes
never form a cycle other than a box with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal

from gradviz.analysis.first_view import FirstView, Page
from gradviz.analysis.partition import Partition
from gradviz.analysis.views import Views, Wanted
from gradviz.errors import FormatError
from gradviz.graph import Graph
from gradviz.stages import Stage

Depth = Literal["auto", "all"] | int
LIMIT = 100
"""Boxes that a first picture may have: about what can be read."""
ROWS = 18.0
"""Rows that a first picture may have, borders of frames counted: about 2,000 pixels, two screens at normal size."""


def fold(
    graph: Graph,
    *,
    depth: Depth = "auto",
    focus: str | None = None,
    expand: Iterable[str] = (),
    limit: int = LIMIT,
    height: float = ROWS,
    holds: Callable[[Graph], bool] | None = None,
) -> Graph:
    """The graph with module calls, repeats and loops as single boxes. Folding a folded graph folds its original anew.

    Args:
        depth: how many levels of modules to show: 1 draws each outermost module as one box. "all" folds nothing;
            "auto" shows as much as fits into `limit` boxes and `height` rows, and a graph of up to 50 nodes in full.
            It opens the heaviest kind of module first.
        focus: path of one module to open; everything outside it stays closed.
        expand: paths of modules to open whatever `depth` says.
        limit: how many boxes "auto" may use.
        height: how many rows "auto" may use, counted along the longest way from a leaf to an output.
        holds: whether a page holds the picture of a folded graph. "auto" folds until it does, small graphs too.

    Raises FormatError for a depth below 1 and for a path that no recorded module has.
    """
    with Stage("fold"):
        whole = graph.original or graph
        found = _fold(whole, depth, focus, tuple(expand), Page(limit, height, holds))
        return found if found is whole or found.original is whole else replace(found, original=whole)


def _fold(graph: Graph, depth: Depth, focus: str | None, expand: tuple[str, ...], page: Page) -> Graph:
    if isinstance(depth, int) and depth < 1:
        raise FormatError(f"depth cannot be {depth}: 1 draws each outermost module as one box, 'all' draws every op")
    views = Views(graph)
    views.check([*([focus] if focus else []), *expand])
    if depth == "auto":
        return FirstView(views, focus, page, expand).folded()
    if depth == "all" and focus is None and not expand:
        return graph
    if depth == "all":
        return _folded(views.view(Wanted(level=views.deepest, focus=focus, expand=expand, every=True, join=False)))
    return _folded(views.view(Wanted(level=depth, focus=focus, expand=expand)))


def _folded(partition: Partition) -> Graph:
    partition.absorb_parameters()
    return partition.folded()
