"""What merging needs to know of one rank's graph: where its ops belong, and what they
computed, in numbers and in words.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from gradviz.comparison.merging import Place, View
from gradviz.errors import GraphFileError
from gradviz.graph import Graph, TensorInfo
from gradviz.graph.amounts import forward_order
from gradviz.graph.origins import own_line
from gradviz.rank import named
from gradviz.wording import bytes_text, clip, tensor_line

Ends = tuple[int, int, int, int]
"""Consumer, producer, output of the producer, position."""


Alike = dict[Hashable, Any]
"""Equal places and contents as one object, which makes comparing them cheap."""


class Computed(NamedTuple):
    """What a node computed. Devices are told apart by type only: that rank 3 computes
    on cuda:3 is no difference.
    """

    outputs: tuple[TensorInfo | None, ...]
    saved: tuple[tuple[str, int], ...]  # slot and bytes
    state: tuple[str, ...]
    attributes: str


def of_graph(graph: Graph, alike: Alike) -> View:
    """The view of a graph in memory. In `alike` equal places and contents of several
    views become one object.

    Raises GraphFileError for a graph that is merged itself: which node is whose is not
    known well enough.
    """
    if graph.by_rank:
        ranks = named(rank for share in graph.by_rank for rank in share.ranks)
        raise GraphFileError(
            f"a graph is merged of {ranks} already: give the file that each of these ranks wrote."
        )

    plain, leaf_of = _Plain(), graph.leaf_of
    calls = [scope[:3] for scope in graph.scopes]
    place: dict[int, Place] = {}
    content: dict[int, Hashable] = {
        leaf.node: (leaf.kind, plain[leaf.tensor]) for leaf in graph.leaves
    }
    for node in graph.nodes:
        if node.id not in leaf_of:
            line = own_line(node)
            where = (
                node.op,
                None if node.scope is None else calls[node.scope],
                line and line[:2],
            )
            place[node.id] = alike.setdefault(where, where)

            saved = tuple([(slot.slot, slot.nbytes or 0) for slot in node.saved])
            outputs = tuple([plain[output] for output in node.outputs])
            computed = Computed(
                outputs, saved, node.flags, _attributes_text(node.attributes)
            )
            content[node.id] = alike.setdefault(computed, computed)

    return View(
        graph,
        [node for node in forward_order(graph) if node not in leaf_of],
        place,
        content,
    )


class _Plain(dict["TensorInfo | None", "TensorInfo | None"]):
    """Tensors without the number of their device; equal ones are one object."""

    def __missing__(self, tensor: TensorInfo | None) -> TensorInfo | None:
        self[tensor] = tensor and tensor._replace(
            device=tensor.device.partition(":")[0]
        )
        return self[tensor]


def _attributes_text(attributes: Mapping[str, Any]) -> str:
    """What a node keeps besides tensors, for comparing: not what it multiplies by, such
    as the size of a rank's own batch.
    """
    kept = {name: value for name, value in attributes.items() if name != "other"}
    return str(kept) if kept else ""


def in_words(
    ways: Sequence[Hashable],
) -> list[tuple[str, ...]]:
    """What each of several contents of one node says that not all of them say."""
    said = [_words(content) for content in ways]

    def differs(part: str, word: str) -> bool:
        return any(other.get(part) != word for other in said)

    differing = []
    for words in said:
        kept = [word for part, word in words.items() if differs(part, word)]
        differing.append(tuple(kept))

    return differing


def _words(content: Hashable) -> dict[str, str]:
    if not isinstance(content, Computed):
        assert isinstance(content, tuple)
        kind, tensor = content
        return {"kind": str(kind), "tensor": tensor_line(tensor)}

    return {
        **{
            f"output {i}": tensor_line(output)
            for i, output in enumerate(content.outputs)
        },
        "saved": f"saves {bytes_text(sum(nbytes for _, nbytes in content.saved))}",
        "slots": f"saves {', '.join(slot for slot, _ in content.saved) or 'nothing'}",
        "state": ", ".join(content.state) or "no flag",
        "attributes": clip(content.attributes) or "no attribute",
    }
