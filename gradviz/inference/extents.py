"""How far each call reaches beyond its operations with parameters, and which operations
its other modules made.

Three things tell. Few values go into and out of a module. All calls of one class begin
and end alike. And what a module without parameters computes follows from its class.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import takewhile

from gradviz.graph.origins import Registered
from gradviz.inference.layers import (
    ELEMENTWISE,
    MASKED,
    VIEWS,
    composes,
    makes,
    silent_inside,
)
from gradviz.inference.order import ForwardOrder, InferredCall, adapter_ends

_CELL = frozenset(
    ("Add", "Mul", "Sub", "Rsub", "Sigmoid", "Tanh", "Relu", "Stack", "Cat")
) | VIEWS.difference(("Select", "Slice"))
_ENDS_WITH: dict[str, frozenset[str]] = {
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _CELL),
    # the first state may need no gradient
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell"), _CELL | {MASKED}),
    **dict.fromkeys(
        ("MultiheadAttention", "InstanceNorm1d", "InstanceNorm2d", "GroupNorm"), VIEWS
    ),
}
"""Operations that modules of torch may end with; those of other classes end with their
parameters.
"""
_BEGINS_WITH = dict.fromkeys(
    ("MultiheadAttention", "InstanceNorm1d", "InstanceNorm2d", "LSTM", "GRU", "RNN"),
    VIEWS,
)
_LOSSES = ("Loss", "KlDiv", "CrossEntropy")
_DEEPEST = 30


class Extents:
    """Widens calls in place, and says for each position which call it lies in, and
    which module without parameters made it.
    """

    def __init__(
        self,
        modules: Sequence[Registered],
        order: ForwardOrder,
        calls: Sequence[InferredCall],
        anchored: Iterable[int],
    ) -> None:
        self._modules, self._order, self._calls = modules, order, calls
        self._stems = order.stems
        self._silent = silent_inside(modules, {call.module for call in calls})
        self._taken = bytearray(len(order))
        for position in anchored:
            self._taken[position] = 1
        # how often a call used each module without parameters
        self._used: Counter[tuple[InferredCall, int]] = Counter()
        self.made_by: dict[int, tuple[InferredCall, int]] = {}
        """Call and module by position, for what modules without parameters made."""

    def widen(self) -> None:
        """Widen all calls, inner ones first, and those that begin and end alike
        together.
        """
        for level in self._levels():
            for call in (call for group in level for call in group):
                self._fill(call)
            # what lies between two modules is rather the first one's result
            for group in level:
                self._widen(group, later=True)
            for group in level:
                starts = [call.start for call in group]
                self._widen(group, later=False)
                # what it begins with may be used again at its end
                if starts != [call.start for call in group]:
                    self._widen(group, later=True)

    def _widen(self, group: list[InferredCall], *, later: bool) -> None:
        # how far a call reaches is a question of its kind
        base = self._modules[group[0].module].base
        if base == "Linear":
            for call in group if later else ():
                self._with_flattening(call)
        elif base == "Sequential":
            for call in group:
                self._with_silent_ends(call, later=later)
        elif base:
            self._with_common_ends(
                group,
                (_ENDS_WITH if later else _BEGINS_WITH).get(base, frozenset()),
                later=later,
            )
        else:
            self._with_ends(group, later=later)

    def _levels(self) -> list[list[list[InferredCall]]]:
        """Calls that begin and end alike: of one class, with the same modules without
        parameters inside. Inner ones come first.
        """
        groups: dict[Hashable, list[InferredCall]] = {}
        for call in self._calls:
            module = self._modules[call.module]
            key: Hashable = call
            # calls of one class end alike, so they are decided together
            if module.base in ("", *_ENDS_WITH):
                key = (
                    module.type,
                    module.base,
                    tuple(
                        self._modules[silent].type
                        for silent in self._silent[call.module]
                    ),
                )
            groups.setdefault(key, []).append(call)

        level = dict.fromkeys(self._calls, 0)
        # a class may contain itself, so there need not be an end
        for _ in range(_DEEPEST):
            before = dict(level)
            for call in self._calls:
                level[call] = max(
                    [level[call], *(1 + level[inner] for inner in call.inner)]
                )
            for group in groups.values():
                most = max(level[call] for call in group)
                level.update((call, most) for call in group)
            if level == before:
                break

        levels: dict[int, list[list[InferredCall]]] = {}
        for group in groups.values():
            levels.setdefault(level[group[0]], []).append(group)

        return [levels[number] for number in sorted(levels)]

    # -- inside ------------------------------------------------------------------------

    def _fill(self, call: InferredCall) -> None:
        """What lies between the parts of a call is its own, or of a module without
        parameters inside it.
        """
        free = [i for i in range(call.start, call.end + 1) if not self._taken[i]]
        self._give_composed(call, free)
        modules = [call.module, *(inside.module for inside in call.inner)]
        modules.append(len(self._modules))
        ends = [inside.end for inside in call.inner]
        between = []
        for position in free:
            self._taken[position] = 1
            gap = bisect_left(ends, position)
            if position not in self.made_by:
                between.append((position, modules[gap], modules[gap + 1]))

        # first where a module stands right between the two
        for position, before, after in between:
            # no module with parameters stands between the two
            if not any(before < inside < after for inside in modules):
                self._give(call, position, before, after, strictly=True)

        for position, before, after in between:
            if position not in self.made_by:
                self._give(call, position, before, after)

        if self._modules[call.module].base == "Sequential":
            left = [position for position in free if position not in self.made_by]
            self._give_to_neighbours(call.inner, left)

    def _give_to_neighbours(
        self, inner: Sequence[InferredCall], free: Sequence[int]
    ) -> None:
        """A sequence computes nothing of its own: what is left belongs to the module
        after it, or to the one before.
        """
        own = [call for call in inner if not self._modules[call.module].base]
        starts = {call.start: call for call in own}
        ends = {call.end: call for call in own}

        for position in reversed(free):
            # backwards, so that several ops in a row all go to the module after them
            if position + 1 in starts:
                call = starts[position] = starts[position + 1]
                call.start = position

        for position in free:
            if position - 1 in ends and position not in starts:
                call = ends[position] = ends[position - 1]
                call.end = position

    def _give(
        self,
        call: InferredCall,
        position: int,
        before: int,
        after: int,
        *,
        strictly: bool = False,
        is_end: bool = False,
    ) -> None:
        """Say that a module without parameters made this operation, when one of its
        kind is there, rather one not used yet.
        """
        fitting = self._makers(self._silent[call.module], position)
        if strictly:
            fitting = [silent for silent in fitting if before < silent < after]

        if fitting:
            chosen = min(
                fitting,
                key=lambda silent: (
                    # a module that is used once per call comes before one that was used
                    # already
                    self._used[call, silent],
                    not before < silent < after,
                    -silent if is_end else abs(silent - before),
                ),
            )
            self._used[call, chosen] += 1
            self.made_by[position] = call, chosen

    def _makers(self, modules: Iterable[int], position: int) -> list[int]:
        """Those of these modules that can have made an operation."""
        return [
            module
            for module in modules
            if makes(self._modules[module], self._order.kinds[position])
        ]

    def _give_composed(self, call: InferredCall, free: list[int]) -> None:
        """An activation that is written out takes the longest run of elementwise
        operations.
        """
        stems = self._order.kinds
        written_out = [
            silent
            for silent in self._silent[call.module]
            if composes(self._modules[silent])
        ]

        if len(written_out) != 1 or any(
            self._makers(written_out, position) for position in free
        ):
            return

        runs: list[list[int]] = [[]]
        for position in free:
            if runs[-1] and position != runs[-1][-1] + 1:
                runs.append([])
            if stems[position] in ELEMENTWISE:
                runs[-1].append(position)

        for position in max(runs, key=len):
            self.made_by[position] = call, written_out[0]

    # -- ends --------------------------------------------------------------------------

    def _gap(self, call: InferredCall, *, later: bool) -> range:
        """The positions right after a call, or right before it, nearest first, that
        nobody has taken.
        """
        first, step = (call.end + 1, 1) if later else (call.start - 1, -1)
        end = first
        while 0 <= end < len(self._order) and not self._taken[end]:
            end += step
        return range(first, end, step)

    def _gaps(self, group: Iterable[InferredCall], *, later: bool) -> list[range]:
        return [self._gap(call, later=later) for call in group]

    def _take(self, call: InferredCall, positions: Sequence[int]) -> None:
        """Widen a call by these positions, and all around it."""
        for position in positions:
            self._taken[position] = 1
            # what a module registers last rather ends it
            self._give(call, position, call.module, len(self._modules), is_end=True)

        outer: InferredCall | None = call
        while outer is not None:
            outer.start = min([outer.start, *positions])
            outer.end = max([outer.end, *positions])
            outer = outer.parent

    def _take_each(
        self, group: Sequence[InferredCall], gaps: Sequence[range], count: int
    ) -> None:
        """Widen each call by so many positions of its gap."""
        for call, gap in zip(group, gaps):
            self._take(call, gap[:count])

    def _with_flattening(self, call: InferredCall) -> None:
        """A linear layer makes a matrix of its input, and its output as its input was."""
        shapes, stems = self._order.shapes, self._stems
        after, before = self._gap(call, later=True), self._gap(call, later=False)

        if (
            not after
            or stems[after[0]] not in VIEWS
            or len(shapes[call.end] or ()) != 2
        ):
            return

        if (
            len(shapes[after[0]] or ()) == 2
            or call.end not in self._order.producers[after[0]]
        ):
            return

        if (shapes[after[0]] or (0,))[-1:] != (shapes[call.end] or (1,))[-1:]:
            return

        self._take(call, after[:1])
        if before and stems[before[0]] in VIEWS and len(shapes[before[0]] or ()) == 2:
            self._take(call, before[:1])

    def _with_silent_ends(self, call: InferredCall, *, later: bool) -> None:
        """Take what modules without parameters inside a call made beside it: all that a
        sequence computes.
        """
        positions = self._gap(call, later=later)
        count = _leading(self._ends_with(call, position) for position in positions)
        self._take(call, positions[:count])

    def _begins_with(self, call: InferredCall, position: int) -> bool:
        """Whether a module that is registered before all others may have made it."""
        first = min((inner.module for inner in call.inner), default=0)
        silent = [one for one in self._silent[call.module] if one < first]
        return bool(self._makers(silent, position))

    def _ends_with(self, call: InferredCall, position: int) -> bool:
        """Whether a module without parameters inside a call may have made what stands
        beside it: not one that made something already, where a call around has another.
        """
        own = self._makers(self._silent[call.module], position)
        if any(not self._used[call, module] for module in own):
            return True
        outer = call.parent
        while own and outer is not None:
            others = self._makers(self._silent[outer.module], position)
            if any(not self._used[outer, module] for module in others):
                return False
            outer = outer.parent
        return bool(own)

    def _with_common_ends(
        self, group: list[InferredCall], allowed: frozenset[str], *, later: bool
    ) -> None:
        gaps = self._gaps(group, later=later)
        common, kinds = gaps[0][: self._common(gaps)], self._order.kinds
        self._take_each(
            group, gaps, _leading(kinds[position] in allowed for position in common)
        )

    def _common(self, gaps: Sequence[range]) -> int:
        """How many operations all these places begin with alike."""

        def are_alike(places: Sequence[int]) -> bool:
            return len({self._stems[position] for position in places}) == 1

        return _leading(map(are_alike, zip(*gaps)))

    def _with_ends(self, group: list[InferredCall], *, later: bool) -> None:
        outermost = [call for call in group if call.parent is None]
        rest = [call for call in group if call.parent is not None]
        if rest and later:
            if not self._with_frozen(rest):
                self._widen_later(rest)
        elif rest:
            self._widen_earlier(rest)
        if outermost and later:
            self._to_the_loss(outermost)

    def _with_frozen(self, group: list[InferredCall]) -> bool:
        """Widen adapters, which hold frozen weights of their own; says whether these
        calls are some.
        """
        if not all(self._modules[call.module].frozen for call in group):
            return False

        ends = adapter_ends(
            self._order,
            group,
            self._gaps(group, later=False),
            self._gaps(group, later=True),
        )
        for call, (earlier, later) in zip(group, ends):
            self._take(call, later)
            self._take(call, earlier)

        return bool(ends)

    def _widen_later(self, group: list[InferredCall]) -> None:
        gaps = self._gaps(group, later=True)
        parts = self._parts(group, gaps)
        if len(parts) > 1:
            for part in parts:
                self._widen_later([group[i] for i in part])
            return
        self._by_cost(group, gaps, self._common(gaps), later=True)

    def _parts(self, group: list[InferredCall], gaps: list[range]) -> list[list[int]]:
        """Calls of one class that went on differently, as with a mask and without one:
        where they part in the midst of something, each kind is judged on its own.
        """
        most = self._common(gaps)
        parts: dict[str, list[int]] = {}

        for i, gap in enumerate(gaps):
            parts.setdefault(
                self._stems[gap[most]] if len(gap) > most else "", []
            ).append(i)

        def gets_cheaper(part: list[int]) -> bool:
            calls = [group[i] for i in part]
            return self._gets_cheaper(calls, [gaps[i] for i in part], most)

        kinds = list(parts.values())
        if all(map(gets_cheaper, kinds)):
            return kinds

        return [list(range(len(gaps)))]

    def _gets_cheaper(
        self, group: list[InferredCall], gaps: list[range], most: int
    ) -> bool:
        """Whether fewer values pass somewhere beyond `most` operations than anywhere
        before.
        """
        further = self._common(gaps)
        total = self._total(group, further, later=True)
        return min(total[most + 1 :], default=total[0]) < min(total[: most + 1])

    def _widen_earlier(self, group: list[InferredCall]) -> None:
        for call in group:
            silent = self._silent[call.module]
            # as the frozen layer beside an adapter
            if any(self._modules[module].parameters for module in silent):
                self._with_silent_ends(call, later=False)
        gaps = self._gaps(group, later=False)
        self._by_cost(group, gaps, self._common(gaps), later=False)

    def _by_cost(
        self, group: list[InferredCall], gaps: list[range], most: int, *, later: bool
    ) -> None:
        """Begin or end where the fewest values pass; of several such places the one
        that the kind of module suggests.
        """
        self._take_each(group, gaps, self._count(group, gaps[0][:most], later=later))

    def _is_numbered(self, call: InferredCall) -> bool:
        return self._modules[call.module].path.rpartition(".")[2].isdigit()

    def _count(self, group: list[InferredCall], gap: range, *, later: bool) -> int:
        """How much of the gap is the call's."""
        most = len(gap)
        total = self._total(group, most, later=later)
        ties = [i for i, cost in enumerate(total) if cost == min(total)]
        numbered = all(map(self._is_numbered, group))
        own_end = all(
            self._is_own(call, call.end if later else call.start) for call in group
        )
        count = ties[0]

        if later:
            loss = self._with_loss(gap) if own_end else 0
            count = max(count, loss)
        count = max(count, self._with_known(group[0], gap, total, later=later))

        if len(group) > 1 and (numbered or own_end):
            count = max(count, ties[-1])
        elif later and (count or own_end):
            count = self._with_views(group[0], gap, total, count)
        return count

    def _with_views(
        self, call: InferredCall, gap: range, total: list[int], count: int
    ) -> int:
        """How long a call is that also has the views at its end, up to where its result
        has the sizes of what it was given.
        """
        ends = [call.end, *gap]
        while (
            count < len(gap)
            and total[count + 1] <= total[count]
            and self._stems[gap[count]] in VIEWS
            and not self._is_as_given(call, ends[count])
        ):
            count += 1
        return count

    def _is_as_given(self, call: InferredCall, position: int) -> bool:
        """Whether a result has the sizes of what a call was given: it is one, then."""
        shapes = self._order.shapes
        given = [shapes[source] for source in self._order.producers[call.start]]
        return shapes[position] is not None and shapes[position] in given

    def _total(self, group: list[InferredCall], most: int, *, later: bool) -> list[int]:
        """How many values pass into and out of all these calls when each is 0, 1, ...
        `most` operations longer.
        """
        costs = []
        for call in group:
            end = self._end_around(call) if later else len(self._order)
            gap = self._gap(call, later=later)[:most]
            costs.append(self._order.costs(call, gap, end))
        return [sum(of_all) for of_all in zip(*costs)]

    def _end_around(self, call: InferredCall) -> int:
        if call.parent is not None and call.parent.end > call.end:
            return call.parent.end
        return len(self._order)

    def _with_known(
        self, call: InferredCall, gap: range, total: list[int], *, later: bool
    ) -> int:
        """How long a call must be to hold the last operation that a module without
        parameters inside it made.
        """
        length = 0
        for i, position in enumerate(gap):
            if not later and not self._begins_with(call, position):
                break
            if self._ends_with(call, position) and total[i + 1] <= total[0]:
                length = i + 1
        return length

    def _with_loss(self, gap: range) -> int:
        """How long a call must be to hold a loss of its own: a number made before the
        next module runs.
        """
        if gap.stop == len(self._order):
            return 0  # the loss of the whole model
        shapes = self._order.shapes
        numbers = [i + 1 for i, position in enumerate(gap) if shapes[position] == ()]
        return max([0, *numbers])

    def _is_own(self, call: InferredCall, position: int) -> bool:
        return not any(inner.start <= position <= inner.end for inner in call.inner)

    def _to_the_loss(self, group: list[InferredCall]) -> None:
        """The end of a whole model: up to what computes a loss, as long as no more
        values pass.
        """
        gaps = self._gaps(group, later=True)
        if len(group) == 1 and self._modules[group[0].module].takes_labels:
            self._take(group[0], gaps[0])
            return

        gap = gaps[0][: self._common(gaps)]
        costs = self._order.costs(group[0], gap, len(self._order))
        count = _leading(
            following <= cost and not self._is_loss(position)
            for position, cost, following in zip(gap, costs, costs[1:])
        )
        if any(map(self._is_loss, gap[count : count + 1])):
            while count and self._stems[gap[count - 1]] in VIEWS:
                count -= 1

        self._take_each(group, gaps, count)

    def _is_loss(self, position: int) -> bool:
        stem = self._stems[position]
        if stem == "LogSoftmax":
            return any(
                following.startswith("NllLoss")
                for following in self._stems[position + 1 : position + 2]
            )
        return (
            any(word in stem for word in _LOSSES) or self._order.shapes[position] == ()
        )


def _leading(hold: Iterable[bool]) -> int:
    """How many hold before the first that does not."""
    return sum(1 for _ in takewhile(bool, hold))
