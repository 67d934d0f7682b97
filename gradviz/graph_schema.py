"""How each record of the graph model is written in a graph file: one table for writing and for reading.

Defaults come from the records themselves. This module knows no file and no envelope; see `gradviz.graph_json`.
"""

from __future__ import annotations

from typing import get_args

from gradviz import graph as model
from gradviz.graph_codecs import (
    Attributes,
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
)

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
SAVED = Record(
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
