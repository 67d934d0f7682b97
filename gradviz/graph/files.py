"""Graph files: writes a Graph as JSON and reads it back, equal in every field.

The format is described in docs/json-format.md. Writing is streamed, one record a line. This module owns the envelope and
what holds between records; `gradviz.graph.files` knows the records. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from gradviz import graph as model
from gradviz.errors import GraphFileError
from gradviz.graph.codecs import (
    Attributes,
    Bad,
    Codec,
    Context,
    Many,
    Number,
    Optional,
    Plain,
    Record,
    Reference,
    Row,
    Shared,
    Size,
    Whole,
    Word,
    shown,
)
from gradviz.graph.columns import paused
from gradviz.graph.model import Edge, Graph, Leaf, Scope
from gradviz.stages import Stage
from gradviz.wording import without_hidden

# -- how each record is written: one table for writing and for reading -------------------------------------------------

TEXT, BOOL, WHOLE = Plain(str, "text"), Plain(bool, "true or false"), Whole()
NAMES, ATTRIBUTES = Many(TEXT), Attributes()
NODE_ID, SCOPE_ID, STORAGE_ID = Reference("nodes"), Reference("scopes"), Reference("storages")
TENSOR, SOURCE = Shared("tensors"), Shared("sources")
STORAGE_KIND = Word(get_args(model.StorageKind))

TENSOR_ROW = Row(model.TensorInfo, {"shape": Optional(Many(Size())), "dtype": TEXT, "device": TEXT, "layout": TEXT})
SOURCE_ROW = Row(model.SourceLine, {"file": TEXT, "line": WHOLE, "function": TEXT, "text": TEXT, "package": TEXT})
EDGE = Row(model.Edge, {"consumer": NODE_ID, "producer": NODE_ID, "output": WHOLE, "position": WHOLE, "count": WHOLE})
BACKWARD = Row(model.BackwardStep, {"node": NODE_ID, "norm": Optional(Number()), "measured": BOOL})
USES = Row(model.Uses, {"node": NODE_ID, "output": WHOLE, "count": WHOLE})
_PART = re.compile(r"\bin storage (\d+)")


class _SavedRecord(Record):
    """A saved tensor. Files written before `packing` and `parts` were fields say both in the words of its note alone."""

    def read(self, value: Any, context: Context, *given: Any) -> Any:
        saved: model.SavedTensor = super().read(value, context, *given)
        if not saved.note:
            return saved
        if saved.state == "packed" and "packing" not in value:
            if saved.tensor is None and "torch.utils.checkpoint." in saved.note:
                return saved._replace(packing="recompute")
            if "save_on_cpu" in saved.note:
                saved = saved._replace(packing="offload")
        if saved.storage is not None and "parts" not in value:
            parts = [int(number) for number in _PART.findall(saved.note)]
            if len(parts) > 1 and max(parts) < context.lengths["storages"]:
                saved = saved._replace(parts=tuple(parts))
        return saved


STORAGE = Record(model.Storage, {"nbytes": Optional(WHOLE), "kind": STORAGE_KIND}, omit="id")
SCOPE = Record(
    model.Scope,
    {
        "path": TEXT,
        "type": TEXT,
        "call": WHOLE,
        "parent": Optional(SCOPE_ID),
        "parameters": Optional(WHOLE),
        "output": Optional(TENSOR),
    },
)
SAVED = _SavedRecord(
    model.SavedTensor,
    {
        "slot": TEXT,
        "tensor": Optional(TENSOR),
        "storage": Optional(STORAGE_ID),
        "kind": Optional(STORAGE_KIND),
        "state": Word(get_args(model.SavedState)),
        "nbytes": Optional(WHOLE),
        "view": BOOL,
        "leaf": Optional(NODE_ID),
        "version": Optional(WHOLE),
        "note": TEXT,
        "packing": Word(get_args(model.Packing)),
        "parts": Many(STORAGE_ID),
    },
)
GROUP = Record(
    model.Group,
    {
        "kind": Word(get_args(model.GroupKind)),
        "title": TEXT,
        "nodes": Many(WHOLE),  # ids of the graph that was folded, which is not in the file
        "count": WHOLE,
        "ops": WHOLE,
        "parameters": WHOLE,
        "nbytes": Optional(WHOLE),
        "same_as": Optional(WHOLE),
        "shared": Many(USES),
    },
)
NODE = Record(
    model.Node,
    {
        "op": TEXT,
        "outputs": Many(Optional(TENSOR)),
        "sequence": Optional(WHOLE),
        "scope": Optional(SCOPE_ID),
        "source": Optional(SOURCE),
        "attributes": ATTRIBUTES,
        "saved": Many(SAVED),
        "flags": Many(Word(get_args(model.NodeFlag))),
        "names": NAMES,
        "none_inputs": WHOLE,
        "function": Optional(Record(model.Function, {"name": TEXT, "definition": Optional(SOURCE)})),
        "group": Optional(GROUP),
        "script_line": Optional(SOURCE),
    },
    omit="id",
)
BASE = Record(model.Base, {"tensor": TENSOR, "node": Optional(NODE_ID), "output": WHOLE, "names": NAMES})
LEAF = Record(
    model.Leaf,
    {
        "node": NODE_ID,
        "names": NAMES,
        "tensor": TENSOR,
        "kind": Word(get_args(model.LeafKind)),
        "has_grad": BOOL,
        "hooks": WHOLE,
        "storage": Optional(STORAGE_ID),
        "base": Optional(BASE),
    },
)
ROOT = Record(
    model.Root,
    {
        "node": Optional(NODE_ID),
        "output": WHOLE,
        "name": TEXT,
        "tensor": TENSOR,
        "base": Optional(BASE),
        "why": TEXT,
    },
)
CALL = Record(
    model.Call,
    {
        "op": TEXT,
        "source": Optional(SOURCE),
        "tensor": Optional(TENSOR),
        "group": Many(WHOLE),
        "peer": Optional(WHOLE),
        "ended": BOOL,
        "tag": WHOLE,
    },
)
RANK_MEMORY = Record(
    model.RankMemory, {name: Optional(WHOLE) for name in ("saved", "parameters", "gradients", "optimizer")}
)
PROCESS = Record(
    model.Process,
    {
        "rank": WHOLE,
        "world": WHOLE,
        "host": TEXT,
        "memory": RANK_MEMORY,
        "calls": Many(CALL),
        "parameters": NAMES,
        "wrapped": TEXT,
        "stage": Optional(WHOLE),
    },
)
RANK_SHARE = Record(model.RankShare, {"ranks": Many(WHOLE), "memory": RANK_MEMORY, "host": TEXT})
MARK = Record(
    model.Mark,
    {
        "number": WHOLE,
        "id": TEXT,
        "words": TEXT,
        "nodes": Many(NODE_ID),
        "edges": Many(Many(WHOLE)),
        "outputs": NAMES,
        "kind": Word(get_args(model.MarkKind)),
    },
)


FORMAT = "gradviz-graph"
VERSION = 1

_LISTS: tuple[tuple[str, Record], ...] = (
    ("nodes", NODE),
    ("edges", EDGE),
    ("leaves", LEAF),
    ("roots", ROOT),
    ("scopes", SCOPE),
    ("storages", STORAGE),
    ("backward", BACKWARD),
    ("by_rank", RANK_SHARE),
    ("marks", MARK),
)
_TABLES: tuple[tuple[str, Record], ...] = (("tensors", TENSOR_ROW), ("sources", SOURCE_ROW))
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_PROCESS = ("process", PROCESS)
_MAY_BE_MISSING = ("backward", "by_rank", "marks")
_HEAD: dict[str, Codec] = {
    "title": TEXT,
    "torch": TEXT,
    "attribution": Word(("", "recorded", "inferred")),
    "notes": NAMES,
}


# -- writing -----------------------------------------------------------------------------------------------------------


def _encode(value: object) -> str:
    """One value as JSON. What cannot be seen is written as an escape of JSON's, which reads back as what it was."""
    return without_hidden(_ENCODER.encode(value), lambda c: json.dumps(c)[1:-1])


