"""Which nodes a non-reentrant checkpoint will compute again: it packs every tensor that they save into a placeholder.

Read from what capturing noted of each saved slot. Knows nothing of torch.
"""

from __future__ import annotations

from gradviz.graph import Graph, Node, SavedTensor

_HOLDER = "torch.utils.checkpoint."


def is_recomputed(saved: SavedTensor) -> bool:
    """Whether a slot holds nothing until a checkpoint has computed its tensor again."""
    return saved.state == "packed" and saved.tensor is None and _HOLDER in saved.note


def is_checkpointed(graph: Graph, node: Node) -> bool:
    """Whether checkpoints packed all that hooks packed in a node, or in what a folded box stands for.

    >>> from gradviz.graph import Graph, Node, SavedTensor
    >>> slot = SavedTensor("self", None, None, None, "packed", note="from a torch.utils.checkpoint._Holder")
    >>> is_checkpointed(Graph(), Node(0, "ExpBackward0", saved=(slot,), flags=("packed",)))
    True
    """
    if "packed" not in node.flags:
        return False
    inside = [node]
    if node.group is not None:  # a folded graph read from a file does not know what was folded
        inside = [graph.original.nodes[one] for one in node.group.nodes] if graph.original is not None else []
    packed = [slot for one in inside for slot in one.saved if slot.state == "packed"]
    return bool(packed) and all(map(is_recomputed, packed))
