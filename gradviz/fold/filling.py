"""Opens as much as a page holds, the body of a model first.

The heaviest closed group is opened first, where what a group shows counts for all turns
of its run; groups of few ops come last. A group that does not fit opens as a window.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradviz.fold.opening import Limits, Opening
from gradviz.fold.order import is_view
from gradviz.fold.titles import has_calls, list_of
from gradviz.fold.windows import SHARE, between, window
from gradviz.graph.origins import around

LAYER = re.compile(r"(Linear|Conv\dd|Norm\w*|(LSTM|GRU|RNN)(Cell)?)$")
"""Classes whose name says all, of however many ops they are."""
FEW = 4
"""Ops of a group up to which a box says about as much as its ops would."""


class Filling:
    """Of one opening."""

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self._groups, self._sizes = opening.groups, opening.sizes
        self._weight: dict[int, float] = {0: float(self._sizes.ops(0))}

    def fill(self, limits: Limits, inside: int = 0) -> None:
        """Open what is in a group, the heaviest first, as far as the page holds it."""
        if inside not in self.opening.open:
            self.opening.show(inside)

        if not self.opening.fits(limits):
            window(self.opening, inside, limits)

        waiting = self._closed(inside)
        few: list[int] = []
        while waiting:
            choice = max(
                waiting,
                key=lambda group_id: (self._weight[group_id], -group_id),
            )
            waiting.remove(choice)
            if self._groups[choice].parent not in self.opening.open:
                continue  # in a window that was made meanwhile
            # boxes of two or three ops: opening some and not others would look
            # arbitrary
            if choice not in self.opening.open and self._ops_of_one(choice) <= FEW:
                few.append(choice)
            elif choice in self.opening.open or self._try(choice, limits):
                for opened in self.opening.with_turn(choice):
                    waiting += [
                        inner
                        for inner in self._closed(opened)
                        if inner not in self.opening.with_turn(choice)
                    ]

        self._open_few(few, limits)

    def _open_few(self, few: list[int], limits: Limits) -> None:
        """Open groups of few ops all together, and what is in them, or none."""
        before = set(self.opening.open)
        for group_id in few:  # grows while it is read
            if self._groups[group_id].parent not in self.opening.open:
                continue
            self.opening.unfold(group_id)
            for opened in self.opening.with_turn(group_id):
                few += [
                    inner
                    for inner in self._closed(opened)
                    if inner not in self.opening.open
                ]
        # all or none: with some of them a reader would ask why these
        if not self.opening.fits(limits):
            self.opening.back_to(before)

    def _try(self, group_id: int, limits: Limits) -> bool:
        """Open a group, or a window of it; for a body, also with windows of the groups
        around it.
        """
        shells = self._shells(group_id)
        for shell in shells:
            self.opening.unfold(shell)
        if self.opening.fits(limits) or window(self.opening, shells[-1], limits):
            return True

        windows_before = len(self.opening.windows)
        # worth to close something else for it
        if self._weight[group_id] > SHARE * self._weight[0]:
            for outer in around(self._groups, shells[-1]):
                if window(self.opening, outer, limits):
                    return True
                # all of a group is no window of it
                self.opening.enclose_all(
                    outer,
                    between(self.opening, outer, 0) or between(self.opening, outer, 2),
                )

        # nothing helped: as before
        self.opening.undo_to(windows_before)
        for shell in reversed(shells):
            self.opening.close(shell)
        return False

    def _shells(self, group_id: int) -> list[int]:
        """A group, and the one that is all of it, from outside in."""
        shells = [group_id]
        while len(self._groups[shells[-1]].children) == 1:
            inner = ~self._groups[shells[-1]].children[0]
            if inner < 0 or not self.opening.may_open(inner) or self._is_layer(inner):
                break
            shells.append(inner)
        return shells

    def shut_bodies(self) -> Iterator[object]:
        """Classes that have a large part of all ops in closed groups that could be
        opened, and none that is open; the largest first.
        """
        shut: dict[object, float] = {}
        for child, _ in self.opening.visible():
            if (
                child < 0
                and self.opening.may_open(~child)
                and not self._is_layer(~child)
            ):
                name = self._class(~child)
                shut[name] = shut.get(name, 0.0) + self._weight.get(~child, 0.0)

        shown = set(map(self._class, self.opening.open))
        for name in sorted(shut, key=shut.__getitem__, reverse=True):
            if name not in shown and shut[name] > SHARE * self._weight[0]:
                yield name

    def _closed(self, group_id: int) -> list[int]:
        """Groups that could be opened among the children of one that was opened just
        now.
        """
        shares: dict[int, float] = {}
        first_of: dict[object, int] = {}
        group, weight = self._groups[group_id], self._weight.get(group_id, 0.0)
        total_ops = max(self._sizes.ops(group_id), 1)
        # one turn that is opened shows what all do
        is_run = group.kind == "run"
        shown, stands_for = group.children, 1
        if is_run:
            shown = [~turn for turn in group.shown] or group.children[:1]
            stands_for = max(group.turns // len(shown), 1)

        for child in shown:
            inner = ~child
            if child < 0 and self.opening.may_open(inner) and not self._is_layer(inner):
                # and one element of a list, where others differ in constants alone
                first = first_of.setdefault(self._kin(inner), inner)
                share = weight * self._sizes.ops(inner) * stands_for / total_ops
                if first_of.setdefault(self._list(first), first) != first:
                    share /= 2  # like an earlier one, whose inside says more
                shares[first] = max(shares.get(first, 0.0), share)

        self._weight.update(shares)
        return list(shares)

    def _kin(self, group_id: int) -> object:
        """Equal for elements of one list that ran equal ops; in a graph whose repeats
        stand alone, for none.
        """
        if self._list(group_id) == group_id or not self._groups.structure:
            return group_id
        ops = self._groups.graph.ops
        ran = tuple(ops[node] for node in self._groups.members(group_id))
        return self._list(group_id), ran

    def _list(self, group_id: int) -> object:
        """Equal for elements of one list that are of one class."""
        scope_id = self._groups[group_id].scope
        if scope_id is None:
            return group_id
        scope = self._groups.graph.scopes[scope_id]
        return (list_of(scope.path), scope.type) if list_of(scope.path) else group_id

    def _is_layer(self, group_id: int) -> bool:
        """Whether a call is a layer that its class says all about: a linear map, a
        convolution, an activation, a norm, a recurrent cell.
        """
        group = self._groups[group_id]
        if group.scope is None or not self._groups.graph.scopes[group.scope].type:
            return False
        if has_calls(self._groups, group_id):
            return False

        work = sum(
            not is_view(self._groups.graph.nodes[node].op)
            for node in self._groups.members(group_id)
        )

        return (
            work <= 1
            or LAYER.search(self._groups.graph.scopes[group.scope].type) is not None
        )

    def _ops_of_one(self, group_id: int) -> int:
        """Ops of a group, of a run those of its first turn."""
        group = self._groups[group_id]
        first = ~group.shown[0] if group.shown else group.children[0]
        if group.kind == "run":
            return 1 if first >= 0 else self._sizes.ops(~first)
        return self._sizes.ops(group_id)

    def _class(self, group_id: int) -> object:
        """Equal for calls of modules of one class."""
        scope = self._groups[group_id].scope
        return (
            group_id
            if scope is None
            else self._groups.graph.scopes[scope].type or scope
        )
