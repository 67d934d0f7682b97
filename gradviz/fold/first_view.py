"""Chooses the first view of a graph: what to open so that the picture shows the most and still fits its page.

Every view begins with all module calls closed. The heaviest kind of module is opened first, in the first of its calls, then what
is the heaviest of the rest, as long as the page holds it. What does not fit even when closed is joined further (`smaller`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from gradviz.fold.partition import Partition
from gradviz.fold.segments import smaller, steps_from
from gradviz.fold.views import Opening, Views, Wanted
from gradviz.graph import Graph, column
from gradviz.graph.scopes import ScopeTree

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
        wanted = replace(wanted, expand=self._expand)
        steps = steps_from(self._page.rows, is_tall=is_tall)
        return smaller(lambda: self._views.view(wanted), steps, self._holds, self._views.inside(self._expand))

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
            more = next((one for one in self._views.next_inside(wanted) if one.calls[0] not in refused), None)
            if more is None:
                break
            found = self._with(wanted, more, is_first_layer=more.is_layer and not has_layer)
            if found is not None:
                wanted, has_layer = found, has_layer or more.is_layer
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
    """Rows of a drawing of these boxes. Takes time proportional to the graph."""
    graph, box_of = partition.graph, partition.box_of
    number = {box: i for i, box in enumerate(dict.fromkeys(box_of))}
    scopes: list[int | None] = [None] * len(number)
    is_leaf = bytearray(len(number))
    for node, (box, scope) in enumerate(zip(box_of, column(graph.nodes, "scope"))):
        part = partition.parts.get(box)
        scopes[number[box]] = part.scope if part is not None else scope
        is_leaf[number[box]] = part is None and node in graph.leaf_of
    ends = zip(column(graph.edges, "producer"), column(graph.edges, "consumer"))
    pairs = {(number[box_of[producer]], number[box_of[consumer]]) for producer, consumer in ends}
    frames = {scope: frozenset(tree.around(scope)) for scope in set(scopes)}
    return _longest(len(number), ((a, b) for a, b in pairs if a != b), scopes, frames, is_leaf)


def _longest(
    count: int,
    pairs: Iterable[tuple[int, int]],
    scopes: list[int | None],
    frames: dict[int | None, frozenset[int]],
    is_leaf: bytearray,
) -> float:
    """The longest way, where a leaf stands in the frame of whoever uses it."""
    consumers: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for producer, consumer in pairs:
        consumers[producer].append(consumer)
        waiting[consumer] += 1
    reached = [1.0 if is_leaf[box] else 1.0 + BORDER * len(frames[scopes[box]]) for box in range(count)]
    ready = [box for box in range(count) if not waiting[box]]
    tallest = 0.0
    for box in ready:  # grows while it is read
        tallest = max(tallest, reached[box] + BORDER * len(frames[scopes[box]]))
        for consumer in consumers[box]:
            inside = frames[scopes[consumer]]
            crossed = inside if is_leaf[box] else inside ^ frames[scopes[box]]
            reached[consumer] = max(reached[consumer], reached[box] + 1 + BORDER * len(crossed))
            waiting[consumer] -= 1
            if not waiting[consumer]:
                ready.append(consumer)
    return tallest
