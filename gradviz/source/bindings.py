"""What gives the names of a function their values, and which of these a use may see.

Reads syntax only.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from gradviz.source.syntax import COMPREHENSIONS, LOOPS, FunctionSyntax, assignments


class Binding(NamedTuple):
    """One place that gives a name, such as `x` or `self.h`, a value. `value` is the
    expression, where it is one; `counts`: the numbers of a `range`.

    `scope` is the comprehension or lambda that alone knows the name. `changes`: it
    changes what the name holds, as `xs.append(x)` does. `origin` is what the value comes
    out of: `xs` of `for x in xs`, `x += 1` itself; `element`, which one of several in it.
    """

    node: ast.AST
    value: ast.expr | None = None
    counts: bool = False
    scope: ast.AST | None = None
    changes: bool = False
    origin: ast.AST | None = None
    element: int | None = None

    @property
    def is_parameter(self) -> bool:
        return isinstance(self.node, ast.arg)

    @property
    def place(self) -> ast.AST:
        """Where the name gets the value: `x += 1` computes first what it adds."""
        return self.origin if isinstance(self.origin, ast.AugAssign) else self.node


class Reaching(NamedTuple):
    """The last binding before a use, None where the function has none. Not
    `is_certain`: another one may be the last that ran. With the loops around the use in
    which the name gets a value; in the first turns of `later` ones, it is the last.
    """

    binding: Binding | None
    is_certain: bool = False
    loops: tuple[ast.AST, ...] = ()
    later: tuple[ast.AST, ...] = ()


Found = Iterator[tuple[str, Binding]]
"""Bindings with their names."""


def _method_calls(node: ast.AST) -> Found:
    """A call of a method for what it does, not for what it gives, as `xs.append(x)`."""
    called = getattr(getattr(node, "value", None), "func", None)
    if isinstance(node, ast.Expr) and isinstance(called, ast.Attribute):
        name = dotted(called.value)
        if name:
            yield name, Binding(called, changes=True)


class Bindings:
    """The bindings of one function. `changes` says what a call changes."""

    def __init__(
        self,
        function: FunctionSyntax,
        changes: Callable[[ast.AST], Found] = _method_calls,
    ) -> None:
        self._function = function
        self._by_name: dict[str, list[Binding]] = {}
        self._before: dict[tuple[str, ast.AST, bool], Reaching] = {}
        for node in function.order:
            for name, binding in (*_bindings(node), *changes(node)):
                scope = self._scope(binding.node)
                found = self._by_name.setdefault(name, [])
                found.append(binding._replace(scope=scope))
        for found in self._by_name.values():
            found.sort(key=lambda one: function.order[one.place])

    def before(self, name: str, use: ast.AST, with_changes: bool = False) -> Reaching:
        """What a name may have at a use; `with_changes`: what it holds matters, too."""
        asked = name, use, with_changes
        if asked not in self._before:
            self._before[asked] = self._read_before(*asked)
        return self._before[asked]

    def _read_before(self, name: str, use: ast.AST, with_changes: bool) -> Reaching:
        around = [parent.node for parent in self._function.outward(use)]
        known = self._known(name, around, use, with_changes)
        order = self._function.order
        earlier = [one for one in known if order[one.place] < order[use]]
        turning = [loop for loop in around if self._gives_anew(loop, known)]
        if not earlier:
            return Reaching(None, False, tuple(turning))
        last = max(earlier, key=lambda one: order[one.place])
        own = self.loops_of(last.node)
        later = tuple(loop for loop in turning if loop not in own)
        if not self._dominates(last, around):
            return Reaching(last, False, tuple(turning))
        return Reaching(last, not later, tuple(turning), later)

    def reaching(self, name: str, use: ast.AST) -> list[Binding | None]:
        """All that may have given a name what it has at a use: the last one first, then
        those of the turn of a loop before, and parameters. None where it may be another.
        """
        function = self._function
        around = [parent.node for parent in function.outward(use)]
        known = self._known(name, around, use, with_changes=True)
        reaching: dict[Binding, None] = {}
        last: Binding | None = None
        for binding in reversed(known):
            if function.may_follow(binding.place, use):
                reaching[binding] = None
                if not binding.changes and function.always_before(binding.place, use):
                    last = binding
                    break

        # the turn of a loop before, where this one gives no other value
        ended = function.blocks(last.place) if last is not None else []
        loops = [block for block in function.blocks(use) if isinstance(block[0], LOOPS)]
        for binding in known if loops else ():
            within = function.blocks(binding.place)
            shared = [loop for loop in loops if loop in within]
            if shared and shared[-1] not in ended:
                reaching.setdefault(binding)

        found = sorted(reaching, key=lambda one: one.is_parameter)
        return [*found] if last is not None else [*found, None]

    def _known(
        self, name: str, around: Sequence[ast.AST], use: ast.AST, with_changes: bool
    ) -> list[Binding]:
        """The bindings of the innermost scope around that knows a name."""
        every = self._by_name.get(name, [])
        if not with_changes:
            every = [one for one in every if not one.changes]
        order = self._function.order
        for scope in around:
            inside = [one for one in every if one.scope is scope]
            # `x` after `in` of `[x for x in x]` is another one
            if any(order[one.node] < order[use] for one in inside):
                return inside
        return [one for one in every if one.scope is None]

    def of(self, name: str) -> list[Binding]:
        """All of one of the function's own names."""
        return [one for one in self._by_name.get(name, ()) if one.scope is None]

    @property
    def names(self) -> list[str]:
        """The names that have any."""
        return list(self._by_name)

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
                return outer if outer is not self._function.root else None
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


