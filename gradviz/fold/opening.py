"""What of the tree of groups is open.

Sizes are estimated from the groups alone, so that only a few pictures are laid out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from gradviz.fold.dependence import Dependences
from gradviz.fold.groups import Child, Groups, Section
from gradviz.fold.loops import rest_of
from gradviz.fold.program import names_of
from gradviz.fold.sizes import Size, Sizes
from gradviz.fold.titles import calls_in
from gradviz.graph import Node
from gradviz.graph.origins import ScopeTree


class Limits(NamedTuple):
    """What a picture may fill: pixels across and along the flow of data, which runs to
    the right where it `is_flat`, and boxes with leaves. `columns`: about how many a
    picture that runs down may have beside each other.
    """

    width: float = 2000.0
    height: float = 1600.0
    boxes: float = 100.0
    is_flat: bool = False
    columns: float = 1.0

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
        self.groups, self.whole = groups, groups[0]
        self.open: set[Section] = {self.whole}
        self.sizes = Sizes(groups, self.open)
        self.windows: list[Section] = []
        self.kept: set[Section] = set()  # what no window closes
        self.drawn: dict[object, Node] = {}  # closed boxes that views have had so far
        self._later = _later(groups)

    @cached_property
    def dependences(self) -> Dependences:
        """What depends on what, found when a window is looked for."""
        return Dependences(self.groups)

    def nodes(self, group: Section) -> Sequence[int]:
        """All nodes in a group, in order."""
        return self.groups.order[slice(*self.sizes.span(group))]

    def visible(self) -> Iterator[Child]:
        """Nodes, and closed groups, that are shown."""
        waiting: list[Child] = [self.whole]
        while waiting:
            child = waiting.pop()
            if isinstance(child, Section) and child in self.open:
                waiting += child.children[::-1]
            else:
                yield child

    def closed(self) -> Iterator[Section]:
        """The closed groups that are shown."""
        return (child for child in self.visible() if isinstance(child, Section))

    def fits(self, limits: Limits) -> bool:
        """Whether what is open is about as large as that."""
        return limits.holds(self.sizes.whole) and self.sizes.boxes <= limits.boxes

    def may_open(self, group: Section) -> bool:
        """Whether a group can show something new: not the rest of a run, a window, an
        op with its views, a call again; nor a statement or a call of torch, whose name
        says all.
        """
        return not (
            group.is_rest
            or group.kind == "statement"
            or group in self.windows
            or group.op is not None
            or group in self._later
        )

    def unfold(self, group: Section) -> None:
        """Open a group, and of a run the turns that are shown."""
        if group not in self.open:
            self.open.update((group, *group.shown))
            self.sizes.update(group, *group.shown)

    def close(self, group: Section) -> None:
        """Close it again."""
        self.open.difference_update((group, *group.shown))
        self.sizes.update(group, *group.shown)

    def back_to(self, before: set[Section]) -> None:
        """Close all that is not among these."""
        for group in self.open - before:
            self.close(group)

    def reset(self) -> None:
        """Close everything, and take all windows away."""
        self.back_to({self.whole})
        self.undo_to(0)

    def close_all(self) -> None:
        """Close the whole graph, too."""
        self.open.clear()

    # -- windows -----------------------------------------------------------------------

    def enclose(
        self,
        group: Section,
        pieces: Sequence[tuple[int, int]],
        *,
        is_rest: bool = False,
    ) -> None:
        """Put several stretches of children of a group into a closed box each."""
        # from the end, so that the places of earlier pieces stay valid
        for first, after in reversed(pieces):
            if is_rest:
                window = rest_of(group, after - first)
            else:
                window = Section(self.groups, group, "segment")
            group.enclose([(first, after, window)])
            self.windows.append(window)
            self.sizes.regroup(group)
            self.sizes.update(window)

    def undo_to(self, count: int) -> None:
        """Take all windows away but the first ones that were made."""
        while len(self.windows) > count:
            # the one that was made last has the highest number: all others keep theirs
            window = self.windows.pop()
            self.groups.pop()
            parent = window.parent or self.whole
            place = parent.children.index(window)
            parent.children[place : place + 1] = window.children
            parent.adopt()
            self.sizes.forget(window)
            self.sizes.regroup(parent)
            self.sizes.update(parent)

    # -- what is asked for -------------------------------------------------------------

    def show(self, group: Section) -> None:
        """Open a group and all around it. Turns of a rest before and after it stay
        together.
        """
        chain = list(group.around())
        for inner, outer in pairwise(chain):
            count = len(outer.children)
            if outer.is_rest and count > 2 and inner in outer.children:
                place = outer.children.index(inner)
                beside = [(0, place), (place + 1, count)]
                pieces = [(a, b) for a, b in beside if b - a > 1]
                self.enclose(outer, pieces, is_rest=True)

        for outer in reversed(chain):
            self.unfold(outer)

    def show_levels(self, levels: int, inside: Section) -> None:
        """Open as many levels of calls in a group; later turns of what repeats stay
        closed.
        """
        waiting = [(inside, levels)]
        for group, left in waiting:  # grows while it is read
            if group is not inside:
                if left <= 0 or not self.may_open(group):
                    continue
                left -= group.kind == "call"

            self.unfold(group)
            is_first = slice(1 if group.kind == "run" else None)
            shown = (c for c in group.children[is_first] if isinstance(c, Section))
            waiting += [(child, left) for child in shown]

    def show_all(self, inside: Iterable[Section]) -> None:
        """Open groups and everything in them."""
        for group in inside:
            self.show(group)
            waiting = [group]
            for outer in waiting:  # grows while it is read
                self.unfold(outer)
                waiting += outer.inner

    def named(self, path: str) -> list[Section]:
        """Groups of the module, or of what the program wrote, at a path, or at a line as
        `train.py:41`: each of a few, else the first.
        """
        found = [
            group
            for group in self.groups
            if group.record and path in names_of(group.record, group.construct)
        ]
        # a cell in a loop has hundreds of calls, and one shows them all
        return found if len(found) <= 3 else found[:1]

    def deeper(self) -> Deeper:
        """Where a reader can look next: the closed call with the most ops; what no
        depth opens comes last.
        """
        scopes, depths = self.groups.graph.scopes, ScopeTree(self.groups.graph).depth
        opened = max(
            (depths[g.scope] for g in self.open if g.scope is not None), default=0
        )
        closed = [
            (
                group.is_rest or group in self._later,
                -self.sizes.ops(call),
                call.number,
                call.scope or 0,
            )
            for group in self.closed()
            for call in calls_in(group)
        ]
        closed.sort()
        deeper = (
            max(depths[scope], opened) + 1
            for stays_closed, _, _, scope in closed
            if not stays_closed
        )
        records = (scopes[scope] for *_, scope in closed)
        paths = (scope.path for scope in records if scope.call == 1 and scope.path)

        return Deeper(next(deeper, None), next(paths, None))


def _later(groups: Groups) -> set[Section]:
    """Calls of a module that are like another call of it, which a reader sees first: an
    earlier one, in a turn that is shown rather than in another.
    """
    hidden: set[Section] = set()
    for group in groups.top_down()[1:]:
        turns = group.parent.shown if group.parent is not None else []
        if group.parent in hidden or (turns and group not in turns):
            hidden.add(group)

    first: dict[tuple[str, int], Section] = {}
    later = set[Section]()
    for group in sorted(groups, key=hidden.__contains__):
        scope, record = group.scope, group.record
        if scope is None or record is None or scope not in groups.structure:
            continue
        if record.kind in ("module", "function"):
            key = record.path, groups.structure[scope]
            if first.setdefault(key, group) is not group:
                later.add(group)
    return later
