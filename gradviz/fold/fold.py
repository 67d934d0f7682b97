"""A smaller Graph for a first look: modules, repeats and loops as single boxes, chosen so that the picture fits a page.

`fold` chooses the view: which module calls are open (their ops are shown) and closed (one box). Whatever is joined, the boxes
never form a cycle other than a box with itself.

A first view begins with all module calls closed. The heaviest kind of module is opened first, in the first of its calls, then what
is the heaviest of the rest, as long as the page holds it. What does not fit even when closed is joined further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Literal, NamedTuple

from gradviz.errors import FormatError
from gradviz.fold.ops import join_leaves, join_segments
from gradviz.fold.partition import Partition, in_order
from gradviz.fold.views import Opening, Views, Wanted
from gradviz.graph import Graph
from gradviz.graph.origins import ScopeTree
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
        folded = _fold(whole, depth, focus, tuple(expand), Page(limit, height, holds))
        return folded if folded is whole or folded.original is whole else replace(folded, original=whole)


def _fold(graph: Graph, depth: Depth, focus: str | None, expand: tuple[str, ...], page: Page) -> Graph:
    if isinstance(depth, int) and depth < 1:
        raise FormatError(f"depth cannot be {depth}: 1 draws each outermost module as one box, 'all' draws every op")
    views = Views(graph)
    views.check([*([focus] if focus else []), *expand])
    if depth == "auto":
        return FirstView(views, focus, page, expand).folded()
    every = depth == "all"
    if every and focus is None and not expand:
        return graph
    level = depth if isinstance(depth, int) else views.deepest
    view = views.view(Wanted(level=level, focus=focus, expand=expand, every=every, join=not every))
    view.absorb_parameters()
    return view.folded()


# -- the first view -----------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """What to join of a view, whatever the graph: how many segments to leave (None: all that there is), across modules or inside
    each, and what to do with leaves."""

    segments: int | None
    across: bool = False
    shared: bool = True  # parameters that several boxes use are drawn inside the first of them
    few_leaves: bool = False


_STEPS = (
    _Step(12),
    _Step(12, few_leaves=True),
    _Step(12, across=True),
    _Step(8, across=True, few_leaves=True),
    _Step(5, across=True, few_leaves=True),
    _Step(3, across=True, few_leaves=True),
    _Step(1, across=True, few_leaves=True),
)
"""Each joins more than the one before. The last leaves one box for all ops and a few leaves, so that it always fits."""
LEAVES = 8
"""Leaves that stay single when there are so many that no page holds them."""
SMALL = 50
"""Nodes of a graph, or of a focused module, that is drawn in full when its page holds it: the reader wants all of it."""
SPARE = 4 / 3
"""By how much a view may be over when all that is closed already is one box: better than joining what does not belong together."""
TRIES = 24
"""Views that are made and measured, fewer in a large graph."""
WORK = 400_000
"""Nodes that all those views may have together."""


class Page(NamedTuple):
    """What a view may fill: boxes, rows along the longest way, and where somebody can measure it, a page in pixels."""

    boxes: int
    rows: float
    holds: Callable[[Graph], bool] | None = None


class FirstView:
    """Finds the most detailed view that a page holds, and in it opens what is to be expanded whatever that takes."""

    def __init__(self, views: Views, focus: str | None, page: Page, expand: tuple[str, ...] = ()) -> None:
        self._views, self._focus, self._page, self._expand = views, focus, page, expand
        self._shared = False  # whether parameters that several boxes use are drawn inside the first: when not even closed boxes fit
        self._tries = max(4, min(TRIES, WORK // max(len(views.graph.nodes), 1)))

    def folded(self) -> Graph:
        """The folded graph, or the graph itself when all of it fits."""
        if self._focus is None and self._is_small() and self._holds(self._views.original):
            return self._views.original
        if self._focus is not None and self._nodes_in_focus() <= min(SMALL, self._page.boxes):
            in_full = Wanted(level=self._views.deepest, focus=self._focus, every=True)
            loose = self._finished(in_full)
            return loose if self._holds(loose) else self._finished(replace(in_full, tight=True))
        closed = Wanted(level=1, focus=self._focus)
        self._shared = not self._fits(closed, 1.0)
        wanted = self._opened(closed)
        view = self._views.view(wanted)
        is_tall = self._is_over(view, SPARE)
        if not is_tall and self._holds(view.folded()):
            return self._finished(wanted) if self._expand else view.folded()
        return self._smaller(replace(wanted, expand=self._expand), is_tall)

    def _smaller(self, wanted: Wanted, is_tall: bool) -> Graph:
        """The first of ever smaller foldings of a view that the page holds, else the last: what modules and repeats do not fold
        is joined by its order. What is to be expanded is left as it is as long as that can be.
        """
        spared, most = self._views.inside(self._expand), int(self._page.rows)
        for step in (_Step(most, shared=False) if is_tall else _Step(None), _Step(most), *_STEPS):
            view = self._views.view(wanted)
            if step.segments is not None:
                join_segments(view, step.segments, () if step.across else spared, across=step.across)
            view.absorb_parameters(shared=step.shared)
            if step.few_leaves:
                join_leaves(view, LEAVES)
            folded = view.folded()
            if self._holds(folded):
                break
        return folded

    def _finished(self, wanted: Wanted) -> Graph:
        view = self._views.view(replace(wanted, expand=self._expand))
        view.absorb_parameters(shared=self._shared)
        return view.folded()

    def _is_small(self) -> bool:
        graph = self._views.graph
        return len(graph.nodes) <= min(SMALL, self._page.boxes) or not self._is_over(Partition(graph))

    def _nodes_in_focus(self) -> int:
        tree = self._views.tree
        return sum(len(tree.members[scope]) for scope in tree.named(self._focus or ""))

    # -- opening -----------------------------------------------------------------------------------------------------

    def _opened(self, wanted: Wanted) -> Wanted:
        """Opens one call after the other, the heaviest kind first, while the page holds the view."""
        refused: set[int] = set()
        has_layer = False
        while self._tries > 0:
            openings = self._views.next_inside(wanted)
            more = next((opening for opening in openings if opening.calls[0] not in refused), None)
            if more is None:
                break
            opened = self._with(wanted, more, is_first_layer=more.is_layer and not has_layer)
            if opened is not None:
                wanted, has_layer = opened, has_layer or more.is_layer
            elif self._is_bare(wanted):  # one box is no picture: what is in it is made to fit
                return replace(wanted, also=wanted.also.union(more.calls))
            else:
                refused.add(more.calls[0])
        return wanted

    def _with(self, wanted: Wanted, more: Opening, *, is_first_layer: bool) -> Wanted | None:
        """The view with more opened, if the page holds it. For what has most ops of the graph, single ops around it are joined; the
        first layer may make the picture a little taller than two screens.
        """
        opened = replace(wanted, also=wanted.also.union(more.calls))
        for spare in (1.0, SPARE) if is_first_layer and self._is_most(more) else (1.0,):
            for tight in (False, True) if self._is_most(more) and not wanted.tight else (wanted.tight,):
                if self._fits(replace(opened, tight=tight), spare):
                    return replace(opened, tight=tight)
        return None

    def _fits(self, wanted: Wanted, spare: float) -> bool:
        self._tries -= 1
        view = self._views.view(wanted)
        return not self._is_over(view, spare) and self._holds(view.folded())

    def _is_most(self, more: Opening) -> bool:
        graph = self._views.graph
        return 2 * more.ops > len(graph.nodes) - len(graph.leaves)

    def _is_over(self, view: Partition, spare: float = 1.0) -> bool:
        view.absorb_parameters(shared=self._shared)
        if view.size() > self._page.boxes * spare:
            return True
        return rows(view, self._views.tree) > self._page.rows * spare

    def _holds(self, graph: Graph) -> bool:
        return self._page.holds is None or self._page.holds(graph)

    def _is_bare(self, wanted: Wanted) -> bool:
        """Whether a view shows nothing but one module and a few ops around it."""
        parts = self._views.view(wanted).parts.values()
        return len(parts) < 2 and all(part.count == 1 for part in parts)


# How tall a drawing of boxes will be, counted in rows and not in pixels: analyses know no layout. A row is one box on
# the longest way from a leaf to an output. Going into the frame of an open module, or out of it, takes about half a
# row for the frame's border, its title and the room around them.

BORDER = 0.5
"""Rows that one border of a frame takes: 45 to 55 pixels, where a box with the gap below it takes about 100."""


def rows(partition: Partition, tree: ScopeTree) -> float:
    """Rows of a drawing of these boxes, where a leaf stands in the frame of whoever uses it. Close to linear in the graph."""
    leaves = partition.graph.leaf_of.keys() - partition.parts.keys()
    frames = {box: frozenset(tree.around(partition.scope(box))) for box in set(partition.box_of)}
    reached = {box: 1.0 if box in leaves else 1.0 + BORDER * len(inside) for box, inside in frames.items()}
    edges = partition.edges()
    place = {box: i for i, box in enumerate(in_order(edges, partition.places()))}
    for producer, consumer in sorted(edges, key=lambda edge: place[edge[0]]):
        inside = frames[consumer]
        crossed = inside if producer in leaves else inside ^ frames[producer]
        reached[consumer] = max(reached[consumer], reached[producer] + 1 + BORDER * len(crossed))
    return max((reached[box] + BORDER * len(inside) for box, inside in frames.items()), default=0.0)


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
    closed = sorted(_closed(folded, views), key=lambda box: (box.later, -box.ops, box.call))
    opened = {tree.depth[scope] for node in folded.nodes for scope in tree.around(node.scope)}
    depths = (max(tree.depth[box.call], *opened, 0) + 1 for box in closed if not box.later)
    paths = (tree.scopes[box.call].path for box in closed if not box.looped)
    return Deeper(next(depths, None), next(filter(None, paths), None))


def _closed(folded: Graph, views: Views) -> Iterator[_Closed]:
    tree = views.tree
    for node in folded.nodes:
        if node.group is not None and node.group.kind not in ("chain", "more"):
            inside = {views.graph.nodes[i].scope for i in node.group.nodes}
            around = {call for scope in inside for call in tree.around(scope)}
            calls = [call for call in around if tree.scopes[call].parent == node.scope]  # none for a loop of single ops
            if calls:
                looped = node.group.count > 1 and node.group.kind != "alike"
                yield _Closed(views.is_later(min(calls)), node.group.ops, min(calls), looped)
