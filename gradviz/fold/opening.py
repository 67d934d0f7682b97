"""What of the tree of groups is open.

Sizes are estimated from the groups alone, so that only a few pictures are laid out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from gradviz.fold.groups import Groups, Section
from gradviz.fold.sizes import Size, Sizes
from gradviz.fold.titles import calls_in
from gradviz.graph.origins import ScopeTree
from gradviz.wording import place_text


class Limits(NamedTuple):
    """What a picture may fill: pixels across and along the flow of data, which runs to
    the right where it `is_flat`, and boxes with leaves.
    """

    width: float = 2000.0
    height: float = 1600.0
    boxes: float = 100.0
    is_flat: bool = False

    def holds(self, size: Size) -> bool:
        """Whether a picture of this size fits."""
        return size.width <= self.width and size.height <= self.height


class Deeper(NamedTuple):
    """A depth that opens the largest closed module and leaves open what is open; the
    path of the largest closed module.
    """

    depth: int | None = None  # None when a depth opens nothing more
    # None when no closed module has a path of its own, or only loops are closed
    path: str | None = None


class Opening:
    """Which groups are open; `windows` are the segments made for that, in order.
    `sizes` knows how large that is.
    """

    def __init__(self, groups: Groups) -> None:
        self.groups, self.sizes = groups, Sizes(groups)
        self.open: set[int] = {0}
        self.windows: list[int] = []
        self.kept: set[int] = set()  # what no window closes
        self._later = _later(groups)

    def visible(self) -> Iterator[tuple[int, int]]:
        """Nodes, and closed groups as ~group, that are shown, each with the open group
        that it stands in.
        """
        waiting = [(0, ~0)]
        while waiting:
            parent, child = waiting.pop()
            if child < 0 and ~child in self.open:
                waiting.extend(
                    (~child, inner) for inner in reversed(self.groups[~child].children)
                )
            else:
                yield child, parent

    def fits(self, limits: Limits) -> bool:
        """Whether what is open is about as large as that."""
        size = self.sizes.whole
        return (
            size.width <= limits.width
            and size.height <= limits.height
            and self.sizes.boxes <= limits.boxes
        )

    def may_open(self, group_id: int) -> bool:
        """Whether a group can show something new: not the rest of a run, a window, an
        op with its views, a call again; nor a statement or a call of torch, whose name
        says all.
        """
        group = self.groups[group_id]
        return not (
            group.is_rest
            or group.kind == "statement"
            or group_id in self.windows
            or group.op is not None
            or group_id in self._later
        )

    def unfold(self, group_id: int) -> None:
        """Open a group."""
        if group_id not in self.open:
            self.open.update(self.with_turn(group_id))
            for opened in reversed(self.with_turn(group_id)):
                self._resized(opened)

    def close(self, group_id: int) -> None:
        """Close a group."""
        self.open.difference_update(self.with_turn(group_id))
        for closed in reversed(self.with_turn(group_id)):
            self._resized(closed)

    def with_turn(self, group_id: int) -> list[int]:
        """A group, and with a run the turns that are shown."""
        return [group_id, *self.groups[group_id].shown]

    def back_to(self, before: set[int]) -> None:
        """Close all that is not among these."""
        for group_id in self.open - before:
            self.close(group_id)

    def _resized(self, group_id: int) -> None:
        self.sizes.update(group_id, self.open)

    def reset(self) -> None:
        """Close everything, and take all windows away."""
        self.back_to({0})
        self.undo_to(0)

    def close_all(self) -> None:
        """Close the whole graph, too."""
        self.open.clear()

    # -- windows -----------------------------------------------------------------------

    def enclose(
        self, group_id: int, first: int, after: int, *, is_rest: bool = False
    ) -> int:
        """Put children of a group into a closed box. Returns its number."""
        if is_rest:
            piece = Section(group_id, "run", turns=after - first, is_rest=True)
        else:
            piece = Section(group_id, "segment")

        (window,) = self.groups.enclose(group_id, [(first, after, piece)])
        self.windows.append(window)
        self.sizes.regroup(group_id)
        self._resized(group_id)
        return window

    def enclose_all(self, group_id: int, pieces: list[tuple[int, int]]) -> None:
        """Put several stretches of children into a closed box each."""
        # from the end, so that the places of earlier pieces stay valid
        for first, after in reversed(pieces):
            self.enclose(group_id, first, after)

    def undo_to(self, count: int) -> None:
        """Take all windows away but the first ones that were made."""
        while len(self.windows) > count:
            self._undo(self.windows[-1])

    def _undo(self, window: int) -> None:
        """Take the window away that was made last."""
        groups, group = self.groups, self.groups[window]
        parent = group.parent or 0
        children = groups[parent].children
        place = children.index(~window)
        children[place : place + 1] = group.children

        for child in group.children:
            if child < 0:
                groups[~child].parent = parent
            else:
                groups.home[child] = parent

        # it has the highest number, so all others keep theirs
        groups.pop()
        self.sizes.forget(self.windows.pop())
        self.sizes.regroup(parent)
        self._resized(parent)

    # -- what is asked for -------------------------------------------------------------

    def show(self, group_id: int) -> None:
        """Open a group and all around it. Turns of a rest before and after it stay
        together.
        """
        chain = [group_id]
        while self.groups[chain[-1]].parent is not None:
            chain.append(self.groups[chain[-1]].parent or 0)

        for inner, outer in pairwise(chain):
            children = self.groups[outer].children
            if self.groups[outer].is_rest and len(children) > 2 and ~inner in children:
                place = children.index(~inner)
                pieces = [
                    (a, b)
                    for a, b in ((place + 1, len(children)), (0, place))
                    if b - a > 1
                ]
                for first, after in pieces:
                    self.enclose(outer, first, after, is_rest=True)

        for outer in reversed(chain):
            self.unfold(outer)

    def show_levels(self, levels: int, inside: int = 0) -> None:
        """Open as many levels of calls in a group; later turns of what repeats stay
        closed.
        """
        waiting = [(inside, levels)]
        for group_id, left in waiting:  # grows while it is read
            if group_id != inside and not self._is_within(group_id, left):
                continue

            if group_id not in self.open:
                self.unfold(group_id)

            deeper = left - (
                self.groups[group_id].kind == "call" and group_id != inside
            )
            if self.groups[group_id].kind == "run":
                shown = self.groups[group_id].children[:1]
            else:
                shown = self.groups[group_id].children

            waiting += [(~child, deeper) for child in shown if child < 0]

    def _is_within(self, group_id: int, left: int) -> bool:
        """Whether a group is opened with so many levels left."""
        return left > 0 and self.may_open(group_id)

    def show_all(self, inside: Iterable[int]) -> None:
        """Open groups and everything in them."""
        for group_id in inside:
            self.show(group_id)
            waiting = [group_id]
            for outer in waiting:  # grows while it is read
                self.unfold(outer)
                waiting += [
                    ~child for child in self.groups[outer].children if child < 0
                ]

    def named(self, path: str) -> list[int]:
        """Groups of the module, or of what the program wrote, at a path, or at a line as
        `train.py:41`: each of a few, else the first.
        """
        found = [
            group_id
            for group_id, group in enumerate(self.groups)
            if group.scope is not None and path in names_of(self.groups, group.scope)
        ]
        # a cell in a loop has hundreds of calls, and one shows them all
        return found if len(found) <= 3 else found[:1]

    def deeper(self) -> Deeper:
        """Where a reader can look next: the closed call with the most ops; what no
        depth opens comes last.
        """
        groups, depths = self.groups, ScopeTree(self.groups.graph).depth
        scopes = (groups[group_id].scope for group_id in self.open)
        opened = max((depths[s] for s in scopes if s is not None), default=0)
        closed = [
            (groups[~child].is_rest, -self.sizes.ops(call), call, scope)
            for child, _ in self.visible()
            if child < 0
            for call, scope in calls_in(groups, ~child).items()
        ]
        closed.sort()
        deeper = (
            max(depths[groups[call].scope or 0], opened) + 1
            for is_rest, _, call, _ in closed
            if not is_rest
        )
        paths = (scope.path for *_, scope in closed if scope.call == 1 and scope.path)

        return Deeper(next(deeper, None), next(paths, None))


def names_of(groups: Groups, scope: int) -> list[str]:
    """What a reader may call a scope: its path; the line of a loop or a statement."""
    path, construct = groups.graph.scopes[scope].path, groups.constructs.get(scope)
    if construct is None or construct.source is None:
        return [path]
    name = os.path.basename(construct.source.file)
    return [path, place_text(name, construct.source.line)]


def _later(groups: Groups) -> set[int]:
    """Calls of a module that are like another call of it, which a reader sees first: an
    earlier one, in a turn that is shown rather than in another.
    """
    first: dict[tuple[str, int], int] = {}
    scopes, later = groups.graph.scopes, set[int]()
    for group_id in _shown_first(groups):
        scope = groups[group_id].scope
        if scope is None or scope not in groups.structure:
            continue
        if scopes[scope].kind in ("module", "function"):
            key = scopes[scope].path, groups.structure[scope]
            if first.setdefault(key, group_id) != group_id:
                later.add(group_id)
    return later


def _shown_first(groups: Groups) -> list[int]:
    """All groups; those in turns of loops that are not shown come last."""
    hidden: set[int] = set()
    for group_id in groups.top_down():
        parent = groups[group_id].parent
        if parent is None:
            continue
        shown = groups[parent].shown
        if parent in hidden or (shown and group_id not in shown):
            hidden.add(group_id)
    return sorted(range(len(groups)), key=lambda group_id: group_id in hidden)
