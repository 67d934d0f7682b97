"""Graph files: writes a Graph as JSON and reads it back, equal in every field.

The format is described in docs/json-format.md. Writing is streamed, one record a line.
This module owns the envelope and what holds between records; how a record is written
follows from its types. Nothing here imports torch.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gradviz import graph as model
from gradviz.errors import GraphFileError
from gradviz.graph.codecs import (
    AttributesCodec,
    Bad,
    Codec,
    Context,
    Many,
    Number,
    Optional,
    Plain,
    Record,
    Reference,
    RowCodec,
    SharedCodec,
    SizeCodec,
    Whole,
    Word,
    shown,
)
from gradviz.graph.collector import paused
from gradviz.graph.model import Graph
from gradviz.graph.records import Edge, Leaf, Scope
from gradviz.graph.written import program_of
from gradviz.stages import Stage
from gradviz.wording import without_hidden

# -- how each record is written: one table for writing and for reading -----------------

TEXT, WHOLE, ATTRIBUTES = Plain(str, "text"), Whole(), AttributesCodec()
_BY_TYPE: dict[Any, Codec] = {
    str: TEXT,
    bool: Plain(bool, "true or false"),
    float: Number(),
    int | str: SizeCodec(),
    Mapping[str, Any]: ATTRIBUTES,
    model.TensorInfo: SharedCodec("tensors"),
    model.SourceLine: SharedCodec("sources"),
}
_INDICES: dict[str, Codec] = {
    **dict.fromkeys(("node", "consumer", "producer", "leaf"), Reference("nodes")),
    **dict.fromkeys(("scope", "parent"), Reference("scopes")),
    **dict.fromkeys(("storage", "parts"), Reference("storages")),
}
"""Fields whose whole numbers are indices into a list of the graph."""
_RETIRED_FLAGS = ("in_compiled", "recomputed")
"""Flags of nodes that files of earlier versions have."""
_PART = re.compile(r"\bin storage (\d+)")


def _codec(type: Any, integers: Codec) -> Codec:
    """How values of a type are written, with `integers` for the whole numbers among them."""
    if type is int or type in _BY_TYPE:
        return integers if type is int else _BY_TYPE[type]
    inner = get_args(type)
    if get_origin(type) is Literal:
        return Word(inner)
    if get_origin(type) is tuple:
        return Many(_codec(inner[0], integers))
    # what is left is an optional value
    (value,) = (part for part in inner if part is not NoneType)
    return Optional(_codec(value, integers))


def _record(make: Any, kind: type[Record] = Record, **indices: Codec) -> Record:
    """How a record is written: every field as its type in the graph model says, but for
    the number that is its place.
    """
    fields = [
        (name, type)
        for name, type in get_type_hints(make).items()
        if (name, type) != ("id", int)
    ]
    record = kind(
        make,
        {
            name: _codec(type, (_INDICES | indices).get(name, WHOLE))
            for name, type in fields
        },
    )
    _BY_TYPE.setdefault(make, record)

    return record


class _SavedRecord(Record):
    """A saved tensor. Files written before `packing` and `parts` were fields say both
    in the words of its note alone.
    """

    def read(self, value: Any, context: Context, *leading: Any) -> Any:
        saved: model.SavedTensor = super().read(value, context, *leading)
        if not saved.note:
            return saved

        if saved.state == "packed" and "packing" not in value:
            if saved.tensor is None and "torch.utils.checkpoint." in saved.note:
                # an older file says it in the note only
                return saved._replace(packing="recompute")
            if "save_on_cpu" in saved.note:
                saved = saved._replace(packing="offload")

        if saved.storage is not None and "parts" not in value:
            parts = [int(number) for number in _PART.findall(saved.note)]
            if len(parts) > 1 and max(parts) < context.lengths["storages"]:
                saved = saved._replace(parts=tuple(parts))

        return saved


class _Flags(Many):
    """The flags of a node, without retired ones."""

    def read(self, value: Any, context: Context) -> tuple[Any, ...]:
        if type(value) is list:
            # an older file stays readable
            kept = [flag for flag in value if flag not in _RETIRED_FLAGS]
        else:
            kept = value
        return super().read(kept, context)


_BY_TYPE[tuple[model.NodeFlag, ...]] = _Flags(Word(get_args(model.NodeFlag)))
TENSOR_ROW, SOURCE_ROW = (
    _record(model.TensorInfo, RowCodec),
    _record(model.SourceLine, RowCodec),
)
EDGE, BACKWARD = _record(model.Edge, RowCodec), _record(model.BackwardStep, RowCodec)
STORAGE, SCOPE = _record(model.Storage), _record(model.Scope)
_record(model.Uses, RowCodec)  # each before those that hold it
_record(model.Function)
GROUP, BASE, SAVED = (
    _record(model.Group),
    _record(model.Base),
    _record(model.SavedTensor, _SavedRecord),
)
NODE, LEAF, ROOT = _record(model.Node), _record(model.Leaf), _record(model.Root)
PROCESS, RANK_SHARE, MARK, DATA, FUNCTION_CALL, CONSTRUCT = (
    _record(model.Process),
    _record(model.RankShare),
    _record(model.Mark, nodes=_INDICES["node"]),
    _record(
        model.Data,
        nodes=_INDICES["node"],
        of=Reference("data"),
        scope=Reference("scopes", least=-1),
        function=Reference("program"),
    ),
    _record(
        model.FunctionCall,
        parent=Reference("functions"),
        nodes=_INDICES["node"],
        scopes=_INDICES["scope"],
    ),
    _record(
        model.Construct,
        parent=Reference("program"),
        nodes=_INDICES["node"],
        scopes=_INDICES["scope"],
    ),
)


FORMAT = "gradviz-graph"
VERSION = 2

_LISTS: tuple[tuple[str, Record], ...] = (
    ("nodes", NODE),
    ("edges", EDGE),
    ("leaves", LEAF),
    ("roots", ROOT),
    ("scopes", SCOPE),
    ("storages", STORAGE),
    ("backward", BACKWARD),
    ("data", DATA),
    ("functions", FUNCTION_CALL),
    ("program", CONSTRUCT),
    ("by_rank", RANK_SHARE),
    ("marks", MARK),
)
_TABLES: tuple[tuple[str, Record], ...] = (
    ("tensors", TENSOR_ROW),
    ("sources", SOURCE_ROW),
)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_MAY_BE_MISSING = ("backward", "data", "functions", "program", "by_rank", "marks")
_HEAD: dict[str, Codec] = {
    "title": TEXT,
    "torch": TEXT,
    "attribution": Word(("", "recorded", "inferred")),
    "notes": Many(TEXT),
}


# -- writing ---------------------------------------------------------------------------


def _encode(value: object) -> str:
    """One value as JSON. What cannot be seen is written as an escape of JSON's, which
    reads back as what it was.
    """
    return without_hidden(_ENCODER.encode(value), lambda c: json.dumps(c)[1:-1])


def dump(graph: Graph) -> Iterator[str]:
    """The graph as JSON text, in pieces of a line or less. `loads` gives an equal graph
    back.

    How a graph was folded (`Graph.folding`) is not written.

    >>> loads("".join(dump(Graph(title="empty")))).title
    'empty'
    """
    context, encode = Context(), _encode
    yield f'{{"format":"{FORMAT}","version":{VERSION}'
    for key, codec in _HEAD.items():
        yield f',\n"{key}":{encode(codec.write(getattr(graph, key), context))}'

    # what ranks have alone is a part of a merged graph; findings are of one look at it
    marks = [mark for mark in graph.marks if mark.kind != "finding"]
    lists = [
        (key, record, getattr(graph, key) if key != "marks" else marks)
        for key, record in _LISTS
    ]
    lists = [entry for entry in lists if entry[2] or entry[0] not in _MAY_BE_MISSING]
    # filled by then, so they come last
    tables = [(key, record, context.written[key]) for key, record in _TABLES]

    for key, record, items in (*lists, *tables):
        if key == "tensors" and graph.process is not None:
            yield f',\n"process":{encode(PROCESS.write(graph.process, context))}'
        yield f',\n"{key}":['
        before = "\n"
        with Stage("write", key, total=len(items)) as writing:
            for item in writing.each(items):
                yield before + encode(record.write(item, context))
                before = ",\n"
        yield "]"

    yield "\n}\n"


# -- reading ---------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file that `Graph.save("name.json")` wrote. Needs no torch.

    Raises
    ------
    GraphFileError
        the file is missing, broken, of another program or of a later version; the
        message says what is wrong, and where.
    """
    name = os.fspath(path)
    if os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name):
        raise GraphFileError(
            f"{name}: it is a pipe or a device, which may never end. Copy it to a file first."
        )

    try:
        with open(name, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise GraphFileError(
            f"{name}: it is not text ({error.reason} at byte {error.start}). {_ADVICE}"
        ) from error
    except OSError as error:
        raise GraphFileError(
            f"{name}: cannot be read: {error.strerror or error}."
        ) from error

    return loads(text, name=name)


def loads(text: str, *, name: str = "graph file") -> Graph:
    """The graph in a text that `dump` made. Raises GraphFileError; `name` is what its
    message calls the text.
    """
    try:
        with paused():
            return _graph(_parsed(text))
    except Bad as bad:
        raise GraphFileError(
            f"{name}: {bad.where.lstrip('.') or 'it'} {bad.problem}. {_ADVICE}"
        ) from bad


_ADVICE = "A graph file is written by `graph.save('name.json')` or `gradviz render TARGET -o name.json`."


def _parsed(text: str) -> dict[str, Any]:
    try:
        with Stage("load", doing="parsing the file"):
            data = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Bad(
            f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except (RecursionError, ValueError) as error:
        raise Bad(f"cannot be read as JSON: {error}") from error

    if type(data) is not dict or data.get("format") != FORMAT:
        raise Bad(f'is not a gradviz graph: it does not say "format": "{FORMAT}"')

    version = data.get("version")
    if type(version) is not int or version < 1:
        raise Bad(f"is {shown(version)}, not a version number", ".version")

    # a later version may mean something else by the same keys
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
        if key not in data:
            raise Bad("is missing", key)
        if type(data[key]) is not list:
            raise Bad(f"is {shown(data[key])}, not an array", key)
        context.lengths[key] = len(data[key])

    for key, record in _TABLES:
        context.read[key] = _records(key, record, data[key], context)

    fields: dict[str, Any] = {
        key: tuple(_records(key, record, data[key], context)) for key, record in _LISTS
    }
    for key, codec in _HEAD.items():
        fields[key] = _head(key, codec, data, context)

    if "process" in data:
        fields["process"] = _head("process", PROCESS, data, context)

    _check_edges(fields["edges"])
    _check_leaves(fields["leaves"])
    _check_scopes(fields["scopes"])
    functions = fields.pop("functions")
    if data["version"] == 1:
        fields["program"] = program_of(functions)
    graph = Graph(**fields)
    _check_program(graph)

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
    numbered = record.first
    try:
        with Stage("load", key, records.__len__, len(items)):
            for i, item in enumerate(items):
                if numbered:
                    # the file leaves the id out: it is the place in the list
                    records.append(record.read(item, context, i))
                else:
                    records.append(record.read(item, context))
    except Bad as bad:
        raise bad.inside(f"{key}[{len(records)}]") from None

    return records


def _check_edges(edges: Iterable[Edge]) -> None:
    """Edges stand in order of consumer, then position, and have a count of at least 1."""
    before = (-1, -1)
    for i, edge in enumerate(edges):
        place = (edge.consumer, edge.position)
        if place <= before:
            raise Bad(
                "does not come after the edge before it, by consumer and position",
                f"edges[{i}]",
            )
        if edge.count < 1:
            raise Bad("is 0, and an edge stands for at least one", f"edges[{i}][4]")
        before = place


def _check_leaves(leaves: Iterable[Leaf]) -> None:
    seen: set[int] = set()
    for i, leaf in enumerate(leaves):
        if leaf.node in seen:
            raise Bad(f"is {leaf.node}, the node of another leaf", f"leaves[{i}].node")
        seen.add(leaf.node)


def _check_program(graph: Graph) -> None:
    """Each lies in its scope, like what it made, and behind the one around it."""
    for i, construct in enumerate(graph.program):
        inside = {graph.nodes[node].scope for node in construct.nodes}
        inside |= {graph.scopes[scope].parent for scope in construct.scopes}
        if construct.parent is not None:
            inside.add(graph.program[construct.parent].scope)
        later = range(i, len(graph.program))
        if construct.parent in later or inside - {construct.scope}:
            raise Bad("is not where the construct around it is", f"program[{i}]")


_NESTED = 500


def _check_scopes(scopes: tuple[Scope, ...]) -> None:
    """No scope is inside itself, or in more others than calls can be."""
    done: dict[int, int] = {}  # how deep each is
    for i in range(len(scopes)):
        path: dict[int, None] = {}
        current: int | None = i
        while current is not None and current not in done:
            if current in path:
                raise Bad("is inside itself", f"scopes[{current}]")
            path[current] = None
            current = scopes[current].parent

        outer_depth = 0 if current is None else done[current]
        if outer_depth + len(path) > _NESTED:
            raise Bad(
                f"is inside more than {_NESTED} others: module calls do not nest as deep",
                f"scopes[{i}]",
            )

        done.update(
            {
                scope: outer_depth + depth
                for depth, scope in enumerate(reversed(path), 1)
            }
        )