def dump(graph: Graph) -> Iterator[str]:
    """The graph as JSON text, in pieces of a line or less. `loads` gives an equal graph back.

    What a folded graph was folded from (`Graph.original`) is not written.

    >>> loads("".join(dump(Graph(title="empty")))).title
    'empty'
    """
    context = Context()
    encode = _encode
    yield f'{{"format":"{FORMAT}","version":{VERSION}'
    for key, codec in _HEAD.items():
        yield f',\n"{key}":{encode(codec.write(getattr(graph, key), context))}'
    lists = [(key, record, getattr(graph, key) if key != "marks" else _kept(graph)) for key, record in _LISTS]
    lists = [entry for entry in lists if entry[2] or entry[0] not in _MAY_BE_MISSING]
    tables = [(key, record, context.written[key]) for key, record in _TABLES]  # filled by then, so they come last
    for key, record, items in (*lists, *tables):
        if key == _TABLES[0][0] and graph.process is not None:  # may add to the tables, and nodes come first in them
            yield f',\n"{_PROCESS[0]}":{encode(_PROCESS[1].write(graph.process, context))}'
        yield f',\n"{key}":['
        before = "\n"
        with Stage("write", key, total=len(items)) as writing:
            for item in writing.each(items):
                yield before + encode(record.write(item, context))
                before = ",\n"
        yield "]"
    yield "\n}\n"


def _kept(graph: Graph) -> list[model.Mark]:
    """What ranks have alone is a part of a merged graph; findings are of one look at it."""
    return [mark for mark in graph.marks if mark.kind != "finding"]


