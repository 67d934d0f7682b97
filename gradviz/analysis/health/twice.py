"""Which of two backward calls through one tensor did not need its history: that of the network whose turn it was not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from gradviz.analysis.script_lines import own_line
from gradviz.evidence import Evidence
from gradviz.graph import Edge, Graph, SourceLine


class NotNeeded(NamedTuple):
    """The line of the first call that used `name` with its history, though what it trained lies elsewhere."""

    source: SourceLine
    name: str
    optimizer: str  # which updated other tensors after the first call


def not_needed(evidence: Evidence, joints: Sequence[Edge], names: Sequence[str]) -> NotNeeded | None:
    """Where the first call could have gone without the history, as optimizers of their own on both sides tell."""
    before = evidence.before
    if before is None or not joints or len(names) != 1:
        return None
    sequence = evidence.graph.nodes[joints[0].producer].sequence
    node = next((one.id for one in before.nodes if one.sequence == sequence and sequence is not None), None)
    if node is None:
        return None
    behind = _leaves(before, [node])
    beside = _leaves(before, [root.node for root in before.roots if root.node is not None], without=node)
    there, elsewhere = _holders(evidence, behind), _holders(evidence, beside - behind)
    word = re.compile(rf"(?<![\w.]){re.escape(names[0])}(?!\w)")
    for edge in before.consumers(node):
        source = own_line(before.nodes[edge.consumer])
        if source is not None and word.search(source.text) and there and elsewhere and not there & elsewhere:
            return NotNeeded(source, names[0], min(elsewhere))
    return None


def _leaves(graph: Graph, start: Sequence[int], without: int | None = None) -> set[str]:
    """The names of the leaves behind some nodes, and not only behind another."""
    seen, waiting = set(start), list(start)
    while waiting:
        for edge in graph.inputs(waiting.pop()):
            if edge.producer not in seen and edge.producer != without:
                seen.add(edge.producer)
                waiting.append(edge.producer)
    return {name for leaf in graph.leaves if leaf.node in seen for name in leaf.names}


def _holders(evidence: Evidence, names: set[str]) -> set[str]:
    return {
        optimizer.name
        for optimizer in evidence.optimizers
        if any(names.intersection(one.names) for one in optimizer.tensors)
    }
