"""Chooses the first view of a graph: what to open so that the picture shows the most and still fits its page.

Every view begins with all module calls closed. The heaviest kind of module is opened first, in the first of its calls, then what
is the heaviest of the rest, as long as the page holds it. What does not fit even when closed is joined further (`smaller`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from gradviz.analysis.partition import Partition
from gradviz.analysis.rows import rows
from gradviz.analysis.smaller import smaller, steps_from
from gradviz.analysis.views import Opening, Views, Wanted
from gradviz.graph import Graph

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
