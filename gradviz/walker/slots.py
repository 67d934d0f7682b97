"""The slots of live nodes: how to fetch those of a type of node, and in which state each is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from gradviz.graph import SavedState
from gradviz.variables.objects import is_a
from gradviz.walker import private
from gradviz.walker.private import Node

RAW, SAVED = "_raw_saved_", "_saved_"
FetchAll = Callable[[Node], tuple[Any, ...]]


class Plan(NamedTuple):
    """How to read the nodes of one type."""

    slots: tuple[tuple[str, Callable[[Node], Any]], ...]  # each tensor slot, and what fetches it
    plain: tuple[str, ...]  # names of the attributes that are no tensors
    values: FetchAll | None  # fetches all of those at once
    custom: bool


def plan(node: Node) -> Plan:
    """How to read a node's type. `dir` is slow, and the same for all nodes of the type."""
    members = dir(node)
    custom = isinstance(node, private.BackwardCFunction)
    tensors = ["tensors"] if custom else [name.removeprefix(RAW) for name in members if name.startswith(RAW)]
    saved = [name.removeprefix(SAVED) for name in members if name.startswith(SAVED)]
    plain = tuple([name for name in saved if name not in tensors])
    slots = tuple([(name, attrgetter(RAW + name)) for name in tensors]) if private.HAS_RAW_DATA else ()
    return Plan(slots, plain, _fetch_all(plain), custom)


def _fetch_all(plain: tuple[str, ...]) -> FetchAll | None:
    if not plain:
        return None
    fetch = attrgetter(*[SAVED + name for name in plain])
    return fetch if len(plain) > 1 else lambda node: (fetch(node),)


def shown(name: str) -> str:
    """A slot's name for a reader."""
    return "saved_tensors" if name == "tensors" else name


def is_freed(node: Node, slot: str) -> bool:
    """Whether an empty slot without a hook is empty because backward freed it. No hook can run: there is none."""
    try:
        getattr(node, SAVED + slot)
    except RuntimeError:
        return True
    return False


def state(node: Node | None, slot: str) -> SavedState:
    """Whether torch says that an unhooked slot was modified since it was saved."""
    try:
        getattr(node, SAVED + slot)
    except RuntimeError as error:
        return "modified" if "inplace" in str(error) else "unknown"
    return "live"


def state_of_element(raw: Any) -> SavedState:
    """The same for one element of a list. Torch refuses to answer for an output of the node itself: unknown."""
    try:
        raw.unpack()
    except (RuntimeError, AttributeError) as error:
        return "modified" if "inplace operation" in str(error) else "unknown"
    return "live"


def tensors_on(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an attribute of `ctx`, at most one list, tuple or dict deep, with the names of their slots."""
    items: Any = ((name, value),)
    if is_a(value, list) or is_a(value, tuple):
        items = ((f"{name}[{i}]", item) for i, item in enumerate(value))
    elif type(value) is dict:
        items = ((f"{name}[{i}]", item) for i, item in enumerate(value.values()))
    return ((slot, item) for slot, item in items if is_a(item, torch.Tensor))
