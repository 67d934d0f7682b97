"""What merging needs to know of one rank's graph: ops in the order of the forward pass, leaves by name, edges, bytes.

It is read from a graph, or straight from the data of a graph file: reading all of that takes several times as long.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from gradviz.comparison.merging import Place, View
from gradviz.errors import GraphFileError
from gradviz.graph import Edge, Graph, Node, Process, RankShare, Scope, TensorInfo, column, files as schema
from gradviz.graph.amounts import COUNTED, forward_order
from gradviz.graph.codecs import Context
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


@dataclass(frozen=True)
class RankView(View):
    """One rank's graph. `place` says where an op belongs, whatever it computed there."""

    process: Process | None = None
    saved: int = 0  # bytes held for backward
    edges: Sequence[Ends] = ()


def of_graph(graph: Graph, alike: Alike) -> RankView:
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
    return RankView(
        lambda: graph,
        graph.nodes.__getitem__,
        leaf_of.get,
        graph.scopes,
        [node for node in forward_order(graph) if node not in leaf_of],
        place,
        content,
        {leaf.node: leaf.names for leaf in graph.leaves},
        graph.process,
        saved_bytes(graph),
        list(zip(*(column(graph.edges, name) for name in Edge._fields[:4]))),
    )


def of_data(data: dict[str, Any], alike: Alike) -> RankView:
    """The same for a graph as JSON has it, where a record is made only of what no rank before has.

    Raises KeyError, TypeError, IndexError or Bad for data that is not as it should be: a full reading says why.
    """
    context = _context(data)
    _refuse_merged([schema.RANK_SHARE.read(share, context) for share in data.get("by_rank", ())])
    scopes: list[Scope] = [schema.SCOPE.read(item, context) for item in data["scopes"]]
    plain, tensors, sources = _Plain(), context.read["tensors"], context.read["sources"]
    nodes = data["nodes"]
    leaf_items = {item["node"]: item for item in data["leaves"]}
    contents: dict[Hashable, Computed] = {}  # of equal data, so that these are made once

    @cache
    def place_of(op: str, scope: int | None, line: int | None) -> Place:
        made: Place = op, None if scope is None else scopes[scope][:3], None if line is None else sources[line][:2]
        made = alike.setdefault(made, made)
        return made

    def content_of(item: dict[str, Any]) -> Computed:
        outputs, attributes = tuple(item.get("outputs", ())), item.get("attributes")
        saved = tuple([(slot["slot"], slot.get("nbytes") or 0) for slot in item.get("saved", ())])
        flags = tuple(item.get("flags", ()))
        raw = outputs, saved, flags, str(attributes) if attributes else ""
        if raw not in contents:
            made = [None if output is None else plain[tensors[output]] for output in outputs]
            text = _attributes_text(schema.ATTRIBUTES.read(attributes, context)) if attributes else ""
            computed = Computed(tuple(made), saved, flags, text)
            contents[raw] = alike.setdefault(computed, computed)
        return contents[raw]

    def node(i: int) -> Node:
        made: Node = schema.NODE.read(nodes[i], context, i)
        return made

    number = [item.get("sequence", _LAST) for item in nodes]
    ordered = sorted(range(len(nodes) - 1, -1, -1), key=number.__getitem__)
    place: dict[int, Place] = {}
    content: dict[int, Hashable] = {}
    for i, item in enumerate(nodes):
        if i in leaf_items:
            content[i] = leaf_items[i].get("kind", "input"), plain[tensors[leaf_items[i]["tensor"]]]
        else:
            place[i] = place_of(item["op"], item.get("scope"), item.get("script_line", item.get("source")))
            content[i] = content_of(item)
    return RankView(
        Graph,
        node,
        lambda i: schema.LEAF.read(leaf_items[i], context) if i in leaf_items else None,
        scopes,
        [i for i in ordered if i not in leaf_items],
        place,
        content,
        {i: tuple(item.get("names", ())) for i, item in leaf_items.items()},
        process_of(data, context),
        _saved_bytes_of(data),
        [tuple(row[:4]) for row in data["edges"]],
    )


_LAST = 2**64  # no sequence number is as large


def process_of(data: dict[str, Any], context: Context | None = None) -> Process | None:
    """What the data of a file says of the process that wrote it."""
    if data.get("process") is None:
        return None
    made: Process = schema.PROCESS.read(data["process"], context or _context(data))
    return made


def _context(data: dict[str, Any]) -> Context:
    context = Context()
    for key in ("nodes", "edges", "leaves", "roots", "scopes", "storages"):
        context.lengths[key] = len(data.get(key, ()))
    context.read["tensors"] = [schema.TENSOR_ROW.read(row, context) for row in data["tensors"]]
    context.read["sources"] = [schema.SOURCE_ROW.read(row, context) for row in data["sources"]]
    return context


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
    """What a node keeps besides tensors, for comparing."""
    return str(dict(attributes)) if attributes else ""


def saved_bytes(graph: Graph) -> int:
    """Bytes held for backward, each storage once, without parameters and buffers."""
    kept = {storage for saved in column(graph.nodes, "saved") for slot in saved for storage in slot.storages}
    sizes, kinds = column(graph.storages, "nbytes"), column(graph.storages, "kind")
    return sum(sizes[storage] or 0 for storage in kept if kinds[storage] in COUNTED)


def _saved_bytes_of(data: dict[str, Any]) -> int:
    """The same of a graph as JSON has it."""
    storages = data["storages"]
    slots = [slot for item in data["nodes"] for slot in item.get("saved", ()) if slot.get("storage") is not None]
    kept = {storage for slot in slots for storage in (slot["storage"], *slot.get("parts", ()))}
    return sum(storages[storage].get("nbytes") or 0 for storage in kept if storages[storage]["kind"] in COUNTED)


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
