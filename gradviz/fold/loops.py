"""The loops of the program: which of their turns are shown, and what stands for the
others.

Turns that use what earlier ones made are a run: the first that is like the others is
shown, the rest is one box. Turns between which only an accumulator goes are siblings:
of a few all are shown where a page holds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gradviz.fold.groups import Groups, Section
from gradviz.graph import Graph


def show_turns(groups: Groups) -> None:
    """Decide for every loop which of its turns are shown; one of which no turns are
    known is a frame.
    """
    for group in groups[:]:
        if group.is_loop:
            _show(group)


def _show(loop: Section) -> None:
    turns = loop.inner
    whole = all(turn.kind == "turn" and not turn.part for turn in turns)
    if not whole or len(turns) < len(loop.children) or loop.part or len(turns) < 2:
        loop.kind = "call"
        return

    loop.turns = len(turns)
    loop.feeds = _feeds(turns)
    first, after = _typical(turns)
    loop.shown = turns[first:after]
    before_and_after = (0, first), (after, len(turns))
    loop.enclose(
        (begin, end, rest_of(loop, end - begin))
        for begin, end in before_and_after
        if end - begin > 1
    )


def rest_of(run: Section, turns: int) -> Section:
    """What is left of a run: a box for so many of its turns."""
    return Section(run.tree, run, "run", turns=turns, is_rest=True, feeds=run.feeds)


LONGEST = 4
"""Turns that are shown of those that come again and again in one order."""
ALIKE = 0.9
"""The part of its ops that a turn has in common with another one that it is like, as one
that begins with zeros is.
"""


def _typical(turns: Sequence[Section]) -> tuple[int, int]:
    """The first turn that is like most turns, and the one after those that all others
    repeat, as the layers of a flow do.
    """
    ran = [turn.op_names for turn in turns]
    (most, _), *_ = Counter(ran).most_common(1)
    usual = Counter(most)
    same = ran.index(most)
    first = next(i for i, ops in enumerate(ran) if _is_like(Counter(ops), usual))
    for period in range(1, LONGEST + 1):
        if same + 2 * period <= len(ran) and ran[same:-period] == ran[same + period :]:
            return first, first + period
    return first, first + 1


def _is_like(ops: Counter[str], usual: Counter[str]) -> bool:
    return (ops & usual).total() >= ALIKE * max(ops.total(), usual.total())


def _feeds(turns: Sequence[Section]) -> bool:
    """Whether a turn uses what another one made, but for an accumulator."""
    graph = turns[0].tree.graph
    turn_of = {node: i for i, turn in enumerate(turns) for node in turn.nodes}
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
