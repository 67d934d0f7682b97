"""What of the tree of groups is open: as much as a page holds, the body of a model
first.

The heaviest closed group is opened first, where what a group shows counts for all turns
of its run; groups of few ops come last. A group that does not fit opens as a window:
its first children, its last ones, and one segment for those between. Sizes are
estimated from the groups alone, so that only a few pictures are laid out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from gradviz.fold.groups import Groups, Stretch
from gradviz.fold.order import is_view
from gradviz.fold.sizes import Sizes
from gradviz.fold.titles import calls_in, has_calls, is_list, list_of
from gradviz.graph.origins import ScopeTree, around

LAYER = re.compile(r"(Linear|Conv\dd|Norm\w*|(LSTM|GRU|RNN)(Cell)?)$")
"""Classes whose name says all, of however many ops they are."""
FEW = 4
"""Ops of a group up to which a box says about as much as its ops would."""
LEAST = 3
"""Children that a window closes."""
SHARE = 0.4
"""The part of a group's ops above which no window closes one of its children, and of
all ops above which room is made for it.
"""


class Limits(NamedTuple):
    """What a picture may fill: pixels, and boxes with leaves."""

    width: float = 2000.0
    height: float = 1600.0
    boxes: float = 100.0


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
        self._weight: dict[int, float] = {0: float(self.sizes.ops(0))}
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

    # -- as much as a page holds -------------------------------------------------------

    def fill(self, limits: Limits, inside: int = 0) -> None:
        """Open what is in a group, the heaviest first, as far as the page holds it."""
        if inside not in self.open:
            self.show(inside)

        if not self._fits(limits):
            self._window(inside, limits)

        waiting = self._closed(inside)
        few: list[int] = []
        while waiting:
            choice = max(
                waiting,
                key=lambda group_id: (self._weight[group_id], -group_id),
            )
            waiting.remove(choice)
            if self.groups[choice].parent not in self.open:
                continue  # in a window that was made meanwhile
            # boxes of two or three ops: opening some and not others would look
            # arbitrary
            if choice not in self.open and self._ops_of_one(choice) <= FEW:
                few.append(choice)
            elif choice in self.open or self._try(choice, limits):
                for opened in self._with_turn(choice):
                    waiting += [
                        inner
                        for inner in self._closed(opened)
                        if inner not in self._with_turn(choice)
                    ]

        self._open_few(few, limits)

    def _open_few(self, few: list[int], limits: Limits) -> None:
        """Open groups of few ops all together, and what is in them, or none."""
        before = set(self.open)
        for group_id in few:  # grows while it is read
            if self.groups[group_id].parent not in self.open:
                continue
            self._open(group_id)
            for opened in self._with_turn(group_id):
                few += [
                    inner for inner in self._closed(opened) if inner not in self.open
                ]
        # all or none: with some of them a reader would ask why these
        if not self._fits(limits):
            self._back_to(before)

    def _closed(self, group_id: int) -> list[int]:
        """Groups that could be opened among the children of one that was opened just
        now.
        """
        shares: dict[int, float] = {}
        first_of: dict[object, int] = {}
        group, weight = self.groups[group_id], self._weight.get(group_id, 0.0)
        total_ops = max(self.sizes.ops(group_id), 1)
        # one turn that is opened shows what all do
        is_run = group.kind == "run"
        shown, stands_for = (
            (group.children[:1], group.turns) if is_run else (group.children, 1)
        )

        for child in shown:
            inner = ~child
            if child < 0 and self._may_open(inner) and not self._is_layer(inner):
                # and one element of a list, where others differ in constants alone
                first = first_of.setdefault(self._kin(inner), inner)
                share = weight * self.sizes.ops(inner) * stands_for / total_ops
                if first_of.setdefault(self._list(first), first) != first:
                    share /= 2  # like an earlier one, whose inside says more
                shares[first] = max(shares.get(first, 0.0), share)

        self._weight.update(shares)
        return list(shares)

    def _kin(self, group_id: int) -> object:
        """Equal for elements of one list that ran equal ops; in a graph whose repeats
        stand alone, for none.
        """
        if self._list(group_id) == group_id or not self.groups.structure:
            return group_id
        ops = self.groups.graph.ops
        ran = tuple(ops[node] for node in self.groups.members(group_id))
        return self._list(group_id), ran

    def _list(self, group_id: int) -> object:
        """Equal for elements of one list that are of one class."""
        scope_id = self.groups[group_id].scope
        if scope_id is None:
            return group_id
        scope = self.groups.graph.scopes[scope_id]
        return (list_of(scope.path), scope.type) if list_of(scope.path) else group_id

    def _is_layer(self, group_id: int) -> bool:
        """Whether a call is a layer that its class says all about: a linear map, a
        convolution, an activation, a norm, a recurrent cell.
        """
        group = self.groups[group_id]
        if group.scope is None or not self.groups.graph.scopes[group.scope].type:
            return False
        if has_calls(self.groups, group_id):
            return False

        work = sum(
            not is_view(self.groups.graph.nodes[node].op)
            for node in self.groups.members(group_id)
        )

        return (
            work <= 1
            or LAYER.search(self.groups.graph.scopes[group.scope].type) is not None
        )

    def _may_open(self, group_id: int) -> bool:
        """Whether a group can show something new: not the rest of a run, a window, an
        op with its views, or a call again.
        """
        group = self.groups[group_id]
        return not (
            group.is_rest
            or group_id in self.windows
            or group.op is not None
            or group_id in self._later
        )

    def _ops_of_one(self, group_id: int) -> int:
        """Ops of a group, of a run those of its first turn."""
        first = self.groups[group_id].children[0]
        if self.groups[group_id].kind == "run":
            return 1 if first >= 0 else self.sizes.ops(~first)
        return self.sizes.ops(group_id)

    def _try(self, group_id: int, limits: Limits) -> bool:
        """Open a group, or a window of it; for a body, also with windows of the groups
        around it.
        """
        shells = self._shells(group_id)
        for shell in shells:
            self._open(shell)
        if self._fits(limits) or self._window(shells[-1], limits):
            return True

        windows_before = len(self.windows)
        # worth to close something else for it
        if self._weight[group_id] > SHARE * self._weight[0]:
            for outer in around(self.groups, shells[-1]):
                if self._window(outer, limits):
                    return True
                # all of a group is no window of it
                self._enclose_all(
                    outer,
                    self._foldable(outer, 0) or self._foldable(outer, 2),
                )

        # nothing helped: as before
        self._undo_to(windows_before)
        for shell in reversed(shells):
            self._close(shell)
        return False

    def _shells(self, group_id: int) -> list[int]:
        """A group, and the one that is all of it, from outside in."""
        shells = [group_id]
        while len(self.groups[shells[-1]].children) == 1:
            inner = ~self.groups[shells[-1]].children[0]
            if inner < 0 or not self._may_open(inner) or self._is_layer(inner):
                break
            shells.append(inner)
        return shells

    def _window(self, group_id: int, limits: Limits) -> bool:
        """Show as many of the first and last children of an open group as the page
        holds; False when it holds none.

        What is closed between them are loose ops, and elements of one list: of other
        modules each stands for itself.
        """
        least, too_many = -1, len(self.groups[group_id].children)
        windows_before = len(self.windows)
        # by halving: each try lays out the sizes anew
        while too_many - least > 1:
            shown = (least + too_many) // 2
            self._enclose_all(group_id, self._foldable(group_id, shown))
            if self._fits(limits):
                least, too_many = (shown, too_many)
            else:
                least, too_many = (least, shown)
            self._undo_to(windows_before)

        if least >= 0:
            self._enclose_all(group_id, self._foldable(group_id, least))

        return least >= 0

    def _foldable(
        self,
        group_id: int,
        shown: int,
    ) -> list[tuple[int, int]]:
        """Of the stretches that a window leaves closed those of loose ops, and those of
        elements of one list.
        """
        pieces = []
        children = self.groups[group_id].children

        for first, after in self._between(group_id, shown):
            start = first
            for end in range(first + 1, after + 1):
                if end == after or self._sort(children[end]) != self._sort(
                    children[start]
                ):
                    if end - start >= LEAST:
                        pieces.append((start, end))
                    start = end

        return pieces

    def _sort(self, child: int) -> object:
        """Equal for children that one box may hold: "" for ops, the list for its
        elements, else the child itself.
        """
        if child >= 0:
            return ""
        paths = [scope.path for scope in calls_in(self.groups, ~child).values()]
        if not paths:
            return ""
        return list_of(paths[0]) if is_list(paths) and list_of(paths[0]) else child

    def _between(
        self,
        group_id: int,
        shown: int,
    ) -> list[tuple[int, int]]:
        """The stretches of children but some at both ends, what is open, and a large
        part.
        """
        children = self.groups[group_id].children
        if self.groups[group_id].kind == "run":
            return []

        first, after = -(-shown // 2), len(children) - shown // 2
        most = SHARE * self.sizes.ops(group_id)
        kept = [
            i
            for i, child in enumerate(children)
            if child < 0 and self._is_kept(~child, most)
        ]
        ends = pairwise(
            [
                first - 1,
                *(i for i in kept if first <= i < after),
                after,
            ]
        )

        return [(a + 1, b) for a, b in ends if LEAST <= b - a - 1 < len(children)]

    def _is_kept(self, group_id: int, most: float) -> bool:
        return (
            group_id in self.open
            or group_id in self.windows
            or self.sizes.ops(group_id) > most
        )

    def _fits(self, limits: Limits) -> bool:
        size = self.sizes.of[0]
        return (
            size.width <= limits.width
            and size.height <= limits.height
            and self.sizes.boxes <= limits.boxes
        )

    def _enclose(
        self,
        group_id: int,
        first: int,
        after: int,
        *,
        is_rest: bool = False,
    ) -> int:
        if is_rest:
            piece = Stretch(group_id, "run", turns=after - first, is_rest=True)
        else:
            piece = Stretch(group_id, "segment")

        (window,) = self.groups.enclose(
            group_id,
            [(first, after, piece)],
        )
        self.windows.append(window)
        self.sizes.regroup(group_id)
        self._resized(group_id)
        return window

    def _enclose_all(
        self,
        group_id: int,
        pieces: list[tuple[int, int]],
    ) -> None:
        # from the end, so that the places of earlier pieces stay valid
        for first, after in reversed(pieces):
            self._enclose(group_id, first, after)

    def _undo_to(self, count: int) -> None:
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

    def reset(self) -> None:
        """Close everything, and take all windows away."""
        self._back_to({0})
        self._undo_to(0)

    def close_all(self) -> None:
        """Close the whole graph, too."""
        self.open.clear()

    def _back_to(self, before: set[int]) -> None:
        for group_id in self.open - before:
            self._close(group_id)

    def shut_bodies(self) -> Iterator[object]:
        """Classes that have a large part of all ops in closed groups that could be
        opened, and none that is open; the largest first.
        """
        shut: dict[object, float] = {}
        for child, _ in self.visible():
            if child < 0 and self._may_open(~child) and not self._is_layer(~child):
                name = self._class(~child)
                shut[name] = shut.get(name, 0.0) + self._weight.get(~child, 0.0)

        shown = set(map(self._class, self.open))
        for name in sorted(shut, key=shut.__getitem__, reverse=True):
            if name not in shown and shut[name] > SHARE * self._weight[0]:
                yield name

    def _class(self, group_id: int) -> object:
        """Equal for calls of modules of one class."""
        scope = self.groups[group_id].scope
        return (
            group_id if scope is None else self.groups.graph.scopes[scope].type or scope
        )

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
                    self._enclose(outer, first, after, is_rest=True)

        for outer in reversed(chain):
            self._open(outer)

    def show_levels(self, levels: int, inside: int = 0) -> None:
        """Open as many levels of calls in a group; later turns of what repeats stay
        closed.
        """
        waiting = [(inside, levels)]
        for group_id, left in waiting:  # grows while it is read
            if group_id != inside and not self._is_within(group_id, left):
                continue

            if group_id not in self.open:
                self._open(group_id)

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
        return left > 0 and self._may_open(group_id)

    def show_all(self, inside: Iterable[int]) -> None:
        """Open groups and everything in them."""
        for group_id in inside:
            self.show(group_id)
            waiting = [group_id]
            for outer in waiting:  # grows while it is read
                self._open(outer)
                waiting += [
                    ~child for child in self.groups[outer].children if child < 0
                ]

    def named(self, path: str) -> list[int]:
        """Groups of the module or function at a path: each of a few calls, else the
        first.
        """
        scopes = self.groups.graph.scopes
        found = [
            group_id
            for group_id, group in enumerate(self.groups)
            if group.scope is not None and scopes[group.scope].path == path
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
            (
                groups[~child].is_rest,
                -self.sizes.ops(call),
                call,
                scope,
            )
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

    # -- open and closed ---------------------------------------------------------------

    def _open(self, group_id: int) -> None:
        if group_id not in self.open:
            self.open.update(self._with_turn(group_id))
            self._resized(self._with_turn(group_id)[-1])

    def _close(self, group_id: int) -> None:
        self.open.difference_update(self._with_turn(group_id))
        self._resized(self._with_turn(group_id)[-1])

    def _with_turn(self, group_id: int) -> list[int]:
        """A group, and with a run its first turn when that is no group of its own."""
        first = (
            self.groups[group_id].children[0] if self.groups[group_id].children else 0
        )
        is_run = (
            self.groups[group_id].kind == "run"
            and first < 0
            and self.groups[~first].kind == "turn"
        )
        return [group_id, ~first] if is_run else [group_id]

    def _resized(self, group_id: int) -> None:
        self.sizes.update(group_id, self.open)


def _later(groups: Groups) -> set[int]:
    """Calls of a module that are like an earlier call of it."""
    first: dict[tuple[str, int], int] = {}
    structured = (
        (group_id, group.scope)
        for group_id, group in enumerate(groups)
        if group.scope in groups.structure
    )
    calls = (
        (group_id, (groups.graph.scopes[scope].path, groups.structure[scope]))
        for group_id, scope in structured
        if scope is not None
    )

    return {
        group_id
        for group_id, key in calls
        if first.setdefault(key, group_id) != group_id
    }
