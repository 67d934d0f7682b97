"""The view of a rank's graph straight from the data of its file: a record is made only of what no other rank has.

Reading a whole graph takes several times as long. Data that is not as it should be raises here, and a full reading says why.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from gradviz.graph import (
    Graph,
    Leaf,
    Node,
    Process,
    Scope,
    SourceLine,
    TensorInfo,
    files as schema,
)
from gradviz.graph.amounts import COUNTED
from gradviz.graph.codecs import Context
from gradviz.ranks.view import (
    Computed,
    LeafView,
    Plain,
    View,
    attributes_text,
    refuse_merged,
)

_LAST = 2**64


def of_data(data: dict[str, Any], alike: Alike) -> View:
    """The view of a graph as JSON has it. Raises KeyError, TypeError, IndexError or Bad where it is not one.

    `alike` holds what the views of other ranks have, so that equal things of all are one object.
    """
    context = _context(data)
    refuse_merged([schema.RANK_SHARE.read(share, context) for share in data.get("by_rank", ())])
    scopes = [schema.SCOPE.read(item, context) for item in data["scopes"]]
    plain, tensors = Plain(), context.read["tensors"]
    leaf_items = {item["node"]: item for item in data["leaves"]}
    nodes = data["nodes"]
    place_of, content_of = (
        _PlaceOf(scopes, context.read["sources"], alike),
        _ComputedOf([plain[tensor] for tensor in tensors], context, alike),
    )
    place: dict[int, Hashable] = {}
    content: dict[int, Computed] = {}
    for i, item in enumerate(nodes):
        if i not in leaf_items:
            place[i], content[i] = place_of(item), content_of(item)

    def node(i: int) -> Node:
        made: Node = schema.NODE.read(nodes[i], context, i)
        return made

    def leaf(i: int) -> Leaf | None:
        return schema.LEAF.read(leaf_items[i], context) if i in leaf_items else None

    number = [item.get("sequence", _LAST) for item in nodes]
    ordered = sorted(range(len(nodes) - 1, -1, -1), key=number.__getitem__)
    return View(
        process_of(data, context),
        _saved(data),
        Graph,
        node,
        leaf,
        scopes,
        [i for i in ordered if i not in leaf_items],
        place,
        content,
        [_leaf(item, plain, tensors) for item in data["leaves"]],
        [tuple(row[:4]) for row in data["edges"]],
    )


def process_of(data: dict[str, Any], context: Context | None = None) -> Process | None:
    """What the file says of the process that wrote it."""
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


Alike = dict[Hashable, Any]
"""Equal places and contents as one object, which makes comparing them cheap."""


class _PlaceOf:
    """Makes the places of nodes: those of equal numbers in one file are equal."""

    def __init__(self, scopes: list[Scope], sources: list[SourceLine], alike: Alike) -> None:
        self._scopes, self._sources, self._alike = scopes, sources, alike
        self._known: dict[Hashable, Hashable] = {}

    def __call__(self, item: dict[str, Any]) -> Hashable:
        raw = op, scope, line = item["op"], item.get("scope"), item.get("script_line", item.get("source"))
        known = self._known.get(raw)
        if known is None:
            where = (
                None
                if scope is None
                else (self._scopes[scope].path, self._scopes[scope].type, self._scopes[scope].call)
            )
            place = op, where, None if line is None else self._sources[line][:2]
            known = self._known[raw] = self._alike.setdefault(place, place)
        return known


class _ComputedOf:
    """Makes the contents of nodes; those of equal data in one file are equal."""

    def __init__(self, tensors: list[TensorInfo | None], context: Context, alike: Alike) -> None:
        self._tensors, self._context, self._alike = tensors, context, alike
        self._known: dict[Hashable, Computed] = {}

    def __call__(self, item: dict[str, Any]) -> Computed:
        outputs, attributes = tuple(item.get("outputs", ())), item.get("attributes")
        saved = tuple([(slot["slot"], slot.get("nbytes") or 0) for slot in item["saved"]]) if "saved" in item else ()
        flags = tuple(item["flags"]) if "flags" in item else ()
        raw = outputs, saved, flags, str(attributes) if attributes else ""
        known = self._known.get(raw)
        if known is None:
            tensors = tuple([None if output is None else self._tensors[output] for output in outputs])
            text = attributes_text(schema.ATTRIBUTES.read(attributes, self._context)) if attributes else ""
            made = Computed(tensors, saved, flags, text)
            known = self._known[raw] = self._alike.setdefault(made, made)
        return known


def _leaf(item: dict[str, Any], plain: Plain, tensors: list[TensorInfo]) -> LeafView:
    return LeafView(
        item["node"], tuple(item.get("names", ())), (item.get("kind", "input"), plain[tensors[item["tensor"]]])
    )


def _saved(data: dict[str, Any]) -> int:
    slots = [slot for item in data["nodes"] for slot in item.get("saved", ()) if slot.get("storage") is not None]
    kept = {storage for slot in slots for storage in (slot["storage"], *slot.get("parts", ()))}
    storages = data["storages"]
    return sum(storages[storage].get("nbytes") or 0 for storage in kept if storages[storage]["kind"] in COUNTED)
