"""Opens as much as a page holds, the body of a model first.

The heaviest closed group is opened first, where what a group shows counts for all turns
of its run; groups of few ops come last. A group that does not fit opens as a window.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from gradviz.fold.folding import Folding, folded
from gradviz.fold.grouping import SMALL
from gradviz.fold.groups import Section
from gradviz.fold.opening import Limits, Opening
from gradviz.fold.order import is_view
from gradviz.fold.titles import has_calls, list_of, parts_in, pattern, turns_in
from gradviz.fold.windows import SHARE, between, window
from gradviz.layout.layered.u_shapes import is_u

NORM = re.compile(r"Norm\w*$")
LAYER = re.compile(rf"(Linear|Conv\dd|(LSTM|GRU|RNN)(Cell)?)$|{NORM.pattern}")
"""Classes whose name says all, of however many ops they are."""
FEW = 4
"""Ops of a group up to which a box says about as much as its ops would."""
TERMS = 10
"""Ops that a loss of one term may have."""


class Filling:
    """Of one opening. `in_full`: a small module in focus is opened with all in it."""

    def __init__(
        self, opening: Opening, focus: Section | None = None, *, in_full: bool = True
    ) -> None:
        self.opening, self.focus, self._in_full = opening, focus, in_full
        self._limits: Limits | None = None
        self._foldings: dict[object, Folding] = {}
        self._layers: dict[Section, bool] = {}
        self._whole, self._sizes = opening.whole, opening.sizes
        self._ops = float(self._sizes.ops(self._whole))
        self._weight = {self._whole: self._ops}
        self._blocks = list(self._repeated())
        self._body = {outer for block in self._blocks for outer in block.around()}
        self._losses = set(filter(self._is_loss, opening.groups))
        opening.kept = self._body
        # the groups at the same place in siblings, by the first of them
        self._alike: dict[Section, list[Section]] = {}

    def folding(self) -> Folding:
        """What is open as boxes and edges, the same record for the same view."""
        shown = map(self._sizes.span, self.opening.visible())
        view = tuple(shown), frozenset(self.opening.open)
        if view not in self._foldings:
            self._foldings[view] = folded(self.opening)
        return self._foldings[view]

    def fill(self, limits: Limits) -> None:
        """Open what is in focus, the heaviest first, as far as the page holds it."""
        limits = Limits(*limits[:3])  # how the data runs changes no estimate
        if limits == self._limits:
            return
        self._limits, inside = limits, self.focus or self._whole
        self._alike.clear()
        self._weight = {self._whole: self._ops}
        self.opening.reset()
        if self.focus and self._in_full and self._sizes.ops(inside) <= SMALL:
            self.opening.show_all([inside])
        else:
            self.opening.show(inside)

        if not self.opening.fits(limits):
            window(self.opening, inside, limits)

        waiting = self._closed(inside)
        few: list[Section] = []
        while waiting:
            choice = max(
                waiting, key=lambda group: (self._weight[group], -group.number)
            )
            waiting.remove(choice)
            if choice.parent not in self.opening.open:
                continue  # in a window that was made meanwhile
            # boxes of two or three ops: opening some and not others would look
            # arbitrary
            together = self._together(choice)
            if choice not in self.opening.open and self._ops_of_one(choice) <= FEW:
                few += together
            elif choice in self.opening.open or self._try(together, limits):
                waiting += self._inside(together)

        self._open_few(few, limits)

    def _inside(self, together: list[Section]) -> list[Section]:
        """What could be opened next in groups that were opened together, the same in
        each.
        """
        inner = [
            [
                group
                for turn in (opened, *opened.shown)
                for group in self._closed(turn)
                if group not in opened.shown
            ]
            for opened in together
        ]
        if len(set(map(len, inner))) > 1:
            return [group for groups in inner for group in groups]
        if len(together) > 1:
            self._alike.update({first: others for first, *others in zip(*inner)})
        return inner[0]

    def _together(self, group: Section) -> list[Section]:
        """A group with what stands beside it: groups of the same class of which none
        needs another, such as experts, heads and towers.
        """
        # a call again stays closed where the first one opens
        others = list(filter(self._may_try, self._alike.get(group, ())))
        parent = group.parent
        if parent is None or parent.kind == "run":
            return [group, *others]
        name = _class(group)
        beside = {
            place: child
            for place, child in enumerate(parent.children)
            if isinstance(child, Section)
            and _class(child) == name
            and self._may_try(child)
        }
        if len(beside) > 1:
            related = self._sizes.related(parent, parent.children.index(group))
            others = others + [beside[i] for i in beside if i not in related]
        return [group, *others]

    def _open_few(self, few: list[Section], limits: Limits) -> None:
        """Open groups of few ops all together, and what is in them, or none."""
        before = set(self.opening.open)
        for group in few:  # grows while it is read
            if group.parent not in self.opening.open:
                continue
            shown = _with_turns(group, self._siblings(group))
            for opened in shown:
                self.opening.unfold(opened)
            for opened in dict.fromkeys((*shown, *group.shown)):
                inner = self._closed(opened)
                few += [one for one in inner if one not in self.opening.open]
        # all or none: with some of them a reader would ask why these
        if not self.opening.fits(limits):
            self.opening.back_to(before)

    def _try(self, together: list[Section], limits: Limits) -> bool:
        """Open groups together, or a window of a single one; for a body, also with
        windows of the groups around it. Of a run of siblings all turns are opened, or
        one where the page does not hold all.
        """
        group, *others = together
        if not others and self._try_siblings(group, limits):
            return True
        shells = [shell for one in together for shell in self._shells(one)]
        if self._unfolded(shells, limits):
            return True
        if not others and window(self.opening, shells[-1], limits):
            return True

        windows_before = len(self.opening.windows)
        # worth to close something else for it
        is_heavy = self._weight[group] > SHARE * self._ops
        # siblings are in one state
        kept = shells if others else []
        if is_heavy and self._make_room(shells[-1], kept, limits):
            return True

        # nothing helped: as before, but for one box for a whole network
        self.opening.undo_to(windows_before)
        is_body = self._is_body(group)
        if is_body and window(self.opening, shells[-1], limits, of_any=True):
            return True
        self._close(shells)
        return False

    def _unfolded(self, groups: list[Section], limits: Limits) -> bool:
        """Open groups, and say whether the page holds that."""
        for group in groups:
            self.opening.unfold(group)
        return self.opening.fits(limits)

    def _close(self, groups: list[Section]) -> None:
        for group in reversed(groups):
            self.opening.close(group)

    def _make_room(self, group: Section, kept: list[Section], limits: Limits) -> bool:
        """Make windows of a group and those around it, but for those to be kept, until
        the page holds what is open.
        """
        opening = self.opening
        for outer in list(group.around()):
            if outer in kept:
                continue
            if window(opening, outer, limits):
                return True
            # all of a group is no window of it
            pieces = between(opening, outer, 0) or between(opening, outer, 2)
            opening.enclose(outer, pieces)
        return False

    def _siblings(self, run: Section) -> list[Section]:
        """The turns of a run of which none needs another; nothing where they do."""
        if run.kind != "run" or run.feeds:
            return []
        if run.turns > FEW if run.is_loop else self._sizes.wires(run):
            return []
        turns = [turn for turn in turns_in(run) if isinstance(turn, Section)]
        # a module that is called again says so, and stays closed
        return turns if all(map(self._may_try, turns)) else []

    def _try_siblings(self, run: Section, limits: Limits) -> bool:
        """Open a run of siblings with all its turns."""
        siblings = self._siblings(run)
        if not siblings:
            return False
        opened = _with_turns(run, siblings)
        if self._unfolded(opened, limits):
            self._alike[siblings[0]] = siblings[1:]
            inner = [turn.inner for turn in siblings if turn.kind == "turn"]
            self._alike.update({first: others for first, *others in zip(*inner)})
            return True
        self._close(opened)
        return False

    def _shells(self, group: Section) -> list[Section]:
        """A group, and the one that is all of it, from outside in."""
        shells = [group]
        while len(shells[-1].children) == 1:
            inner = shells[-1].inner
            if not inner or not self._may_try(inner[0]):
                break
            shells += inner
        return shells

    def open_bodies(self, boxes: float) -> None:
        """Open modules and functions that have most of all ops, however large their
        picture is, as long as there are no more boxes than that: one box for a whole
        network says nothing.
        """
        while True:
            body = next(filter(self._is_body, self.opening.closed()), None)
            if body is None:
                return
            self.opening.unfold(body)
            if self._sizes.boxes > boxes:
                self.opening.close(body)
                return

    def _is_body(self, group: Section) -> bool:
        is_large = self._sizes.ops(group) > max(self._ops / 2, SMALL)
        return is_large and group.kind == "call" and self._may_try(group)

    def is_u(self) -> bool:
        """Whether an open group is one of a U-Net, as far as its own wires tell."""
        opened = (group for group in self.opening.open if group.children)
        return any(is_u(self._sizes.wires(group)) for group in opened)

    def closed_share(self) -> float:
        """The part of all ops that is in closed groups of one kind that could be opened
        and of which none is: of the kind with most. Where what repeats is closed, the
        part of it that is.
        """
        shut = [block for block in self._blocks if block not in self.opening.open]
        if shut:
            return len(shut) / len(self._blocks)

        closed: dict[object, float] = {}
        for group in filter(self._may_try, self.opening.closed()):
            share = self._weight.get(group, 0.0)
            closed[_place(group)] = closed.get(_place(group), 0.0) + share

        for place in map(_place, self.opening.open):
            closed.pop(place, None)
        return min(1.0, max(closed.values(), default=0.0) / max(self._ops, 1.0))

    def closed_losses(self) -> int:
        """How many losses are closed that could be opened."""
        closed = self._losses.intersection(self.opening.closed())
        return sum(map(self._may_try, closed))

    def _is_loss(self, group: Section) -> bool:
        """Whether a call comes after all that has parameters, and computes so much that
        it has several terms.
        """
        record, sizes = group.record, self._sizes
        if record is None or record.kind not in ("module", "function"):
            return False
        return sizes.ops(group) > TERMS and sizes.is_after_leaves(group)

    def _repeated(self) -> Iterator[Section]:
        """Of modules that repeat and have a large part of the ops of a model, in none
        that do, the first call of the usual size.
        """
        ops = self._sizes.ops
        whole_calls = [group for group in self.opening.groups if not group.part]
        modules = list(filter(_has_parameters, whole_calls))
        kinds: dict[object, list[Section]] = {}
        for module in modules:
            kinds.setdefault(_place(module), []).append(module)

        totals = [(sum(map(ops, calls)), calls) for calls in kinds.values()]
        model = max(map(ops, modules), default=0)
        totals.sort(key=lambda kind: (-kind[0], kind[1][0].number))
        inside: set[Section] = set()
        for total, calls in totals:
            if total <= SHARE * model or len(calls) < 2:
                continue
            if is_layer(calls[0]) or _is_list(calls[0]):
                continue
            if not inside.isdisjoint(calls[0].around()):
                continue
            inside.update(calls)
            sizes = Counter(map(ops, calls))
            usual = max(sizes, key=sizes.__getitem__)
            for call in calls:
                if ops(call) == usual and self._can_show(call):
                    yield call
                    break

    def _can_show(self, group: Section) -> bool:
        """Whether a group can be opened, with all around it."""
        for inner, outer in pairwise(group.around()):
            if outer.shown and inner not in outer.shown:
                return False
        return all(map(self.opening.may_open, group.around()))

    def _closed(self, group: Section) -> list[Section]:
        """Groups that could be opened among the children of one that was opened just
        now.
        """
        shares: dict[Section, float] = {}
        first_of: dict[object, Section] = {}
        weight = self._weight.get(group, 0.0)
        total_ops = max(self._sizes.ops(group), 1)
        # one turn that is opened shows what all do
        shown, stands_for = group.inner, 1
        if group.kind == "run":
            turns = group.shown or group.children[:1]
            shown = [turn for turn in turns if isinstance(turn, Section)]
            stands_for = max(group.turns // len(turns), 1)

        lists = Counter(map(_list, shown))
        # what repeats stands for all that are like it
        for child in sorted(shown, key=lambda child: child not in self._body):
            if self._may_try(child):
                # and one element of a list, where others differ in constants alone
                key = _list_and_ops(child) if lists[_list(child)] > 1 else child
                first = first_of.setdefault(key, child)
                share = weight * self._sizes.ops(child) * stands_for / total_ops
                if first_of.setdefault(_list(first), first) is not first:
                    share /= 2  # like an earlier one, whose inside says more
                if child in self._body:
                    share = self._ops  # before a loss, a stem or a head
                shares[first] = max(shares.get(first, 0.0), share)

        # the terms of a loss say more than what is in the layers beside it
        most = max(shares.values(), default=0.0)
        for loss in self._losses.intersection(shares):
            shares[loss] = max(shares[loss], min(2 * shares[loss], most))
        self._weight.update(shares)
        return list(shares)

    def _may_try(self, group: Section) -> bool:
        if not self.opening.may_open(group):
            return False
        if group not in self._layers:
            self._layers[group] = is_layer(group)
        return not self._layers[group]

    def _ops_of_one(self, group: Section) -> int:
        """Ops of a group, of a run those of its first turn."""
        if group.kind != "run":
            return self._sizes.ops(group)
        first, after = self._sizes.span((group.shown or group.children)[0])
        return after - first


# -- what groups have in common --------------------------------------------------------


def _has_parameters(group: Section) -> bool:
    """Whether a group is a call of a module that has some, as far as is known."""
    record = group.record
    return record is not None and bool(record.type) and record.parameters != 0


def _with_turns(run: Section, turns: list[Section]) -> list[Section]:
    """What shows these turns of a run when it is open."""
    around = [turn.parent or run for turn in turns]
    shown = [turn for turn in turns if turn.kind == "turn"]
    return list(dict.fromkeys((run, *around, *shown)))


def is_layer(group: Section) -> bool:
    """Whether a call is a layer that its class says all about: a linear map, a
    convolution, an activation, a norm, a recurrent cell; attention, a loss, and whatever
    else torch computes by itself.
    """
    record = group.record
    if record is None or not record.type or has_calls(group):
        return False
    if sum(not is_view(op) for op in group.op_names) <= 1:
        return True
    lines = {group.tree.graph.nodes[node].source for node in group.nodes}
    is_written = group.tree.is_written(group.scope)
    if len(lines) == 1 and None not in lines and not is_written:
        return True
    # a layer of the user's own does more than its name says
    is_own = len(lines) > 1 or (is_written and bool(group.tree.recorded.program))
    return (NORM if is_own else LAYER).search(record.type) is not None


def _is_list(group: Section) -> bool:
    """Whether a call only runs modules of one kind, one after another."""
    parts = [part for child in group.children for part in parts_in(child)]
    calls = [part for part in parts if isinstance(part, Section) and part.record]
    return len(calls) == len(parts) and len(set(map(_place, calls))) == 1


def _place(group: Section) -> object:
    """Equal for calls of modules of one class at places of one kind."""
    record = group.record
    return (pattern(record.path), record.type) if record else group


def _class(group: Section) -> object:
    """Equal for calls of modules of one class, and of one function."""
    record = group.record
    return (record.type or record.path) if record else group


def _list(group: Section) -> object:
    """Equal for elements of one list that are of one class."""
    record = group.record
    if record is None or not list_of(record.path):
        return group
    return list_of(record.path), record.type


def _list_and_ops(group: Section) -> object:
    """Equal for elements of one list that ran equal ops; in a graph whose repeats
    stand alone, for none.
    """
    if _list(group) is group or not group.tree.structure:
        return group
    return _list(group), group.op_names
