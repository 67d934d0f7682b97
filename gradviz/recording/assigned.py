"""The variables that hold what ops made, as the code says: `y = f(a * b)` names the
last op of `f`, and not the product.

A name belongs to an op where three things are known: the op ran while the value of the
assignment was computed and for nothing smaller; every other op of that moment leads to
it and to nothing else; and each function that was called returns it. Where one of these
is not known there is no name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, takewhile
from typing import NamedTuple

from gradviz.packages import CallSite
from gradviz.recording.event_log import ModuleCall, Moment
from gradviz.source.results import Assignment, assignment_of, is_returned, rearranges
from gradviz.source.spots import Spot, spots_of
from gradviz.walker.places import BareGraph
from gradviz.walker.private import LAST

LONGEST_TURN = 100
"""Ops of one turn of a loop that is found by its repeats."""

_SEVERAL = ("Split", "Unbind", "Chunk", "UnsafeSplit", "TensorSplit")
"""Ops with several results, which a line may give a variable each."""


class AssignedOps(NamedTuple):
    """Nodes one after the other that ran while one expression was computed, whose value
    is assigned.
    """

    site: CallSite
    spot: Spot
    assignment: Assignment
    nodes: list[int]


class AssignedNames:
    """Finds the variables of one graph. `moment_of` tells where the node of a sequence
    number was made, also of one that is not in the graph.
    """

    def __init__(
        self,
        bare: BareGraph,
        moments: Sequence[Moment],
        moment_of: Callable[[int], Moment],
    ) -> None:
        self._bare, self._moments, self._moment_of = bare, moments, moment_of
        numbers = bare.sequences
        self._order = [node for node in range(len(numbers)) if numbers[node] != LAST]
        self._order.sort(key=numbers.__getitem__)
        self._position = {node: i for i, node in enumerate(self._order)}
        # the position of the last use; beyond the end for one that has no number
        self._last_use: dict[int, int] = {}
        for edge in bare.edges:
            use = self._position.get(edge.consumer, len(numbers))
            if use > self._last_use.get(edge.producer, -1):
                self._last_use[edge.producer] = use

    def read(self) -> dict[int, str]:
        """The variable that holds the result of each node, by node id, where that is
        certain.
        """
        names: dict[int, str] = {}
        depths: dict[int, int] = {}
        for run in self._runs():
            for turn in self._turns(run):
                node = self._result(turn, run)
                if node is None:
                    continue
                # the innermost function says it best: it is where the op's line stands
                depth = sum(1 for _ in run.site.chain())
                if depth > depths.get(node, 0):
                    names[node], depths[node] = run.assignment.name, depth
        return names

    # -- ops of one assignment ---------------------------------------------------------

    def _runs(self) -> list[AssignedOps]:
        """Every run, of each function that was running."""
        known: dict[CallSite, list[AssignedOps]] = {}
        open_runs: dict[CallSite, tuple[int, AssignedOps]] = {}
        runs = []
        for i, node in enumerate(self._order):
            site = self._moments[node].site
            if site is None:
                continue
            if site not in known:
                known[site] = list(_assigning(site))

            for new in known[site]:
                end, run = open_runs.get(new.site, (-2, new))
                # another line ran in between, so this is the next time that it runs
                if end != i - 1:
                    run = new._replace(nodes=[])
                    runs.append(run)
                run.nodes.append(node)
                open_runs[new.site] = i, run
        return runs

    def _turns(self, run: AssignedOps) -> Iterator[list[int]]:
        """The nodes of each time that the line ran: by the module call that it made,
        else, in a loop, by what repeats.
        """
        nodes, moments = run.nodes, self._moments
        called = {node: _call_from(run.site, moments[node].module) for node in nodes}
        if any(called.values()):
            for _, turn in groupby(nodes, called.__getitem__):
                yield list(turn)
            return

        size = len(nodes)
        sites = [moments[node].site for node in nodes]
        callees = [spot for site in sites for spot in _between(run.site, site)]
        # a function that was called may have a loop of its own
        if run.spot.loops and all(spot and not spot.loops for spot in callees):
            # the body of a loop: each turn assigns the variable once more
            kinds = [self._bare.kinds[node] for node in nodes]
            size = _period(list(zip(kinds, sites)))
        for start in range(0, len(nodes), size):
            yield nodes[start : start + size]

    def _result(self, nodes: Sequence[int], run: AssignedOps) -> int | None:
        """The one node that all others lead to, which the functions called from the
        site return; None where this is not certain.
        """
        last = self._position[nodes[-1]]
        ends = []
        for node in nodes:
            use = self._last_use.get(node, -1)
            if use < 0 or use > last:
                ends.append(node)
        # several results, or one that a function computes and does not return: the
        # variable may hold something else
        if len(ends) != 1:
            return None
        node = ends[0]
        callees = _between(run.site, self._moments[node].site)
        if not all(spot and is_returned(spot) for spot in callees):
            return None
        if not callees and self._makes_another(node, run):
            return None
        is_changed = self._is_replaced(node, run) or self._is_passed_on(node, run)
        return None if is_changed or not self._fits(node, run) else node

    def _makes_another(self, node: int, run: AssignedOps) -> bool:
        """Whether a call of a library's gives no result of an op that it runs: it makes an
        object, or draws from a distribution, which computes its parameters when they are
        first asked for.
        """
        called = run.spot.called
        is_module = _call_from(run.site, self._moments[node].module) is not None
        return called == "sample" or (called[:1].isupper() and not is_module)

    def _fits(self, node: int, run: AssignedOps) -> bool:
        """Whether an op has as many results as there are names."""
        kind = getattr(self._bare.kinds[node], "__name__", "")
        if not kind.startswith(_SEVERAL):
            return not run.assignment.several
        spot = _spot(self._moments[node].site)
        return spot is not None and not rearranges(spot)

    def _is_replaced(self, node: int, run: AssignedOps) -> bool:
        """Whether a hook of the user's may have put another result in its place."""
        call = self._moments[node].module
        while call is not None and call.site is not None:
            if run.site not in call.site.chain():
                break
            if call.is_replaced:
                return True
            call = call.parent
        return False

    def _is_passed_on(self, node: int, run: AssignedOps) -> bool:
        """Whether something more was computed of it before it was assigned: a copy, or
        an op that is not in the graph any more, since a change in place replaced it.
        """
        number, position = self._bare.sequences[node] + 1, self._position[node] + 1
        if position < len(self._order):
            follower = self._order[position]
            if self._bare.sequences[follower] == number:
                spot = _spot(self._moments[follower].site)
                return spot is not None and spot.node in run.assignment.passed
        site, call, _ = self._moment_of(number)
        is_same_call = call is not None and call is self._moments[node].module
        return site is self._moments[node].site and (is_same_call or not run.spot.loops)


