"""What nodes keep besides tensors, such as `dim` or `alpha`, as plain data. Nodes with equal attributes share one mapping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradviz.graph import NO_ATTRIBUTES
from gradviz.walker.private import Node
from gradviz.walker.slots import SAVED, FetchAll

_SIGNED_FROM = 2**63


class _NothingIn(dict[tuple[str, ...], Mapping[str, Any]]):
    """The attributes of nodes without plain ones, by the slots that hold nothing: each is None."""

    def __missing__(self, empty: tuple[str, ...]) -> Mapping[str, Any]:
        made = self[empty] = _mapping((), (), empty)
        return made


class Attributes:
    """Reads the attributes of the nodes of one walk; `nothing_in` has those of nodes without plain ones."""

    def __init__(self) -> None:
        self._known: dict[Any, Mapping[str, Any]] = {}
        self.nothing_in = _NothingIn({(): NO_ATTRIBUTES})

    def read(
        self, node: Node, plain: tuple[str, ...], fetch: FetchAll | None, empty: Sequence[str]
    ) -> Mapping[str, Any]:
        """Plain attributes, as the node's `slots.Plan` has them, and None for the slots in `empty`, which hold nothing."""
        values: tuple[Any, ...] = ()
        try:
            if fetch is not None:
                values = fetch(node)
            key = (plain, values, tuple(map(type, values)), *empty)  # types, because 1 == 1.0 == True
            known = self._known.get(key)
        except RuntimeError:  # one cannot be read: ask one by one
            return _mapping(plain, tuple([_one(node, name) for name in plain]), empty)
        except TypeError:  # a list or a symbolic size, which have no hash
            return _mapping(plain, values, empty)
        if known is None:
            known = self._known[key] = _mapping(plain, values, empty)
        return known


def _mapping(plain: tuple[str, ...], values: tuple[Any, ...], empty: Sequence[str]) -> Mapping[str, Any]:
    found = dict(zip(plain, map(_decoded, values))) | dict.fromkeys(empty)
    return {name: found[name] for name in sorted(found)}


def _one(node: Node, name: str) -> Any:
    try:
        return getattr(node, SAVED + name)
    except RuntimeError as error:
        return f"unreadable: {str(error).splitlines()[0]}"


def _decoded(value: Any) -> Any:
    """A non-tensor attribute as plain data. An int64 that torch hands out as unsigned is made negative again."""
    kind = type(value)
    if kind is int:
        return value - 2**64 if value >= _SIGNED_FROM else value
    if value is None or kind in (bool, float, str):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_decoded(item) for item in value)
    return str(value)
