"""A smaller Graph for a first look: modules, repeats and loops as single boxes, chosen so that the picture fits a page.

`fold` chooses the view: which module calls are open (their ops are shown) and closed (one box). Whatever is joined, the boxes
never form a cycle other than a box with itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from gradviz.errors import FormatError
from gradviz.fold.first_view import FirstView, Page
from gradviz.fold.partition import Partition
from gradviz.fold.views import Views, Wanted
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


# What to ask for to see more of a folded graph: a depth, and a module to open.


class Deeper(NamedTuple):
    """A depth that opens the largest closed module and leaves open what is open; the path of the largest closed module."""

    depth: int | None = None  # None when a depth opens nothing more
    path: str | None = None  # None when no closed module has a path of its own, or only loops are closed


class _Closed(NamedTuple):
    """A box that stands for calls, by the first of them. `later`: like another one drawn, so that no depth opens it."""

    later: bool
    ops: int
    call: int
    looped: bool


def deeper(folded: Graph) -> Deeper:
    """Where a reader of a folded graph can look next. Takes time proportional to the graph that was folded.

    The largest module is the one with the most ops. Those that no depth opens come last: repeats, and alike modules of which one is
    open or drawn alone.
    """
    if folded.original is None:
        return Deeper()
    views = Views(folded.original)
    tree = views.tree
    closed = sorted(_closed(folded, views), key=lambda one: (one.later, -one.ops, one.call))
    opened = {tree.depth[scope] for node in folded.nodes for scope in tree.around(node.scope)}
    depths = [max(tree.depth[one.call], *opened, 0) + 1 for one in closed if not one.later]
    paths = (tree.scopes[one.call].path for one in closed if not one.looped)
    return Deeper(depths[0] if depths else None, next((path for path in paths if path), None))


def _closed(folded: Graph, views: Views) -> Iterator[_Closed]:
    for node in folded.nodes:
        if node.group is not None and node.group.kind not in ("chain", "more"):
            calls = _calls(views, node.group.nodes, node.scope)
            if calls:
                looped = node.group.count > 1 and node.group.kind != "alike"
                yield _Closed(views.is_later(min(calls)), node.group.ops, min(calls), looped)


def _calls(views: Views, nodes: tuple[int, ...], parent: int | None) -> set[int]:
    """The calls made directly inside `parent` that these nodes lie in; none for a loop of single ops."""
    tree = views.tree
    scopes = {views.graph.nodes[node].scope for node in nodes}
    return {one for scope in scopes for one in tree.around(scope) if tree.scopes[one].parent == parent}
