"""What gives the names of a function their values, and which of these a use may see.

Reads syntax only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gradviz.source.syntax import COMPREHENSIONS, LOOPS, FunctionSyntax, assignments


class Binding(NamedTuple):
    """One place that gives a name, such as `x` or `self.h`, a value. `value` is the
    expression, where it is one; `counts`: the numbers of a `range`.

    `scope` is the comprehension or lambda that alone knows the name. `changes`: it
    changes what the name holds, as `xs.append(x)` does.
    """

    node: ast.AST
    value: ast.expr | None = None
    counts: bool = False
    scope: ast.AST | None = None
    changes: bool = False

    @property
    def is_parameter(self) -> bool:
        return isinstance(self.node, ast.arg)


class Reaching(NamedTuple):
    """The last binding before a use, None where the function has none. Not
    `is_certain`: another one may be the last that ran. With the loops around the use in
    which the name gets a value; in the first turns of `later` ones, it is the last.
    """

    binding: Binding | None
    is_certain: bool = False
    loops: tuple[ast.AST, ...] = ()
    later: tuple[ast.AST, ...] = ()


class Bindings:
    """The bindings of one function."""

    def __init__(self, function: FunctionSyntax) -> None:
        self._function = function
        self._by_name: dict[str, list[Binding]] = {}
        for node in function.order:
            for name, binding in _bindings(node):
                scope = binding.scope or self._scope(binding.node)
                found = self._by_name.setdefault(name, [])
                found.append(binding._replace(scope=scope))

    def before(self, name: str, use: ast.AST, with_changes: bool = False) -> Reaching:
        """What a name may have at a use; `with_changes`: what it holds matters, too."""
        around = [parent.node for parent in self._function.outward(use)]
        known = self._known(name, around, with_changes)
        order = self._function.order
        earlier = [one for one in known if order[one.node] < order[use]]
        turning = [loop for loop in around if self._gives_anew(loop, known)]
        if not earlier:
            return Reaching(None, False, tuple(turning))
        last = max(earlier, key=lambda one: order[one.node])
        own = self.loops_of(last.node)
        later = tuple(loop for loop in turning if loop not in own)
        if not self._dominates(last, around):
            return Reaching(last, False, tuple(turning))
        return Reaching(last, not later, tuple(turning), later)

    def _known(
        self, name: str, around: Sequence[ast.AST], with_changes: bool
    ) -> list[Binding]:
        """The bindings of the innermost scope around that knows a name."""
        every = self._by_name.get(name, [])
        if not with_changes:
            every = [one for one in every if not one.changes]
        for scope in around:
            inside = [one for one in every if one.scope is scope]
            if inside:
                return inside
        return [one for one in every if one.scope is None]

    def _gives_anew(self, loop: ast.AST, known: Sequence[Binding]) -> bool:
        """Whether each turn of a loop gives a name a value."""
        if not isinstance(loop, (*LOOPS, *COMPREHENSIONS)):
            return False
        return any(loop in self.loops_of(one.node) for one in known)

    def values(self, name: str) -> list[ast.expr]:
        """What a name is given anywhere."""
        known = self._by_name.get(name, ())
        return [one.value for one in known if one.value is not None]

    def only(self, name: str) -> Binding | None:
        """The binding of a name that is given a value at one place."""
        known = [one for one in self._by_name.get(name, ()) if not one.changes]
        return known[0] if len(known) == 1 else None

    def _scope(self, node: ast.AST) -> ast.AST | None:
        """The comprehension or lambda whose own name this is."""
        is_own = isinstance(node, ast.arg)
        for outer, field, _ in self._function.outward(node):
            if isinstance(outer, ast.comprehension):
                is_own = is_own or field == "target"
            elif is_own and isinstance(outer, (*COMPREHENSIONS, ast.Lambda)):
                return outer
            elif isinstance(outer, ast.stmt):
                return None
        return None

    def loops_of(self, node: ast.AST) -> list[ast.AST]:
        """The loops each of whose turns runs a place."""
        found: list[ast.AST] = []
        for outer, field, _ in self._function.outward(node):
            is_inside = isinstance(outer, LOOPS) and field not in ("orelse", "iter")
            if is_inside or isinstance(outer, COMPREHENSIONS):
                found.append(outer)
        return found

    def _dominates(self, binding: Binding, around: Sequence[ast.AST]) -> bool:
        """Whether a use, which stands in these, is behind a binding on every way."""
        if binding.is_parameter or binding.scope is not None:
            return True
        parents = self._function.parents
        node = binding.node
        while node not in around and node in parents:
            parent, field, _ = parents[node]
            is_block = isinstance(getattr(parent, field, None), list)
            if is_block and isinstance(parent, (ast.If, ast.Try, *LOOPS)):
                return parent in around and isinstance(node, ast.stmt)
            node = parent
        return True


@lru_cache(maxsize=1000)
def bindings_of(function: FunctionSyntax) -> Bindings:
    """The bindings of a function, read once."""
    return Bindings(function)


def _bindings(node: ast.AST) -> Iterator[tuple[str, Binding]]:
    """What one node binds."""
    if isinstance(node, ast.arg):
        yield node.arg, Binding(node)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _counted(node.target, node.iter)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        # a call for what it does, not for what it gives
        called = node.value.func
        if isinstance(called, ast.Attribute) and dotted(called.value):
            yield dotted(called.value), Binding(called, changes=True)
    else:
        # no expression has what `+=` makes, or what `with` enters
        has_value = not isinstance(node, (ast.AugAssign, ast.withitem))
        for target, value in assignments(node):
            yield from _bound(target, value if has_value else None)


def _counted(target: ast.AST, through: ast.AST) -> Iterator[tuple[str, Binding]]:
    called = getattr(getattr(through, "func", None), "id", "")
    if called == "enumerate" and isinstance(target, ast.Tuple):
        yield from _bound(target.elts[0], None, counts=True)
        for one in target.elts[1:]:
            yield from _bound(one, None)
    else:
        yield from _bound(target, None, counts=called == "range")


def _bound(
    target: ast.AST, value: ast.expr | None, counts: bool = False
) -> Iterator[tuple[str, Binding]]:
    if isinstance(target, (ast.Tuple, ast.List)):
        values: list[Any] = [None] * len(target.elts)
        parts = getattr(value, "elts", None)
        if isinstance(value, (ast.Tuple, ast.List)) and len(parts) == len(values):  # type: ignore[arg-type]
            values = list(value.elts)
        for one, its in zip(target.elts, values):
            yield from _bound(one, its, counts)
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value, None, counts)
    elif isinstance(target, ast.Subscript):
        if dotted(target.value):
            yield dotted(target.value), Binding(target, changes=True)
    elif dotted(target):
        yield dotted(target), Binding(target, value, counts)


def dotted(node: ast.AST) -> str:
    """`x`, `self.h`; "" for what is no name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
