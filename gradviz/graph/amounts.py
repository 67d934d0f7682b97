"""How much a graph is: elements and bytes of its tensors, what each node holds for
backward, and what to know of it first.

A storage that several nodes saved counts once: it belongs to the one that saved it
first, in the order the forward pass ran. Parameters and buffers are not counted: they
exist with or without the graph. Plain numbers and records only; wording belongs to
whoever prints them. Knows nothing of torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import TypeVar

from gradviz.graph.model import Graph
from gradviz.graph.records import Node, NodeFlag, SavedTensor, StorageKind, TensorInfo

_BITS = re.compile(r"\d+")
NOT_SHOWN = "cannot show saved tensors without running hooks"
"""What the note of a graph says whose saved tensors nobody could read: none stands in
it, and zero bytes would be a guess.
"""


def why_not_shown(graph: Graph) -> str:
    """The note that saved tensors could not be read, "" where they could."""
    return next((note for note in graph.notes if NOT_SHOWN in note), "")


def item_bytes(dtype: str) -> int | None:
    """Bytes of one element. None for a name that is no dtype.

    >>> [item_bytes(name) for name in ("float32", "bfloat16", "complex64", "bool", "float8_e4m3fn", "quint4x2")]
    [4, 2, 8, 1, 1, 1]
    """
    if dtype == "bool":
        return 1
    bits = _BITS.search(dtype)
    return (int(bits[0]) + 7) // 8 if bits else None


def tensor_bytes(tensor: TensorInfo) -> int | None:
    """Bytes of a dense tensor of this shape; None where a size is not a number.

    >>> tensor_bytes(TensorInfo((3, 4), "float32", "cpu"))
    48
    """
    count, item = elements(tensor), item_bytes(tensor.dtype)
    return count * item if count is not None and item is not None else None


def elements(tensor: TensorInfo) -> int | None:
    """How many numbers a tensor holds; None where a size is not a number.

    >>> elements(TensorInfo((3, 4), "float32", "cpu")), elements(TensorInfo(("s0", 4), "float32", "cpu"))
    (12, None)
    """
    sizes = [size for size in tensor.shape or () if isinstance(size, int)]
    if tensor.shape is not None and len(sizes) == len(tensor.shape):
        return prod(sizes)
    return None


def known_elements(tensor: TensorInfo) -> int:
    """The same as far as it is known: sizes that are no numbers count as 1, and a
    tensor without a single shape as 0.

    >>> known_elements(TensorInfo(("s0", 4), "float32", "cpu"))
    4
    """
    if tensor.shape is not None:
        return prod(size for size in tensor.shape if isinstance(size, int))
    return 0


def parameter_elements(graph: Graph) -> dict[int, int]:
    """The known elements of each parameter, by the node of its leaf."""
    return {
        leaf.node: known_elements(leaf.tensor)
        for leaf in graph.leaves
        if leaf.kind == "parameter"
    }


COUNTED: tuple[StorageKind, ...] = ("activation", "number", "output", "input")
"""Kinds of storage that saving holds on to."""

ONLY_GRAPH: tuple[StorageKind, ...] = ("activation", "number")
"""Kinds that nobody but the graph is known to hold: they are freed when the graph is
deleted.
"""

_LAST = 2**64  # no sequence number is as large


def forward_order(graph: Graph) -> list[int]:
    """Ids of the nodes in the order their ops ran; AccumulateGrad nodes, which ran no
    op, come last.
    """
    number = [_LAST if node.sequence is None else node.sequence for node in graph.nodes]
    return sorted(range(len(number) - 1, -1, -1), key=number.__getitem__)


def owners(graph: Graph) -> dict[int, tuple[int, SavedTensor]]:
    """The node that each saved storage belongs to, and its slot there, by storage id."""
    owner_of: dict[int, tuple[int, SavedTensor]] = {}
    for i in graph.fact(forward_order):
        for slot in graph.nodes[i].saved:
            for storage in slot.storages:
                owner_of.setdefault(storage, (i, slot))
    return owner_of


def held_bytes(graph: Graph) -> list[int]:
    """Bytes held by each node, indexed by id. The sum is what saving holds, without
    parameters and buffers.
    """
    nbytes = [0] * len(graph.nodes)
    counted = counted_bytes(graph)
    for storage, (node, _) in owners(graph).items():
        nbytes[node] += counted[storage]
    return nbytes


def counted_bytes(graph: Graph) -> list[int]:
    """Bytes of each storage, 0 of those that saving does not hold."""
    return [one.nbytes or 0 if one.kind in COUNTED else 0 for one in graph.storages]


# -- the first things to know ----------------------------------------------------------

K = TypeVar("K", bound=str)


def operations(graph: Graph, name: Callable[[Node], str]) -> dict[str, int]:
    """How often each op occurs, by its name, the most frequent first."""
    leaves = graph.leaf_of
    return _ranked(Counter(name(node) for node in graph.nodes if node.id not in leaves))


def flags(graph: Graph) -> dict[NodeFlag, int]:
    """How many nodes have each flag, the most frequent first."""
    return _ranked(Counter(flag for node in graph.nodes for flag in node.flags))


def depth(graph: Graph) -> int:
    """Backward functions on the longest way from an output to a leaf. Leaves are not
    counted.
    """
    leaves = graph.leaf_of
    reached = [0 if node in leaves else 1 for node in range(len(graph.nodes))]
    producers = graph.producers
    for node in reversed(graph.order):
        inputs = [producers[place] for place in graph.input_places(node)]
        below = (reached[producer] for producer in inputs if producer != node)
        reached[node] += max(below, default=0)
    return max(reached, default=0)


def _ranked(counts: Counter[K]) -> dict[K, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
