"""What merging needs to know of one rank's graph: where its ops belong, what they computed, and bytes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from gradviz.comparison.merging import Place, View
from gradviz.errors import GraphFileError
from gradviz.graph import Graph, RankShare, TensorInfo, column
from gradviz.graph.amounts import COUNTED, forward_order
from gradviz.graph.origins import own_line
from gradviz.rank import named
from gradviz.wording import bytes_text, clip, tensor_line

Ends = tuple[int, int, int, int]
"""Consumer, producer, output of the producer, position."""


Alike = dict[Hashable, Any]
"""Equal places and contents as one object, which makes comparing them cheap."""


Ways = Sequence[tuple[Hashable, int]]
"""What one node computed, each with the set of ranks that have them: a number with a bit for each."""


class Computed(NamedTuple):
    """What a node computed. Devices are told apart by type only: that rank 3 computes on cuda:3 is no difference."""

    outputs: tuple[TensorInfo | None, ...]
    saved: tuple[tuple[str, int], ...]  # slot and bytes
    state: tuple[str, ...]
    attributes: str


def of_graph(graph: Graph, alike: Alike) -> View:
    """The view of a graph in memory. In `alike` equal places and contents of several views become one object."""
    _refuse_merged(graph.by_rank)
    plain, leaf_of = _Plain(), graph.leaf_of
    calls = [scope[:3] for scope in graph.scopes]
    place: dict[int, Place] = {}
    content: dict[int, Hashable] = {leaf.node: (leaf.kind, plain[leaf.tensor]) for leaf in graph.leaves}
    for node in graph.nodes:
        if node.id not in leaf_of:
            line = own_line(node)
            where = node.op, None if node.scope is None else calls[node.scope], line and line[:2]
            place[node.id] = alike.setdefault(where, where)
            saved = tuple([(slot.slot, slot.nbytes or 0) for slot in node.saved])
            outputs = tuple([plain[output] for output in node.outputs])
            made = Computed(outputs, saved, node.flags, _attributes_text(node.attributes))
            content[node.id] = alike.setdefault(made, made)
    return View(graph, [node for node in forward_order(graph) if node not in leaf_of], place, content)


def _refuse_merged(shares: Sequence[RankShare]) -> None:
    """Raise GraphFileError for a graph that is of several ranks itself: which node is whose is not known well enough."""
    if shares:
        ranks = named(rank for share in shares for rank in share.ranks)
        raise GraphFileError(
            f"a graph is merged of {ranks} already: give that of each rank, which --ranks each writes."
        )


class _Plain(dict["TensorInfo | None", "TensorInfo | None"]):
    """Tensors without the number of their device; equal ones are one object."""

    def __missing__(self, tensor: TensorInfo | None) -> TensorInfo | None:
        self[tensor] = tensor and tensor._replace(device=tensor.device.partition(":")[0])
        return self[tensor]


def _attributes_text(attributes: Mapping[str, Any]) -> str:
    """What a node keeps besides tensors, for comparing: not what it multiplies by, such as the size of a rank's own batch."""
    kept = {name: value for name, value in attributes.items() if name != "other"}
    return str(kept) if kept else ""


def saved_bytes(graph: Graph) -> int:
    """Bytes held for backward, each storage once, without parameters and buffers."""
    kept = {storage for saved in column(graph.nodes, "saved") for slot in saved for storage in slot.storages}
    sizes, kinds = column(graph.storages, "nbytes"), column(graph.storages, "kind")
    return sum(sizes[storage] or 0 for storage in kept if kinds[storage] in COUNTED)


def in_words(ways: Sequence[Hashable]) -> list[tuple[str, ...]]:
    """What each of several contents of one node says that not all of them say."""
    said = [_words(content) for content in ways]
    return [
        tuple(word for part, word in words.items() if any(other.get(part) != word for other in said)) for words in said
    ]


def _words(content: Hashable) -> dict[str, str]:
    if not isinstance(content, Computed):
        assert isinstance(content, tuple)
        kind, tensor = content
        return {"kind": str(kind), "tensor": tensor_line(tensor)}
    return {
        **{f"output {i}": tensor_line(output) for i, output in enumerate(content.outputs)},
        "saved": f"saves {bytes_text(sum(nbytes for _, nbytes in content.saved))}",
        "slots": f"saves {', '.join(slot for slot, _ in content.saved) or 'nothing'}",
        "state": ", ".join(content.state) or "no flag",
        "attributes": clip(content.attributes) or "no attribute",
    }
