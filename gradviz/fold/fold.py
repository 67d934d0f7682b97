"""What is open of a graph for a first look: of its tree of groups, as much as a page
holds, or what the reader asks for.

Whatever is open, the boxes never form a cycle other than a box with itself: groups are
stretches of one order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Literal, NamedTuple

from gradviz.errors import FormatError, did_you_mean
from gradviz.fold.crop import Crop
from gradviz.fold.filling import Filling
from gradviz.fold.folding import Folding, folded, unfolded
from gradviz.fold.grouping import SMALL, grouped
from gradviz.fold.groups import Section
from gradviz.fold.opening import Limits, Opening
from gradviz.fold.program import names_in, with_program
from gradviz.fold.sizes import Size
from gradviz.graph import Graph
from gradviz.stages import Stage

Depth = Literal["auto", "all"] | int
PAGE = Limits()
UPRIGHT = Limits(1600.0, 2000.0)
SLIDES = Limits(1920.0, 1080.0), Limits(1080.0, 1920.0, is_flat=True)
COLUMNS = SLIDES[0]._replace(columns=1.7)
SHEETS = SLIDES, (COLUMNS,), (PAGE,), (UPRIGHT, UPRIGHT._replace(is_flat=True))
"""What a picture may fill: larger ones are for a body that a slide does not hold, and
columns of a slide also for the terms of a loss.
"""
Measure = Callable[[Folding, Limits], Size | None]
"""How large the picture of a folding is across and along the flow of data, for a sheet;
None where pictures do not run that way.
"""
NO_LIMITS = Limits(math.inf, math.inf, math.inf)
ENOUGH, WORTH = 0.6, 0.1
"""The part of all ops that may be closed though nothing like it is open, and how much
less of it a larger sheet is worth.
"""
TRIES = 4
"""Pictures that are measured."""
FULL = 0.85
"""The part of a page that a picture fills at least: with less, more is tried."""
FIRST = 0.9
"""How much of a page is filled first, by the estimate, which knows no detours."""
MORE = 1.0, 1.25, 1.5
"""Where that shows nothing new; a loss may need more, as it stands beside the body."""
LEAVES = 4
"""Leaves that stay single when there are so many that no page holds them."""


def opened(
    graph: Graph,
    *,
    depth: Depth = "auto",
    focus: str | None = None,
    expand: Iterable[str] = (),
    views: Literal["auto", "show"] = "auto",
    crop: bool = False,
    limit: int = int(PAGE.boxes),
    measure: Measure | None = None,
) -> Folding:
    """The graph folded but for what is opened of it; of a folded one, the whole anew.

    Parameters
    ----------
    depth
        how many levels of modules to show: 1 draws each outermost module as one
        box. "all" folds nothing; "auto" shows as much as a page holds, the heaviest
        module first, and a graph of up to 50 nodes in full.
    focus
        path of one module to open; everything outside it stays closed.
    expand
        paths of modules to open whatever `depth` says.
    views
        "auto" draws ops that only change a shape or a layout together with the
        op beside them, in a graph of more than 16 nodes; "show" draws each alone.
    crop
        nothing is shown around the module in focus but what goes into it and comes
        out.
    limit
        how many boxes "auto" may use.
    measure
        how large the picture of a folded graph is; without it, sizes are
        estimated.

    Raises FormatError for a depth below 1 and for a path that no recorded module has.
    """
    with Stage("fold"):
        whole, paths = graph.whole, tuple(expand)
        if depth == "all" and focus is None and not paths:
            return unfolded(whole)

        _check(depth, [*filter(None, (focus, *paths))], whole)
        limits = PAGE._replace(boxes=limit)
        if depth == "auto" and focus is None and not paths:
            small = _small_view(whole, views == "show", limit, measure)
            if small is not None:
                return small

        opening, asked = _closed(whole, focus, crop, views == "show")
        inside = next(iter(asked), None)
        wanted = [*asked, *(group for path in paths for group in opening.named(path))]
        if depth == "auto":
            filling = Filling(opening, inside, in_full=not crop)
            return _first_view(filling, wanted, limits, measure)

        if depth == "all":
            opening.show_all(wanted)
        else:
            for group in wanted:
                opening.show(group)
            opening.show_levels(depth - 1, inside or opening.whole)
        return folded(opening)


def _closed(
    graph: Graph, focus: str | None, crop: bool, views: bool
) -> tuple[Opening, list[Section]]:
    """The tree of a graph, or of the part of it that the module in focus made, closed;
    and the groups of that module: in a crop all of a call that others interrupted.
    """
    if focus is None or not crop:
        opening = Opening(grouped(graph, views=views))
        return opening, opening.named(focus)[:1] if focus else []
    part = Crop(graph, focus)
    groups = grouped(part.graph(), views=views, crop=part.constructs)
    return Opening(groups), [group for group in groups if group.scope == part.call]


def _small_view(
    graph: Graph, views: bool, limit: int, measure: Measure | None
) -> Folding | None:
    """A small graph with all open but layers; the graph itself where it has none. None
    of a larger one, and where the page does not hold it.
    """
    if len(graph.nodes) > min(SMALL, limit):
        return None

    view = unfolded(graph)
    if any(scope.type for scope in graph.scopes):
        opening = Opening(grouped(graph, views=views, runs=False))
        Filling(opening).fill(NO_LIMITS)
        view = folded(opening)
    return view if _holds(measure, view, SLIDES) else None


def _check(depth: Depth, paths: Sequence[str], graph: Graph) -> None:
    """Raise FormatError for a depth below 1, and for a path that no module or function
    has.
    """
    if isinstance(depth, int) and depth < 1:
        raise FormatError(
            f"depth cannot be {depth}: 1 draws each outermost module as one box, 'all' draws every op"
        )

    names = names_in(*with_program(graph)) if paths else ()
    known = set(chain.from_iterable(names))
    for path in paths:
        if path not in known:
            hint = "No modules were recorded in this graph."
            if known:
                hint = did_you_mean(path, known, what="modules")
            raise FormatError(f"there is no module {path!r} in this graph. {hint}")


def _holds(measure: Measure | None, view: Folding, sheets: Iterable[Limits]) -> bool:
    """Whether one of the sheets is large enough for a picture."""
    if measure is None:
        return True
    for sheet in sheets:
        size = measure(view, sheet)
        if size is not None and sheet.holds(size):
            return True
    return False


# -- the first view --------------------------------------------------------------------


class _View(NamedTuple):
    """A view that a sheet holds, and the limits that led to it by the estimate."""

    boxes: int
    limits: Limits
    closed: float  # the part of all ops that is closed, though nothing like it is open
    losses: int  # that are closed
    is_u: bool


def _first_view(
    filling: Filling, expand: list[Section], limits: Limits, measure: Measure | None
) -> Folding:
    """The most that a slide holds, else a page, and what is to be expanded. What no page
    holds has its leaves joined, or is one box.
    """
    best = _largest(filling, limits, measure) if measure is not None else None
    if best is None and measure is not None:
        return _with_few_leaves(filling, expand, measure)
    # what is open is read from the opening, too
    filling.fill(best.limits if best is not None else limits)
    if filling.focus is None:
        filling.open_bodies(limits.boxes)
    for group in expand:
        filling.opening.show(group)
    return filling.folding()


def _largest(filling: Filling, limits: Limits, measure: Measure) -> _View | None:
    """The view of most boxes on the smallest sheets that are large enough. Where one
    shows enough, no picture is made of what shows less.
    """
    candidates = _Candidates(filling, measure, limits.boxes)
    search = _Search(candidates, is_thorough=False)
    best = search.best()
    if best is not None and best.closed < search.passed - WORTH:
        return best
    return _Search(candidates, is_thorough=True).best()


def _rank(view: _View) -> tuple[float, int]:
    return -max(view.closed, ENOUGH), view.boxes


def _with_few_leaves(
    filling: Filling, expand: list[Section], measure: Measure
) -> Folding:
    """What is open, with few single leaves; all in one box when no page holds that."""
    opening = filling.opening
    few = folded(opening, leaves=LEAVES)
    if filling.focus is None and not _holds(measure, few, chain(*SHEETS)):
        opening.reset()
        # not even the outermost level fits: the graph becomes a single box
        opening.close_all()
    for group in expand:
        opening.show(group)

    return folded(opening, leaves=LEAVES)


class _Candidates:
    """Views by the limits that they fill, each filled once, and how large they are,
    whatever is looked for.
    """

    def __init__(self, filling: Filling, measure: Measure, boxes: float) -> None:
        self._filling, self._measure, self.boxes = filling, measure, boxes
        self._views: dict[Limits, _View] = {}
        self.is_u = False  # whether one of them is: no picture of it runs on

    def view(self, limits: Limits) -> _View:
        """What is open by these limits."""
        if limits not in self._views:
            filling = self._filling
            filling.fill(limits)
            boxes, is_u = filling.opening.sizes.boxes, filling.is_u()
            # a U says most by its shape
            closed = min(filling.closed_share(), ENOUGH if is_u else 1.0)
            self._views[limits] = _View(
                boxes, limits, closed, filling.closed_losses(), is_u
            )
            self.is_u |= is_u
        return self._views[limits]

    def measured(self, limits: Limits, sheet: Limits) -> tuple[Size, Size | None]:
        """How large that is, by the estimate and as a picture."""
        self._filling.fill(limits)
        estimate = self._filling.opening.sizes.whole
        return estimate, self._measure(self._filling.folding(), sheet)


class _Search:
    """For the best view of a few that are measured. Each takes from the others how far
    the estimate was off. What is no better than what another sheet of the size holds is
    passed by, and, unless it `is_thorough`, what closes too much.
    """

    def __init__(self, candidates: _Candidates, *, is_thorough: bool) -> None:
        self._candidates, self._is_thorough = candidates, is_thorough
        self._most = 1.0 if is_thorough else ENOUGH  # that a view may close
        self._losses = math.inf  # that a view may close
        self.passed = math.inf  # what views close that were passed by, at least

    def best(self) -> _View | None:
        """The best view on the smallest sheets that are large enough, with the terms of a
        loss where a slide holds them.
        """
        best: _View | None = None
        on_slide = False
        for sheets in SHEETS:
            found: _View | None = None
            for sheet in sheets:
                runs_on = sheet.is_flat or sheet.columns > 1
                if not (runs_on and self._candidates.is_u):
                    found = self._on(sheet, found)
            if found is not None:
                best, self._most = found, found.closed - WORTH
                on_slide = sheets[0][:2] == COLUMNS[:2]
            if best is not None and best.closed <= ENOUGH:
                break
        if best is None or not best.losses or not on_slide or best.is_u:
            return best
        # not in place of the body
        self._most, self._losses = best.closed, best.losses - 1
        return self._on(COLUMNS, best)

    def _on(self, sheet: Limits, best: _View | None) -> _View | None:
        """The best view on a sheet, or that of another one."""
        sheet = sheet._replace(boxes=self._candidates.boxes)
        now = self._start(sheet, best)
        across, along = _Aim(now.width), _Aim(now.height)
        # than a slide: for the body alone
        is_larger = min(sheet[:2]) > SLIDES[0].height

        for _ in range(TRIES):
            view = self._candidates.view(now)
            if self._is_passed(view, best):
                break
            estimate, size = self._candidates.measured(now, sheet)
            if size is None:
                break
            wide, tall = size.width / sheet.width, size.height / sheet.height
            fits = max(wide, tall) <= 1.0
            if fits and self._is_better(view, best):
                best = view
            is_enough = is_larger and view.closed <= ENOUGH
            if fits and (is_enough or max(wide, tall) >= FULL):
                break

            if sheet.columns > 1:
                tall = max(wide, tall)
            else:
                across.learn(estimate.width, wide)
            along.learn(estimate.height, tall)
            last, now = now, now._replace(width=across.limit, height=along.limit)
            if now == last:
                break
        return best

    def _start(self, sheet: Limits, best: _View | None) -> Limits:
        """What is filled first, by the estimate; all of a slide where less is not worth
        a picture.
        """
        width, height = sheet.width / sheet.columns, sheet.height * sheet.columns
        first = sheet._replace(width=FIRST * width, height=FIRST * height)
        if sheet[:2] != SLIDES[0][:2]:
            return first
        if not self._is_passed(self._candidates.view(first), best):
            return first
        for more in MORE if self._losses < math.inf else MORE[:1]:
            whole = sheet._replace(width=width * more, height=height * more)
            view = self._candidates.view(whole)
            if not view.is_u and not self._is_passed(view, best):
                return whole
        return first

    def _is_passed(self, view: _View, best: _View | None) -> bool:
        """Whether no picture is made of a view."""
        if self._is_better(view, best) or (self._is_thorough and best is None):
            return False
        if view.closed > self._most:
            self.passed = min(self.passed, view.closed)
        return True

    def _is_better(self, view: _View, best: _View | None) -> bool:
        is_open = view.closed <= self._most and view.losses <= self._losses
        return is_open and (best is None or _rank(view) > _rank(best))


class _Aim:
    """The limit of estimates in one direction, as far as it is known from pictures."""

    def __init__(self, limit: float) -> None:
        self.limit, self._too_large = limit, math.inf

    def learn(self, estimate: float, filled: float) -> None:
        """A view of that estimate filled so much of the sheet."""
        exact = estimate / max(filled, 1e-3)
        if filled > 1.0:
            # a little lower, since the estimate is off again
            self._too_large, self.limit = min(self._too_large, estimate), 0.97 * exact
        else:
            middle = (estimate + self._too_large) / 2
            self.limit = max(self.limit, min(exact, middle))
