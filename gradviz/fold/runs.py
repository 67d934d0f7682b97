"""Finds what repeats among the children of a group, and joins it: alike siblings, calls
of one module, turns of a loop.

Groups are alike when they have equal structure: their nodes, in order, have equal ops,
output shapes and dtypes, stand at equal places among the inner groups, and are wired
alike: every input comes from the node at the same place inside the group, from a leaf
of the same shape, or from outside. That is proven node by node and never by name. Where
loops of the program are inside, these may have gone round more or less often.

A pattern may have a period: attention, Mamba, attention, Mamba is two turns. Of a run
the first turn can be opened; the others are one group, its rest.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from gradviz.fold.groups import Child, Groups, Section, nodes_of
from gradviz.fold.loops import rest_of
from gradviz.fold.order import Ints, places
from gradviz.fold.titles import pattern, turns_in
from gradviz.graph import column

LEAST_OPS = 8
"""Ops that a run of single ops has, and half of what one of longer turns has: fewer are
easier to read one by one.
"""
FEW = 4
"""Ops of a turn up to which two turns are easier to read than one run of them."""
LONGEST, LONGEST_OF_MANY, MANY = 400, 64, 5_000
"""Children that one turn may have, and when a group has many."""


def join_runs(groups: Groups) -> None:
    """Put what repeats among the children of each group into runs, each of its first
    turn and its rest.
    """
    structures = Structures(groups)
    groups.structure = {
        group.scope: structures.of[group]
        for group in groups
        if group.scope is not None and not group.part
    }
    waiting = [
        group
        for group in groups
        if len(group.children) > 1 and group.kind not in ("op", "statement", "run")
    ]

    for group in waiting:  # grows while it is read
        first = len(groups)
        _join_in(group, structures)
        waiting += [
            turn
            for turn in groups[first:]
            # the turns of a rest are never opened one by one
            if turn.kind == "turn" and turn.parent and not turn.parent.is_rest
        ]


class _Run(NamedTuple):
    """Turns of `period` children each, the first at place `start`."""

    start: int
    period: int
    turns: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.turns


def _join_in(group: Section, structures: Structures) -> None:
    children = list(group.children)
    keys = np.array([structures.key(child) for child in children], np.int64)
    found: list[_Run] = []
    waiting = [(0, len(children))]

    while waiting:
        start, end = waiting.pop()
        if end - start > 1:
            run = _longest(keys[start:end], children[start:end], structures)
        else:
            run = None
        if run is not None:
            run = run._replace(start=run.start + start)
            found.append(run)
            # what repeats beside it is looked for apart
            waiting += [(start, run.start), (run.end, end)]

    found.sort()
    tree = group.tree
    boxes = [Section(tree, group, "run", turns=run.turns) for run in found]
    group.enclose((run.start, run.end, box) for run, box in zip(found, boxes))
    for run, box in zip(found, boxes):
        if run.period > 1:
            begins = range(0, run.period * run.turns, run.period)
            turns = [Section(tree, box, "turn") for _ in begins]
            box.enclose((i, i + run.period, turn) for i, turn in zip(begins, turns))
            box.shown = turns[:1]
        # the first turn can be opened, and the rest stays one box
        if run.turns > 2:
            box.enclose([(1, run.turns, rest_of(box, run.turns - 1))])


def _longest(
    keys: Ints, children: Sequence[Child], structures: Structures
) -> _Run | None:
    """The run that has most children, of equal ones that with the shortest turns."""
    count = len(keys)
    runs: list[_Run] = []
    if len(set(keys.tolist())) == count:
        return None
    # every period is tried, so the longest one has to shrink with many children
    longest = LONGEST if count < MANY else LONGEST_OF_MANY
    for period in range(1, min(count // 2, longest) + 1):
        # children that are equal to the one a period before them, as stretches
        same = np.concatenate(
            [[0], (keys[period:] == keys[:-period]).view(np.int8), [0]]
        )
        edges = np.flatnonzero(np.diff(same))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist()):
            if end - begin >= period:
                runs.append(_Run(begin, period, (end - begin) // period + 1))

    # most children first, those of the first turn aside; of equally many the shorter turn
    runs.sort(key=lambda run: (-run.period * (run.turns - 1), run.period, -run.start))
    # equal children may be wired differently: the first that is proven wins
    proven = (structures.proven(run, children) for run in runs)
    return next(filter(None, proven), None)


class Structures:
    """What is equal for groups of one structure, as numbers, and what is equal for
    children that may be turns of one run.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups, self._graph = groups, groups.graph
        self._numbers: dict[Hashable, int] = {}
        self._op, self._outputs = self._graph.ops, self._graph.outputs
        self._source = column(self._graph.nodes, "source")
        self._place = places(self._graph, groups.order).tolist()
        self._leaf_inputs = self._inputs_from_leaves()
        self._wires = self._wires_by_group()
        self.ops: dict[Section, int] = {}
        self.of: dict[Section, int] = {}
        self._loose_of: dict[Section, int] = {}
        self._rows: dict[Hashable, Hashable] = {}  # outputs, one row of data of each
        self._looped: set[Section] = set()  # what has a loop of the program in it

        # inner groups first: what a group is follows from what is in it
        inner_first = groups.top_down()[:0:-1]
        for group in inner_first:
            self.ops[group] = sum(map(self._ops, group.children))
            self.of[group] = self._number(self._described(group))
            if group.is_loop or not self._looped.isdisjoint(group.inner):
                self._looped.add(group)
        for group in inner_first if self._looped else ():
            if not self._looped.isdisjoint(group.around()):
                self._loose_of[group] = self._number(self._loosely_described(group))

    def _ops(self, child: Child) -> int:
        return self.ops[child] if isinstance(child, Section) else 1

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def key(self, child: Child) -> int:
        """Equal for children that may be turns of one run: single ops come from one
        line, modules from one list.
        """
        if isinstance(child, Section) and child.op is None:
            path = child.record.path if child.record is not None else ""
            of = self._loose_of if child in self._looped else self.of
            return self._number((of[child], pattern(path)))
        source = self._source[_op(child)]
        return self._number(
            (self._structure(child), source and (source.file, source.line))
        )

    def proven(self, run: _Run, children: Sequence[Child]) -> _Run | None:
        """The run, or the longest part of it whose turns are wired alike; None when
        what is left is better read one by one.
        """
        if run.period > 1:
            turns = (self._turn(children, run, i) for i in range(run.turns))
            lengths = [len(list(alike)) for _, alike in groupby(turns)]
            place = lengths.index(max(lengths))
            first = run.start + sum(lengths[:place]) * run.period
            run = _Run(first, run.period, lengths[place])

        if self._is_shorter(run, children[run.start : run.start + run.period]):
            return run

        return None

    def _is_shorter(self, run: _Run, turn: Sequence[Child]) -> bool:
        """Whether a run is easier to read than its turns, of which this is one, one by
        one.
        """
        ops = sum(map(self._ops, turn))
        if run.turns < 2 or (run.turns == 2 and ops <= FEW):
            return False
        if any(isinstance(child, Section) and child.op is None for child in turn):
            return True
        least = LEAST_OPS if run.period == 1 else 2 * LEAST_OPS
        return ops * run.turns >= least and (run.turns > 2 or run.period >= LEAST_OPS)

    def _turn(self, children: Sequence[Child], run: _Run, turn: int) -> Hashable:
        begin = run.start + turn * run.period
        nodes = [
            node
            for child in children[begin : begin + run.period]
            for node in nodes_of(child)
        ]
        place = {node: i for i, node in enumerate(nodes)}
        wires = (
            (place[edge.consumer], place[edge.producer], edge.output, edge.position)
            for node in nodes
            for edge in self._graph.inputs(node)
            if edge.producer in place
        )

        return tuple(wires)

    # -- structure ---------------------------------------------------------------------

    def _described(self, group: Section) -> Hashable:
        return (
            group.kind,
            _name(group),
            tuple(self._structure(child) for child in group.children),
            tuple(sorted(self._wires.get(group, ()))),
        )

    def _loosely_described(self, group: Section) -> Hashable:
        """The same where rows of data, and how often a loop went round, do not count."""
        if group.is_loop:
            # layers may run other experts, and another number of them
            return _name(group), frozenset(map(self._loose, turns_in(group)))
        inner = tuple(self._loose(child) for child in group.children)
        return group.kind, _name(group), inner

    def _loose(self, child: Child) -> int:
        if isinstance(child, Section) and child.op is None:
            return self._loose_of[child]
        # without its views: one row of data is not expanded
        op = _op(child)
        outputs = self._outputs[op]
        if outputs not in self._rows:
            self._rows[outputs] = tuple(
                info and info._replace(shape=(info.shape or ())[1:]) for info in outputs
            )
        inputs = self._leaf_inputs.get(op, ())
        return self._number(("loose", self._op[op], self._rows[outputs], inputs))

    def _structure(self, child: Child) -> int:
        if isinstance(child, Section):
            return self.of[child]
        return self._number(
            (self._op[child], self._outputs[child], self._leaf_inputs.get(child, ()))
        )

    def _inputs_from_leaves(self) -> dict[int, tuple[Hashable, ...]]:
        inputs: dict[int, tuple[Hashable, ...]] = {}
        for leaf in self._graph.leaves:
            for edge in self._graph.consumers(leaf.node):
                inputs[edge.consumer] = (
                    *inputs.get(edge.consumer, ()),
                    (edge.position, leaf.tensor),
                )
        return inputs

    def _wires_by_group(self) -> dict[Section, list[tuple[int, ...]]]:
        """Edges between different children of each group but the whole: where in the
        group they end and begin.
        """
        groups, place = self._groups, self._place
        depth, start = [0] * len(groups), [0] * len(groups)
        for group in groups.top_down():
            if group.parent is not None:
                depth[group.number] = depth[group.parent.number] + 1
                start[group.number] = place[next(nodes_of(group))]

        wires: dict[Section, list[tuple[int, ...]]] = {}
        for consumer, producer, output, position, _ in self._graph.edges:
            a, b = groups.home[consumer], groups.home[producer]
            while a is not b and a is not None and b is not None:
                if depth[a.number] >= depth[b.number]:
                    a = a.parent
                else:
                    b = b.parent
            # a leaf is in no group; `_leaf_inputs` knows these edges. The whole graph is
            # compared with nothing
            if a is not None and b is not None and a.parent is not None:
                first = start[a.number]
                wires.setdefault(a, []).append(
                    (place[consumer] - first, place[producer] - first, output, position)
                )

        return wires


def _name(group: Section) -> str | None:
    record = group.record
    return (record.type or record.path) if record is not None else None


def _op(child: Child) -> int:
    """The node of a single op, with its views or alone."""
    node = child.op if isinstance(child, Section) else child
    assert node is not None, "a call is no op"
    return node
