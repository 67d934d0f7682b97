"""Where one of two backward calls could have gone without what both share."""

from __future__ import annotations

from collections.abc import Iterable

from gradviz.checks.call import BackwardCall
from gradviz.checks.flow import behind
from gradviz.checks.words import all_names, made_at
from gradviz.graph import Graph, SourceLine
from gradviz.source.code_line import read


def unneeded(context: BackwardCall) -> tuple[SourceLine, str, str] | None:
    """The line that used a tensor with its history, its name, and the optimizer that
    updates nothing there: as a critic's call goes without that of the images it is
    shown. Others hold all that is behind the tensor.
    """
    graph, previous = context.graph, context.previous
    if previous is None:
        return None

    before = previous.graph

    names = {node.sequence: node.names for node in graph.nodes}
    # a sequence number is given once in a thread; leaves have none
    shared = ({node.sequence for node in before.nodes} & names.keys()) - {None}
    for side in (before, graph):
        for edge in side.edges:
            number = side.nodes[edge.producer].sequence
            source = made_at(side, edge.consumer)
            crosses = side.nodes[edge.consumer].sequence not in shared
            if number not in shared or not crosses or source is None:
                continue

            inside = _leaves(side, [edge.producer])
            beside = _leaves(side, (root.node for root in side.roots)) - inside
            others, trained = _holders(context, inside), _holders(context, beside)
            for name in names[number][:1] if others and trained else ():
                if name in read(source) and trained.isdisjoint(others):
                    return source, name, min(trained)
    return None


def _leaves(graph: Graph, start: Iterable[int | None]) -> set[str]:
    """The names of the leaves behind some nodes."""
    nodes = (node for node in behind(graph, start) if node in graph.leaf_of)
    return {name for node in nodes for name in graph.leaf_of[node].names}


def _holders(context: BackwardCall, names: set[str]) -> set[str]:
    """The optimizers that hold one of these leaves."""
    return {
        optimizer.name
        for optimizer in context.optimizers
        if not names.isdisjoint(all_names(optimizer.tensors))
    }