def _bindings(node: ast.AST) -> Found:
    """What one node binds."""
    if isinstance(node, ast.arg):
        yield node.arg, Binding(node)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
        yield from _counted(node.target, node.iter)
    else:
        # no expression has what `+=` makes, or what `with` enters
        has_value = not isinstance(node, (ast.AugAssign, ast.withitem))
        for target, value in assignments(node):
            origin = node if isinstance(node, ast.AugAssign) else value
            whole = Binding(target, value if has_value else None, origin=origin)
            yield from _bound(target, whole)


def _counted(target: ast.AST, through: ast.AST) -> Found:
    called = _counter(through)
    for name, binding in _bound(target, Binding(target, origin=through)):
        is_first = called == "enumerate" and binding.element == 0
        yield name, binding._replace(counts=is_first or called in _RANGES)


_RANGES = ("range", "trange")
_SAME = ("iter", "list", "reversed", "sorted", "tqdm", "tuple")
"""What goes through the same as what it is given."""


def _counter(through: ast.AST) -> str:
    """What a loop goes through, as `range`, whatever is around it: `reversed(range(3))`."""
    while isinstance(through, ast.Call):
        function: Any = through.func
        called: str = getattr(function, "id", getattr(function, "attr", ""))
        if called not in _SAME or not through.args:
            return called
        through = through.args[0]
    return ""


def _bound(target: ast.AST, whole: Binding) -> Found:
    """The bindings of the names in a target, which is given what `whole` says."""
    if isinstance(target, (ast.Tuple, ast.List)):
        is_display = isinstance(whole.value, (ast.Tuple, ast.List))
        values: Any = getattr(whole.value, "elts", ()) if is_display else ()
        for i, part in enumerate(target.elts):
            if len(values) == len(target.elts):
                its = whole._replace(value=values[i], origin=values[i])
            else:
                element = i if whole.element is None else whole.element
                its = whole._replace(value=None, element=element)
            yield from _bound(part, its)
    elif isinstance(target, ast.Starred):
        yield from _bound(target.value, whole._replace(value=None))
    elif isinstance(target, ast.Subscript) or is_data(target):
        name = dotted(part_holder(target))
        if name:
            yield name, whole._replace(node=target, value=None, changes=True)
    if dotted(target):
        yield dotted(target), whole._replace(node=target)


def unpacked(binding: Binding) -> ast.expr | None:
    """The whole of which a name is given one of several: `edges` of `a, b = edges`."""
    whole = binding.origin if binding.element is not None else None
    if isinstance(whole, ast.Call) and dotted(whole.func) == "zip":
        whole = next(iter(whole.args[binding.element or 0 :]), None)
    return whole if isinstance(whole, ast.expr) else None


def is_data(node: object) -> bool:
    """Whether an expression is the bare numbers of a tensor: `x.data`."""
    return getattr(node, "attr", "") == "data"


def part_holder(node: Any) -> ast.expr:
    """What holds a part, or the bare numbers, of a tensor: `self.h` of `self.h.data[0]`."""
    while isinstance(node, (ast.Subscript, ast.Starred)) or is_data(node):
        node = node.value
    return node  # type: ignore[no-any-return]


def dotted(node: ast.AST) -> str:
    """`x`, `self.h`; "" for what is no name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
