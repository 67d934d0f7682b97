"""Where one of two backward calls could have gone without what both share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from gradviz.checks.call import BackwardCall
from gradviz.checks.flow import behind
from gradviz.checks.words import (
    made_at,
)
from gradviz.graph import Graph, SourceLine
from gradviz.source.code_line import read


class _Spared(NamedTuple):
    """The line that used `name` with its history, though nothing behind it is trained
    from there, and why.
    """

    source: SourceLine
    name: str
    because: str


def unneeded(context: BackwardCall) -> _Spared | None:
    """Where one of two calls could have gone without what both share, as a critic's can
    without that of the images it is shown.

    An optimizer of its own holds what that call trains beside the tensor, and others
    hold all that is behind it.
    """
    graph, previous = context.graph, context.previous
    if previous is None:
        return None
    before = previous.graph

    names = {
        node.sequence: node.names for node in graph.nodes if node.sequence is not None
    }
    known = {node.sequence for node in before.nodes} & names.keys()
    for one in (before, graph):
        for edge in one.edges:
            shared, source = one.nodes[edge.producer], made_at(one, edge.consumer)
            if (
                shared.sequence not in known
                or one.nodes[edge.consumer].sequence in known
                or source is None
            ):
                continue
            name, trains = (
                next(iter(names[shared.sequence or 0]), ""),
                _whose_turn(context, one, edge.producer),
            )
            if trains and name in read(source):
                why = f"{trains} updates nothing behind it, so that call needs no history of it"
                return _Spared(source, name, why)

    return None


def _whose_turn(context: BackwardCall, graph: Graph, node: int) -> str:
    """The optimizer of what a call trains beside a node, where others hold all that is
    behind the node; else "".
    """
    inside = _leaves(graph, [node])
    beside = _leaves(graph, (root.node for root in graph.roots)) - inside
    there, elsewhere = _holders(context, inside), _holders(context, beside)
    return min(elsewhere) if there and elsewhere and not there & elsewhere else ""


def _leaves(
    graph: Graph,
    start: Iterable[int | None],
) -> set[str]:
    """The names of the leaves behind some nodes."""
    nodes = (node for node in behind(graph, start) if node in graph.leaf_of)
    return {name for node in nodes for name in graph.leaf_of[node].names}


def _holders(
    context: BackwardCall,
    names: set[str],
) -> set[str]:
    return {
        one.name
        for one in context.optimizers
        if any(names.intersection(tensor.names) for tensor in one.tensors)
    }
