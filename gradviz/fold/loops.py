"""The loops of the program: which of their turns are shown, and what stands for the
others.

Turns that use what earlier ones made are a run: the first that is like the others is
shown, the rest is one box. Turns between which only an accumulator goes are siblings:
all are shown, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradviz.fold.groups import Groups, Section
from gradviz.graph import Graph

FEW = 4
"""Turns that use nothing of each other and are all shown."""


def show_turns(groups: Groups) -> None:
    """Decide for every loop which of its turns are shown; one of which no turns are
    known is a frame.
    """
    for group_id in range(len(groups)):
        if groups.is_loop(group_id):
            _show(groups, group_id)


def _show(groups: Groups, loop: int) -> None:
    group = groups[loop]
    turns = [~child for child in group.children if child < 0]
    whole = all(groups[turn].kind == "turn" and not groups[turn].part for turn in turns)
    if not whole or len(turns) < len(group.children) or group.part or len(turns) < 2:
        group.kind = "call"
        return

    group.turns = len(turns)
    group.feeds = _feeds(groups, turns)
    first = _typical(groups, turns)
    if not group.feeds and len(turns) <= FEW:
        group.shown = turns
        return

    group.shown = [turns[first]]
    pieces = [(0, first), (first + 1, len(turns))]
    groups.enclose(
        loop,
        [
            (
                begin,
                end,
                Section(
                    loop, "run", turns=end - begin, is_rest=True, feeds=group.feeds
                ),
            )
            for begin, end in pieces
            if end - begin > 1
        ],
    )


def _typical(groups: Groups, turns: Sequence[int]) -> int:
    """The first turn whose ops are those of most turns."""
    ops = groups.graph.ops
    ran = [tuple(ops[node] for node in groups.members(turn)) for turn in turns]
    (most, _), *_ = Counter(ran).most_common(1)
    return ran.index(most)


def _feeds(groups: Groups, turns: Sequence[int]) -> bool:
    """Whether a turn uses what another one made, but for an accumulator."""
    graph = groups.graph
    turn_of = {node: i for i, turn in enumerate(turns) for node in groups.members(turn)}
    for node, turn in turn_of.items():
        for edge in graph.inputs(node):
            made_in = turn_of.get(edge.producer, turn)
            if made_in != turn and not _accumulates(
                graph, node, edge.producer, turn_of
            ):
                return True
    return False


def _accumulates(graph: Graph, node: int, before: int, turn_of: dict[int, int]) -> bool:
    """Whether a node only adds what its own turn made to what the same op made in an
    earlier turn.
    """
    if graph.ops[node] != graph.ops[before]:
        return False
    if graph.nodes[node].source != graph.nodes[before].source:
        return False
    own = [
        edge
        for edge in graph.inputs(node)
        if turn_of.get(edge.producer) == turn_of[node]
    ]
    return bool(own)
