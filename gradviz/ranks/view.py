"""What merging needs to know of one rank's graph: ops in the order of the forward pass, leaves by name, edges, bytes.

Knows nothing of torch and of files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradviz.errors import GraphFileError
from gradviz.graph import (
    Graph,
    Leaf,
    Node,
    Process,
    RankShare,
    Scope,
    TensorInfo,
    column,
)
from gradviz.graph.amounts import COUNTED, forward_order
from gradviz.rank import named
from gradviz.wording import bytes_text, clip, tensor_line

Ends = tuple[int, int, int, int]
"""Consumer, producer, output of the producer, position."""


Ways = Sequence[tuple[Hashable, int]]
"""What one node computed, each with the set of ranks that have them: a number with a bit for each."""


class LeafView(NamedTuple):
    """A leaf of one rank. `content` is its kind and tensor."""

    node: int
    names: tuple[str, ...]
    content: Hashable


class Computed(NamedTuple):
    """What a node computed. Devices are told apart by type only: that rank 3 computes on cuda:3 is no difference."""

    outputs: tuple[TensorInfo | None, ...]
    saved: tuple[tuple[str, int], ...]  # slot and bytes
    state: tuple[str, ...]
    attributes: str


@dataclass(frozen=True)
class View:
    """One rank's graph. `place` says where an op belongs, whatever it computed there; `content` what it computed.

    `node` and `leaf` make the record of one node, which is wanted of what no rank before has. `graph` makes all of it.
    """

    process: Process | None
    saved: int  # bytes held for backward
    graph: Callable[[], Graph]
    node: Callable[[int], Node]
    leaf: Callable[[int], Leaf | None]
    scopes: Sequence[Scope] = ()
    ops: Sequence[int] = ()  # ids of nodes in the order of the forward pass, leaves left out
    place: Mapping[int, Hashable] = field(default_factory=dict, repr=False)
    content: Mapping[int, Computed] = field(default_factory=dict, repr=False)
    leaves: Sequence[LeafView] = ()
    edges: Sequence[Ends] = field(default=(), repr=False)
    ways: Callable[[int], Ways] | None = (
        None  # where it is of several ranks: for each node, who has it with which content
    )
    having: Callable[[Ends], int] | None = None  # likewise, who has an edge


def of_graph(graph: Graph, alike: dict[Hashable, Any] | None = None) -> View:
    """The view of a graph in memory. In `alike` equal places and contents of several views become one object."""
    refuse_merged(graph.by_rank)
    plain, alike = Plain(), {} if alike is None else alike
    places = [(scope.path, scope.type, scope.call) for scope in graph.scopes]
    leaf_of = graph.leaf_of
    place: dict[int, Hashable] = {}
    content: dict[int, Computed] = {}
    for node in graph.nodes:
        if node.id in leaf_of:
            continue
        line = node.script_line or node.source
        scope = places[node.scope] if node.scope is not None else None
        where = node.op, scope, (line.file, line.line) if line is not None else None
        place[node.id] = alike.setdefault(where, where)
        saved = tuple([(slot.slot, slot.nbytes or 0) for slot in node.saved])
        outputs = tuple([plain[output] for output in node.outputs])
        made = Computed(outputs, saved, node.flags, attributes_text(node.attributes))
        content[node.id] = alike.setdefault(made, made)
    return View(
        graph.process,
        saved_bytes(graph),
        lambda: graph,
        graph.nodes.__getitem__,
        leaf_of.get,
        graph.scopes,
        [node for node in forward_order(graph) if node not in leaf_of],
        place,
        content,
        [LeafView(leaf.node, leaf.names, (leaf.kind, plain[leaf.tensor])) for leaf in graph.leaves],
        list(zip(*(column(graph.edges, name) for name in ("consumer", "producer", "output", "position")))),
    )


def refuse_merged(shares: Sequence[RankShare]) -> None:
    """Raise GraphFileError for a graph that is of several ranks itself: which node is whose is not known well enough."""
    if shares:
        ranks = named(rank for share in shares for rank in share.ranks)
        raise GraphFileError(
            f"a graph is merged of {ranks} already: give that of each rank, which --ranks each writes."
        )


class Plain(dict["TensorInfo | None", "TensorInfo | None"]):
    """Tensors without the number of their device; equal ones are one object."""

    def __missing__(self, tensor: TensorInfo | None) -> TensorInfo | None:
        self[tensor] = tensor._replace(device=tensor.device.partition(":")[0]) if tensor is not None else None
        return self[tensor]


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """What a node keeps besides tensors, for comparing."""
    return str(dict(attributes)) if attributes else ""


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
    words = {f"output {i}": tensor_line(output) for i, output in enumerate(content.outputs)}
    words["saved"] = f"saves {bytes_text(sum(nbytes for _, nbytes in content.saved))}"
    words["slots"] = f"saves {', '.join(slot for slot, _ in content.saved) or 'nothing'}"
    words["state"] = ", ".join(content.state) or "no flag"
    words["attributes"] = clip(content.attributes) or "no attribute"
    return words
