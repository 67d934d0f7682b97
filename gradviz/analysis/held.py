"""Bytes that each node holds for backward, every storage counted once.

A storage that several nodes saved belongs to the one that saved it first, in the order the forward pass ran. Parameters
and buffers are not counted: they exist with or without the graph.
"""

from __future__ import annotations

from gradviz.graph import Graph, StorageKind, column

COUNTED: tuple[StorageKind, ...] = ("activation", "number", "output", "input")
"""Kinds of storage that saving holds on to."""

_LAST = 2**64  # no sequence number is as large


def forward_order(graph: Graph) -> list[int]:
    """Ids of the nodes in the order their ops ran; AccumulateGrad nodes, which ran no op, come last."""
    number = [_LAST if sequence is None else sequence for sequence in column(graph.nodes, "sequence")]
    return sorted(range(len(number) - 1, -1, -1), key=number.__getitem__)


def owners(graph: Graph) -> dict[int, int]:
    """The node that each saved storage belongs to, by storage id."""
    found: dict[int, int] = {}
    saved = column(graph.nodes, "saved")
    for i in forward_order(graph):
        for slot in saved[i]:
            if slot.storage is not None:
                found.setdefault(slot.storage, i)
    return found


def held_bytes(graph: Graph) -> list[int]:
    """Bytes held by each node, indexed by id. The sum is what saving holds, without parameters and buffers."""
    held = [0] * len(graph.nodes)
    for storage, node in owners(graph).items():
        record = graph.storages[storage]
        if record.kind in COUNTED:
            held[node] += record.nbytes or 0
    return held
