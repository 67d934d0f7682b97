"""The first things to know about a graph: how large, how deep, which operations, which leaves, what is special.

Plain numbers and records only; wording belongs to whoever prints them. Knows nothing of torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from gradviz.graph.model import (
    Graph,
    Leaf,
    LeafKind,
    NodeFlag,
    Root,
)
from gradviz.graph.storage import elements

K = TypeVar("K", bound=str)


class Overview(NamedTuple):
    """A graph in numbers. Counts run from the largest down, equal ones by name."""

    nodes: int  # backward functions, leaves included
    edges: int
    depth: int  # backward functions on the longest way from an output to a leaf, leaves not counted
    operations: Mapping[str, int]  # how often each type of backward function occurs, leaves left out
    flags: Mapping[NodeFlag, int]  # how many nodes have it
    leaves: Mapping[LeafKind, int]
    elements: Mapping[LeafKind, int]  # elements of the leaves, by kind; sizes that are not numbers count as none
    saved: int  # slots that hold a tensor
    saved_bytes: int  # of the distinct storages that saved tensors keep alive
    roots: tuple[Root, ...]
    largest_leaves: tuple[Leaf, ...]


def overview(graph: Graph) -> Overview:
    """Counts of a graph. Takes time proportional to its size.

    >>> from gradviz.graph import Edge, Graph, Node
    >>> overview(Graph(nodes=(Node(0, "MulBackward0"), Node(1, "AddBackward0")), edges=(Edge(0, 1, 0, 0),))).depth
    2
    """
    leaves = graph.leaf_of
    kinds: Counter[LeafKind] = Counter()
    counts: Counter[LeafKind] = Counter()
    for leaf in graph.leaves:
        kinds[leaf.kind] += 1
        counts[leaf.kind] += elements(leaf.tensor) or 0
    kept = [slot for node in graph.nodes for slot in node.saved if slot.tensor is not None]
    storages = {storage for slot in kept for storage in slot.storages}
    return Overview(
        nodes=len(graph.nodes),
        edges=len(graph.edges),
        depth=depth(graph),
        operations=_ranked(Counter(node.op for node in graph.nodes if node.id not in leaves)),
        flags=_ranked(Counter(flag for node in graph.nodes for flag in node.flags)),
        leaves=_ranked(kinds),
        elements=_ranked(counts),
        saved=len(kept),
        saved_bytes=sum(graph.storages[storage].nbytes or 0 for storage in storages),
        roots=graph.roots,
        largest_leaves=tuple(sorted(graph.leaves, key=lambda leaf: (-(elements(leaf.tensor) or 0), leaf.node))),
    )


def depth(graph: Graph) -> int:
    """Backward functions on the longest way from an output to a leaf. Leaves are not counted."""
    leaves = graph.leaf_of
    reached = [0 if node.id in leaves else 1 for node in graph.nodes]
    for node in reversed(graph.order):
        below = max((reached[edge.producer] for edge in graph.inputs(node)), default=0)
        reached[node] += below
    return max(reached, default=0)


def _ranked(counts: Counter[K]) -> dict[K, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
