"""Opens as much as a page holds, the body of a model first.

The heaviest closed group is opened first, where what a group shows counts for all turns
of its run; groups of few ops come last. A group that does not fit opens as a window.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from gradviz.fold.grouping import SMALL
from gradviz.fold.opening import Limits, Opening
from gradviz.fold.order import is_view
from gradviz.fold.titles import has_calls, list_of, parts_in
from gradviz.fold.windows import SHARE, between, window
from gradviz.graph.origins import around

LAYER = re.compile(r"(Linear|Conv\dd|Norm\w*|(LSTM|GRU|RNN)(Cell)?)$")
"""Classes whose name says all, of however many ops they are."""
FEW = 4
"""Ops of a group up to which a box says about as much as its ops would."""


class Filling:
    """Of one opening. `in_full`: a small module in focus is opened with all in it."""

    def __init__(self, opening: Opening, *, in_full: bool = True) -> None:
        self.opening, self.in_full = opening, in_full
        self._groups, self._sizes = opening.groups, opening.sizes
        self._weight: dict[int, float] = {0: float(self._sizes.ops(0))}
        self._blocks = list(self._repeated())
        ways = [around(self._groups, block) for block in self._blocks]
        self._body = set[int]().union(*ways)
        opening.kept = self._body
        # the groups at the same place in siblings, by the first of them
        self._alike: dict[int, list[int]] = {}

    def fill(self, limits: Limits, inside: int = 0) -> None:
        """Open what is in a group, the heaviest first, as far as the page holds it."""
        self._alike.clear()
        self._weight = {0: float(self._sizes.ops(0))}
        if inside not in self.opening.open:
            self.opening.show(inside)

        if not self.opening.fits(limits):
            window(self.opening, inside, limits)

        waiting = self._closed(inside)
        few: list[int] = []
        while waiting:
            choice = max(
                waiting, key=lambda group_id: (self._weight[group_id], -group_id)
            )
            waiting.remove(choice)
            if self._groups[choice].parent not in self.opening.open:
                continue  # in a window that was made meanwhile
            # boxes of two or three ops: opening some and not others would look
            # arbitrary
            together = self._together(choice)
            if choice not in self.opening.open and self._ops_of_one(choice) <= FEW:
                few += together
            elif choice in self.opening.open or self._try(together, limits):
                waiting += self._inside(together)

        self._open_few(few, limits)

    def _inside(self, together: list[int]) -> list[int]:
        """What could be opened next in groups that were opened together, the same in
        each.
        """
        inner = [
            [
                group_id
                for turn in self.opening.with_turn(opened)
                for group_id in self._closed(turn)
                if group_id not in self.opening.with_turn(opened)
            ]
            for opened in together
        ]
        if len(set(map(len, inner))) > 1:
            return [group_id for groups in inner for group_id in groups]
        if len(together) > 1:
            self._alike.update({first: others for first, *others in zip(*inner)})
        return inner[0]

    def _together(self, group_id: int) -> list[int]:
        """A group with what stands beside it: groups of the same class of which none
        needs another, such as experts, heads and towers.
        """
        others = self._alike.get(group_id, [])
        parent = self._groups[group_id].parent
        children = self._groups[parent or 0].children
        if parent is None or self._groups[parent].kind == "run":
            return [group_id, *others]
        name = self._class(group_id)
        beside = [
            place
            for place, child in enumerate(children)
            if child < 0 and self._class(~child) == name and self._may_try(~child)
        ]
        if len(beside) > 1:
            related = self._sizes.related(parent, children.index(~group_id))
            others = others + [~children[i] for i in beside if i not in related]
        return [group_id, *others]

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

    def _try(self, together: list[int], limits: Limits) -> bool:
        """Open groups together, or a window of a single one; for a body, also with
        windows of the groups around it. Of a run of siblings all turns are opened, or
        one where the page does not hold all.
        """
        group_id = together[0]
        if len(together) == 1 and self._try_siblings(group_id, limits):
            return True
        shells = [shell for one in together for shell in self._shells(one)]
        for shell in shells:
            self.opening.unfold(shell)
        if self.opening.fits(limits):
            return True
        if len(together) == 1 and window(self.opening, shells[-1], limits):
            return True

        windows_before = len(self.opening.windows)
        # worth to close something else for it
        is_heavy = self._weight[group_id] > SHARE * self._weight[0]
        # siblings are in one state
        kept = shells if len(together) > 1 else []
        if is_heavy and self._make_room(shells[-1], kept, limits):
            return True

        # nothing helped: as before
        self.opening.undo_to(windows_before)
        for shell in reversed(shells):
            self.opening.close(shell)
        return False

    def _make_room(self, group_id: int, kept: list[int], limits: Limits) -> bool:
        """Make windows of a group and those around it, but for those to be kept, until
        the page holds what is open.
        """
        opening = self.opening
        for outer in around(self._groups, group_id):
            if outer in kept:
                continue
            if window(opening, outer, limits):
                return True
            # all of a group is no window of it
            pieces = between(opening, outer, 0) or between(opening, outer, 2)
            opening.enclose_all(outer, pieces)
        return False

    def _siblings(self, run: int) -> list[int]:
        """The turns of a run of which none needs another; nothing where they do."""
        group = self._groups[run]
        if group.kind != "run" or len(group.children) != 2 or self._sizes.wires(run):
            return []
        first, second = (~child for child in group.children)
        if first < 0 or not self._may_try(first):
            return []
        if not self._groups[second].is_rest:
            others = [second]
        else:
            others = [~child for child in self._groups[second].children]
        # a module that is called again says so, and stays closed
        return [first, *others] if all(map(self._may_try, others)) else []

    def _try_siblings(self, run: int, limits: Limits) -> bool:
        """Open a run of siblings with all its turns."""
        siblings = self._siblings(run)
        if not siblings:
            return False
        first, *others = siblings
        rest = self._groups[others[0]].parent or run
        turns = [turn for turn in others if self._groups[turn].kind == "turn"]
        opened = list(dict.fromkeys((run, rest, *turns)))
        for group_id in opened:
            self.opening.unfold(group_id)
        if self.opening.fits(limits):
            self._alike[first] = others
            return True
        for group_id in reversed(opened):
            self.opening.close(group_id)
        return False

    def _shells(self, group_id: int) -> list[int]:
        """A group, and the one that is all of it, from outside in."""
        shells = [group_id]
        while len(self._groups[shells[-1]].children) == 1:
            inner = ~self._groups[shells[-1]].children[0]
            if inner < 0 or not self._may_try(inner):
                break
            shells.append(inner)
        return shells

    def open_bodies(self, boxes: float) -> bool:
        """Open modules and functions that have most of all ops, however large their
        picture is, as long as there are no more boxes than that: one box for a whole
        network says nothing. Whether there were any.
        """
        opened = False
        while True:
            closed = (~child for child, _ in self.opening.visible() if child < 0)
            body = next(filter(self._is_body, closed), None)
            if body is None:
                return opened
            self.opening.unfold(body)
            if self._sizes.boxes > boxes:
                self.opening.close(body)
                return opened
            opened = True

    def _is_body(self, group_id: int) -> bool:
        least = max(self._sizes.ops(0) / 2, SMALL)
        is_large = self._sizes.ops(group_id) > least
        is_call = self._groups[group_id].kind == "call"
        return is_large and is_call and self._may_try(group_id)

    def closed_share(self) -> float:
        """The part of all ops that is in closed groups of one kind that could be opened
        and of which none is: of the kind with most. Where what repeats is closed, the
        part of it that is.
        """
        shut = [block for block in self._blocks if block not in self.opening.open]
        if shut:
            return len(shut) / len(self._blocks)

        closed: dict[object, float] = {}
        for child, _ in self.opening.visible():
            inner = ~child
            if child < 0 and self._may_try(inner):
                place = self._place(inner)
                closed[place] = closed.get(place, 0.0) + self._weight.get(inner, 0.0)

        for place in map(self._place, self.opening.open):
            closed.pop(place, None)
        return min(1.0, max(closed.values(), default=0.0) / max(self._weight[0], 1.0))

    def _repeated(self) -> Iterator[int]:
        """Of modules that repeat and have a large part of all ops, in none that do, the
        first call of the usual size.
        """
        groups, ops = self._groups, self._sizes.ops
        kinds: dict[object, list[int]] = {}
        for group_id, group in enumerate(groups):
            if self._is_module(group_id) and not group.part:
                kinds.setdefault(self._place(group_id), []).append(group_id)

        large = [(sum(map(ops, calls)), calls) for calls in kinds.values()]
        large = [(total, calls) for total, calls in large if total > SHARE * ops(0)]
        inside: set[int] = set()
        for _, calls in sorted(large, key=lambda kind: (-kind[0], kind[1])):
            if len(calls) < 2 or self._is_layer(calls[0]) or self._is_list(calls[0]):
                continue
            if not inside.isdisjoint(around(groups, calls[0])):
                continue
            inside.update(calls)
            sizes = Counter(map(ops, calls))
            usual = max(sizes, key=sizes.__getitem__)
            for call in calls:
                if ops(call) == usual and self._can_show(call):
                    yield call
                    break

    def _can_show(self, group_id: int) -> bool:
        """Whether a group can be opened, with all around it."""
        way = list(around(self._groups, group_id))
        for inner, outer in pairwise(way):
            turns = self._groups[outer].shown
            if turns and inner not in turns:
                return False
        return all(map(self.opening.may_open, way))

    def _is_module(self, group_id: int) -> bool:
        """Whether a group is a call of a module."""
        scope_id = self._groups[group_id].scope
        return scope_id is not None and bool(self._groups.graph.scopes[scope_id].type)

    def _place(self, group_id: int) -> object:
        """Equal for calls of modules of one class at places of one kind."""
        scope_id = self._groups[group_id].scope
        if scope_id is None:
            return group_id
        scope = self._groups.graph.scopes[scope_id]
        return re.sub(r"\d+", "#", scope.path), scope.type

    def _is_list(self, group_id: int) -> bool:
        """Whether a call only runs modules of one kind, one after another."""
        children = self._groups[group_id].children
        parts = [part for child in children for part in parts_in(self._groups, child)]
        if any(part >= 0 or self._groups[~part].scope is None for part in parts):
            return False
        return len({self._place(~part) for part in parts}) == 1

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

        # what repeats stands for all that are like it
        for child in sorted(shown, key=lambda child: ~child not in self._body):
            inner = ~child
            if child < 0 and self._may_try(inner):
                # and one element of a list, where others differ in constants alone
                first = first_of.setdefault(self._kin(inner), inner)
                share = weight * self._sizes.ops(inner) * stands_for / total_ops
                if first_of.setdefault(self._list(first), first) != first:
                    share /= 2  # like an earlier one, whose inside says more
                if inner in self._body:
                    share = self._weight[0]  # before a loss, a stem or a head
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

    def _may_try(self, group_id: int) -> bool:
        return self.opening.may_open(group_id) and not self._is_layer(group_id)

    def _class(self, group_id: int) -> object:
        """Equal for calls of modules of one class, and of one function."""
        scope_id = self._groups[group_id].scope
        if scope_id is None:
            return group_id
        scope = self._groups.graph.scopes[scope_id]
        return scope.type or scope.path

    def _ops_of_one(self, group_id: int) -> int:
        """Ops of a group, of a run those of its first turn."""
        group = self._groups[group_id]
        first = ~group.shown[0] if group.shown else group.children[0]
        if group.kind == "run":
            return 1 if first >= 0 else self._sizes.ops(~first)
        return self._sizes.ops(group_id)