# -- reading -----------------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file that `Graph.save("name.json")` wrote. Needs no torch.

    Raises GraphFileError, which says what is wrong and where, for a file that is missing, broken, of another program or
    of a later version.
    """
    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise GraphFileError(f"{name}: it is not text ({error.reason} at byte {error.start}). {_ADVICE}") from error
    except OSError as error:
        raise GraphFileError(f"{name}: cannot be read: {error.strerror or error}.") from error
    return loads(text, name=name)


def loads(text: str, *, name: str = "graph file") -> Graph:
    """The graph in a text that `dump` made. Raises GraphFileError; `name` is what its message calls the text."""
    try:
        with paused():
            return _graph(_parsed(text))
    except Bad as bad:
        raise GraphFileError(f"{name}: {bad.where.lstrip('.') or 'it'} {bad.problem}. {_ADVICE}") from bad


_ADVICE = "A graph file is written by `graph.save('name.json')` or `gradviz render TARGET -o name.json`."


def _parsed(text: str) -> dict[str, Any]:
    try:
        with Stage("load", doing="parsing the file"):
            data = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Bad(f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except (RecursionError, ValueError) as error:
        raise Bad(f"cannot be read as JSON: {error}") from error
    if type(data) is not dict or data.get("format") != FORMAT:
        raise Bad(f'is not a gradviz graph: it does not say "format": "{FORMAT}"')
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise Bad(f"is {shown(version)}, not a version number", ".version")
    if version > VERSION:
        raise Bad(
            f"is {shown(version)}, and this gradviz reads up to {VERSION}: upgrade gradviz to read this file",
            ".version",
        )
    return data


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def _graph(data: dict[str, Any]) -> Graph:
    context = Context()
    data = {**{key: [] for key in _MAY_BE_MISSING}, **data}
    for key, _ in (*_LISTS, *_TABLES):
        if type(data.get(key)) is not list:
            raise Bad("is missing" if key not in data else f"is {shown(data[key])}, not an array", key)
        context.lengths[key] = len(data[key])
    for key, record in _TABLES:
        context.read[key] = _records(key, record, data[key], context)
    fields: dict[str, Any] = {key: tuple(_records(key, record, data[key], context)) for key, record in _LISTS}
    for key, codec in _HEAD.items():
        fields[key] = _head(key, codec, data, context)
    if _PROCESS[0] in data:
        fields[_PROCESS[0]] = _head(*_PROCESS, data, context)
    _check_edges(fields["edges"])
    _check_leaves(fields["leaves"])
    _check_scopes(fields["scopes"])
    graph = Graph(**fields)
    try:
        _ = graph.order
    except ValueError as error:
        raise Bad("form a cycle, which no autograd graph does", "edges") from error
    return graph


def _head(key: str, codec: Codec, data: dict[str, Any], context: Context) -> Any:
    if key not in data:
        raise Bad("is missing", key)
    try:
        return codec.read(data[key], context)
    except Bad as bad:
        raise bad.inside(key) from None


def _records(key: str, record: Record, items: list[Any], context: Context) -> list[Any]:
    records: list[Any] = []
    numbered = record.first  # a record without an id of its own gets its place in the list
    try:
        with Stage("load", key, records.__len__, len(items)):
            for i, item in enumerate(items):
                records.append(record.read(item, context, i) if numbered else record.read(item, context))
    except Bad as bad:
        raise bad.inside(f"{key}[{len(records)}]") from None
    return records


def _check_edges(edges: Iterable[Edge]) -> None:
    """Edges stand in order of consumer, then position, and have a count of at least 1."""
    before = (-1, -1)
    for i, edge in enumerate(edges):
        here = (edge.consumer, edge.position)
        if here <= before:
            raise Bad("does not come after the edge before it, by consumer and position", f"edges[{i}]")
        if edge.count < 1:
            raise Bad("is 0, and an edge stands for at least one", f"edges[{i}][4]")
        before = here


def _check_leaves(leaves: Iterable[Leaf]) -> None:
    seen: set[int] = set()
    for i, leaf in enumerate(leaves):
        if leaf.node in seen:
            raise Bad(f"is {leaf.node}, the node of another leaf", f"leaves[{i}].node")
        seen.add(leaf.node)


_NESTED = 500


def _check_scopes(scopes: tuple[Scope, ...]) -> None:
    """No scope is inside itself, or in more others than calls can be."""
    done: dict[int, int] = {}  # how deep each is
    for i in range(len(scopes)):
        path: dict[int, None] = {}
        here: int | None = i
        while here is not None and here not in done:
            if here in path:
                raise Bad("is inside itself", f"scopes[{here}]")
            path[here] = None
            here = scopes[here].parent
        around = 0 if here is None else done[here]
        if around + len(path) > _NESTED:
            raise Bad(f"is inside more than {_NESTED} others: module calls do not nest as deep", f"scopes[{i}]")
        done.update({scope: around + depth for depth, scope in enumerate(reversed(path), 1)})
