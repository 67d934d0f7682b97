"""Scopes for the operations of compiled regions, from the modules that the compiler noted around each of them.

The compiler tells a module by its identity and by an expression in terms of the compiled function's variables. Where the
caller has a name for the module it is called that; else the expression is read below the module that was compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gradviz.compiled.region import ForwardPlace, Input, Operation, TracedModule
from gradviz.graph import Graph, Scope
from gradviz.graph.origins import common

_VARIABLE = re.compile(r"([LG])\['(\w+)'\]")
_WRAPPER = "OptimizedModule"


class KnownModule(NamedTuple):
    """What the caller knows of a module: its path, its class, and how many numbers its parameters hold."""

    path: str
    type: str
    parameters: int | None = None


class Scoping:
    """Adds scopes to those of a graph."""

    def __init__(self, graph: Graph, modules: Mapping[int, KnownModule]) -> None:
        self._scopes = list(graph.scopes)
        self._modules = modules
        self._at = {module.path: module for module in reversed([*modules.values()])}
        self._made: dict[tuple[int | None, str, int], int] = {}

    @property
    def scopes(self) -> tuple[Scope, ...]:
        return tuple(self._scopes)

    def around(self, scope: int | None, noted: Iterable[Input | Operation]) -> int | None:
        """The scope of the module that was compiled: the one of the region's node, else one that is made for it.

        torch wraps a compiled module in another one, which is shown as what it wraps.
        """
        if scope is None:
            root = next(filter(None, (self._root(value.place) for value in noted)), None)
            return self._scope(None, root.path, root.type, 1, root.parameters) if root is not None else None
        record = self._scopes[scope]
        if record.type == _WRAPPER and record.path in self._at:
            known = self._at[record.path]
            self._scopes[scope] = record._replace(type=known.type, parameters=known.parameters)
        return scope

    def first(self, path: str) -> int | None:
        """The first call of the module at `path`."""
        return next((i for i, scope in enumerate(self._scopes) if scope.path == path and path), None)

    def common(self, scopes: Sequence[int | None]) -> int | None:
        """The innermost scope that is around all of these."""
        known = [scope for scope in scopes if scope is not None]
        return common(self._scopes, known) if len(known) == len(scopes) else None

    def scope(self, place: ForwardPlace, outer: int | None) -> int | None:
        """The innermost scope of an operation; `outer` is that of the whole region."""
        at = outer
        for call in place.modules:
            path, known = self._path(call, outer), self._modules.get(call.identity)
            if at is not None and self._scopes[at].path == path:
                continue
            at = self._scope(at, path, call.type, call.call, known and known.parameters)
        return at

    def path(self, place: ForwardPlace, outer: int | None) -> str:
        """The path of the innermost module; "" where none is noted."""
        return self._path(place.modules[-1], outer) if place.modules else ""

    def _scope(self, parent: int | None, path: str, type: str, call: int, parameters: int | None) -> int:
        key = parent, path, call
        if key not in self._made:
            self._made[key] = len(self._scopes)
            self._scopes.append(Scope(path, type, call, parent, parameters))
        return self._made[key]

    def _path(self, call: TracedModule, outer: int | None) -> str:
        known = self._modules.get(call.identity)
        if known is not None:
            return known.path
        match = _VARIABLE.match(call.expression)
        if match is None:
            return call.expression
        rest = call.expression[match.end() :].lstrip(".")
        around = self._scopes[outer].path if outer is not None else ""
        first = match[2] if match[1] == "G" or not rest else around
        return ".".join(filter(None, (first, rest)))

    def _root(self, place: ForwardPlace) -> KnownModule | None:
        """The compiled module, when a module inside it has a name that ends as the compiler's expression does."""
        for call in place.modules[:1]:
            known, match = self._modules.get(call.identity), _VARIABLE.match(call.expression)
            if known is not None and match is not None:
                inside = call.expression[match.end() :]
                path = known.path.removesuffix(inside)
                return self._at.get(path) if path != known.path or not inside else None
        return None
