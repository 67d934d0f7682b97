"""What of earlier steps is still reachable at a backward call: through the outputs, and through variables beside them.

Sequence numbers decide: a node made before the previous backward call has a lower number than the call. Leaves have none
and are no history.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from gradviz.capture.naming import Names
from gradviz.capture.private import Node, without_subclasses
from gradviz.capture.tensors import grad_fn_of
from gradviz.capture.variables import Namespace, as_written
from gradviz.capture.walker import capture
from gradviz.evidence import Carried, Evidence
from gradviz.graph import Graph, column

_INDEX = re.compile(r"(\[[^\]]*\])+$")


def carried_by_outputs(graph: Graph, since: int) -> Iterator[Carried]:
    """The part of a graph that is older than `since`, and the edges that lead into it."""
    found = _older(graph, since, "")
    if found is not None:
        yield found


def carried_by_variables(
    evidence: Evidence,
    variables: Sequence[Namespace],
    since: int,
    attribution: Any,
) -> Iterator[Carried]:
    """The same for each variable, and attribute of an object, that holds a graph which is not part of the outputs' graph.

    A list counts as one.
    """
    beside = {one.names for one in evidence.held if one.node is None and not one.leaf and one.requires_grad}
    groups: dict[str, list[torch.Tensor]] = {}
    for tensor, names in Names(None, None, variables).named() if beside else ():
        if names in beside and _function(tensor) is not None:
            groups.setdefault(as_written(_INDEX.sub("", names[0]), variables), []).append(tensor)
    for name, tensors in groups.items():
        graph = capture(tensors, title=name, need_graph=False, attribution=attribution)
        found = _older(replace(graph, roots=()), since, name)
        if found is not None:
            newest = next((root.node for root in graph.roots if root.node is not None), None)
            made = graph.nodes[newest] if newest is not None else None
            number = max(sequence for sequence in column(graph.nodes, "sequence") if sequence is not None)
            yield found._replace(source=made.source if made is not None else None, newest=number)


def _function(tensor: torch.Tensor) -> Node | None:
    try:
        with without_subclasses():
            return grad_fn_of(tensor)
    except RuntimeError:
        return None


def _older(graph: Graph, since: int, name: str) -> Carried | None:
    old = {node.id for node in graph.nodes if node.sequence is not None and node.sequence < since}
    if not old:
        return None
    joints = tuple(
        (edge.consumer, edge.position) for edge in graph.edges if edge.producer in old and edge.consumer not in old
    )
    storages = {
        slot.storage
        for i in old
        for slot in graph.nodes[i].saved
        if slot.storage is not None and graph.storages[slot.storage].kind in ("activation", "output")
    }
    nbytes = sum(graph.storages[storage].nbytes or 0 for storage in storages)
    first = next((graph.nodes[consumer] for consumer, _ in joints), None)
    repeats = any(
        graph.nodes[edge.consumer].source == graph.nodes[edge.producer].source is not None
        for edge in graph.edges
        if edge.producer in old and edge.consumer not in old
    )
    source = first.source if first is not None else None
    return Carried(name, len(old), nbytes, source, joints, repeats=repeats)