def _assigning(site: CallSite) -> Iterator[AssignedOps]:
    """The sites of a chain whose whole value is assigned."""
    for outer in site.chain():
        spot = _spot(outer)
        assignment = assignment_of(spot) if spot is not None else None
        if spot is not None and assignment is not None:
            yield AssignedOps(outer, spot, assignment, [])


def _spot(site: CallSite | None) -> Spot | None:
    if site is None:
        return None
    return spots_of(site.code).at(site.instruction)


def _call_from(site: CallSite, call: ModuleCall | None) -> ModuleCall | None:
    """The outermost module call that was made at this site, around a node: those inside
    a `Sequential` have the same one.
    """
    outermost = None
    while call is not None:
        if call.site is site:
            outermost = call
        call = call.parent
    return outermost


def _between(site: CallSite, inner: CallSite | None) -> list[Spot | None]:
    """Where the functions are that run from one site to another inside it."""
    chain = inner.chain() if inner is not None else ()
    return [_spot(callee) for callee in takewhile(lambda one: one is not site, chain)]


def _period(steps: Sequence[object]) -> int:
    """The length of the part that repeats from the beginning to the end; the whole
    length where none does.
    """
    count = len(steps)
    for size in range(1, min(count // 2, LONGEST_TURN) + 1):
        if count % size == 0 and all(
            steps[i] == steps[i - size] for i in range(size, count)
        ):
            return size
    return count
