"""A smaller Graph for a first look: modules, repeats and loops as single boxes, found so that the picture fits a screen.

`fold` chooses the view: which module calls are open (their ops are shown) and closed (one box). Whatever is joined, the boxes
never form a cycle other than a box with itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from gradviz.analysis.partition import Partition
from gradviz.analysis.rows import rows
from gradviz.analysis.stretches import join_stretches
from gradviz.analysis.views import Views, Wanted
from gradviz.errors import FormatError
from gradviz.graph import Graph
from gradviz.stages import Stage

Depth = Literal["auto", "all"] | int
LIMIT = 100
"""Boxes that a first picture may have: about what can be read."""
ROWS = 18.0
"""Rows that a first picture may have, borders of frames counted: about 2,000 pixels, two screens at normal size."""
SMALL = 50
"""Nodes of a graph, or of a focused module, that is drawn in full however tall that is: the reader wants all of it."""
SPARE = 4 / 3
"""By how much a view may be over when all that is closed already is one box: better than joining what does not belong together."""
TRIES = 4
"""Single modules that are tried for opening when a whole level more is too much."""


def fold(
    graph: Graph,
    *,
    depth: Depth = "auto",
    focus: str | None = None,
    expand: Iterable[str] = (),
    limit: int = LIMIT,
    height: float = ROWS,
) -> Graph:
    """The graph with module calls, repeats and loops as single boxes. Folding a folded graph folds its original anew.

    Args:
        depth: how many levels of modules to show: 1 draws each outermost module as one box. "all" folds nothing;
            "auto" shows as much as fits into `limit` boxes and `height` rows, and a graph of up to 50 nodes in full.
        focus: path of one module to open; everything outside it stays closed.
        expand: paths of modules to open whatever `depth` says.
        limit: how many boxes "auto" may use.
        height: how many rows "auto" may use, counted along the longest way from a leaf to an output.

    Raises FormatError for a depth below 1 and for a path that no recorded module has.
    """
    with Stage("fold"):
        return _fold(graph.original or graph, depth, focus, tuple(expand), limit, height)


def _fold(graph: Graph, depth: Depth, focus: str | None, expand: tuple[str, ...], limit: int, height: float) -> Graph:
    if isinstance(depth, int) and depth < 1:
        raise FormatError(f"depth cannot be {depth}: 1 draws each outermost module as one box, 'all' draws every op")
    views = Views(graph)
    views.check([*([focus] if focus else []), *expand])
    if depth == "auto":
        return _Fit(views, focus, limit, height).folded(expand)
    if depth == "all" and focus is None and not expand:
        return graph
    if depth == "all":
        return _folded(views.view(Wanted(level=views.deepest, focus=focus, expand=expand, every=True, join=False)))
    return _folded(views.view(Wanted(level=depth, focus=focus, expand=expand)))


def _folded(partition: Partition) -> Graph:
    partition.absorb_parameters()
    return partition.folded()


class _Fit:
    """Finds the most detailed view that fits."""

    def __init__(self, views: Views, focus: str | None, limit: int, height: float) -> None:
        self._views, self._focus, self._limit, self._height = views, focus, limit, height
        self._fitting: tuple[Wanted, Partition] | None = None  # the view that fitted last: views are made from scratch

    def folded(self, expand: tuple[str, ...]) -> Graph:
        """The view that fits, and in it what is to be expanded."""
        if self._focus is None and self._is_small():
            return self._views.graph
        in_full = self._focus is not None and self._nodes_in_focus() <= min(SMALL, self._limit)
        wanted = Wanted(level=self._views.deepest, focus=self._focus, every=True) if in_full else self._wanted()
        partition = self._view(wanted)
        is_over = not in_full and self._is_over(partition, SPARE)
        if expand:
            partition = self._view(replace(wanted, expand=expand))
            partition.absorb_parameters()
        if is_over:
            join_stretches(partition, int(self._height), self._views.inside(expand))
        return _folded(partition)

    def _is_small(self) -> bool:
        graph = self._views.graph
        return len(graph.nodes) <= min(SMALL, self._limit) or not self._is_over(Partition(graph))

    def _wanted(self) -> Wanted:
        deepest = self._views.deepest
        found = Wanted(level=1, focus=self._focus, ops=False)
        further = [replace(found, level=level) for level in range(2, deepest)]
        for wanted in (*further, replace(found, level=deepest, ops=True)):
            if not self._fits(wanted):
                return wanted if self._is_bare(found) else self._with_more(found)
            found = wanted
        return found

    def _nodes_in_focus(self) -> int:
        tree = self._views.tree
        return sum(len(tree.members[scope]) for scope in tree.named(self._focus or ""))

    def _with_more(self, wanted: Wanted) -> Wanted:
        """A level more where there is room for it: single modules that call others, in the order they ran."""
        for scope in self._views.next_inside(wanted)[:TRIES]:
            more = replace(wanted, also=wanted.also | {scope})
            if self._fits(more):
                wanted = more
        return wanted

    def _view(self, wanted: Wanted) -> Partition:
        if self._fitting is not None and self._fitting[0] == wanted:
            return self._fitting[1]
        return self._views.view(wanted)

    def _fits(self, wanted: Wanted) -> bool:
        partition = self._view(wanted)
        if self._is_over(partition):
            return False
        self._fitting = wanted, partition
        return True

    def _is_over(self, partition: Partition, spare: float = 1.0) -> bool:
        partition.absorb_parameters()
        most, height = self._limit * spare, self._height * spare
        return partition.size() > most or rows(partition, self._views.tree) > height

    def _is_bare(self, wanted: Wanted) -> bool:
        """Whether a view shows nothing but one module and a few ops around it."""
        parts = self._view(wanted).parts.values()
        return len(parts) < 2 and all(part.count == 1 for part in parts)
