"""How a tensor without a graph came about: follows assignments in the user's code upwards, and asks the live variables.

The code says what was written, the variables say which tensors still have a graph. Where both agree, the place where the
chain broke is known; otherwise what is found is likely only, and says so. Runs nothing of the user's: no property, no call.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator, Sequence
from inspect import unwrap
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch

from gradviz.graph import SourceLine
from gradviz.packages import is_foundation
from gradviz.recording.cuts import DetachKind
from gradviz.source.search import CodeLocation, switch_around
from gradviz.source.statements import Body, Statement, assigned, body_of, covers, method_calls, names_of, text_of
from gradviz.variables.objects import class_attribute, own_attributes, parameters
from gradviz.variables.scanner import Namespace, value_of
from gradviz.walker.isolation import isolated


class DetachPoint(NamedTuple):
    """A place in the user's code where a graph is dropped. `of` is the expression that loses it, as the code spells it.

    `alive` when the variable in it still has a graph now, which makes this the place where the graph ends.
    """

    kind: DetachKind
    source: SourceLine
    of: str
    alive: bool = False
    inside: str = ""  # the function or module that the line belongs to, when it is not where the output was made
    operation: str = ""  # the function of torch that was called
    at: int = 0  # the sequence number that the next node would have got
    leaf: tuple[str, ...] = ()  # names of the leaf that was cut off, when it was one
    off: SourceLine | None = None  # the block or decorator that had switched recording off
    behind: frozenset[str] = frozenset()  # names of the leaves that its graph led to, as far as they were looked for
    chosen: bool = False  # what it gave was used to choose, as an index or a draw, and not as a value


class Provenance(NamedTuple):
    """How an output came about, as far as the code and the variables tell: cuts, the last one first."""

    cuts: tuple[DetachPoint, ...] = ()
    made: SourceLine | None = None  # the line that made the output
    plain: tuple[str, ...] = ()  # tensors that it was computed from and that do not require grad


MAX_CUTS, MAX_NAMES, MAX_DEPTH = 6, 40, 3
_METHODS: dict[str, DetachKind] = {
    **dict.fromkeys(("detach", "detach_"), "detach"),
    **dict.fromkeys(("item", "tolist"), "number"),
    "numpy": "numpy",
    **dict.fromkeys(("argmax", "argmin", "argsort", "long", "int", "bool", "byte", "short"), "integer"),
}
_VALUES = (torch.Tensor, int, float, list, tuple, dict)
_MAKERS: dict[str, DetachKind] = {
    **dict.fromkeys(("tensor", "Tensor", "FloatTensor", "DoubleTensor", "LongTensor"), "new"),
    "from_numpy": "numpy",
}
_INTEGERS = {"long", "int", "int8", "int16", "int32", "int64", "uint8", "bool", "short"}


def provenance(location: CodeLocation, name: str, *, whole: bool = False) -> Provenance:
    """How the value of the variable `name`, or of the expression that backward is called on, came about.

    Follows what has no graph; with `whole` what has one, too, for cuts beside the part that has.
    """
    return _Tracer(location, whole).trace(name)


# -- tracing -----------------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A part of an expression: a cut with what is under it, or a plain name (`kind` is "")."""

    kind: DetachKind | str
    node: ast.expr
    under: ast.expr


class _Tracer:
    def __init__(self, location: CodeLocation, whole: bool) -> None:
        self._spot = location
        self._whole = whole
        self._cuts: list[DetachPoint] = []
        self._plain: list[str] = []
        self._made: SourceLine | None = None
        self._root = ""
        self._seen: set[str] = set()
        self._waiting: deque[tuple[str, int | None]] = deque()

    def trace(self, name: str) -> Provenance:
        start = self._start(name)
        if start is not None:
            statement, expression = start
            self._made = self._spot.body.source(statement.node)
            self._expression(expression, statement)
        while self._waiting and len(self._seen) < MAX_NAMES:
            self._follow(*self._waiting.popleft())
        return Provenance(tuple(self._ranked())[:MAX_CUTS], self._made, tuple(self._plain))

    def _start(self, name: str) -> tuple[Statement, ast.expr] | None:
        """The expression that backward is called on, when no variable holds it. Else the name is put on the list."""
        first = name.split("[")[0].split("(")[0].split(".")[0]
        if any(first in space for space in self._spot.variables) or (first.isidentifier() and first != "output"):
            self._root = first  # what it was computed from is asked, and that is not itself
            self._waiting.append((first, self._spot.line))
            return None
        for statement in self._spot.body.statements:
            for call, called in method_calls(statement.node):
                if called.attr == "backward" and covers(call, self._spot.line or 0):
                    return statement, called.value
        return None

    def _ranked(self) -> list[DetachPoint]:
        """Places that are proven first, each line once; in the order that the provenance met them otherwise."""
        once: dict[tuple[SourceLine, str], DetachPoint] = {}
        for cut in self._cuts:
            once.setdefault((cut.source, cut.kind), cut)
        return sorted(once.values(), key=lambda cut: bool(cut.inside))

    def _follow(self, name: str, before: int | None) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        statement = self._assignment(name, before)
        if statement is None:
            self._note_plain(name)
            return
        if self._made is None:
            self._made = self._spot.body.source(statement.node)
        value = assigned(statement.node)[1]
        before_it = len(self._waiting), len(self._cuts)
        if value is not None:
            self._expression(value, statement)
        if before_it == (len(self._waiting), len(self._cuts)):
            self._note_plain(name)  # it was created, not computed

    def _assignment(self, name: str, before: int | None) -> Statement | None:
        """The last assignment to a name above a line; in a loop it may stand below."""
        assignments = [statement for statement in self._spot.body.statements if name in assigned(statement.node)[0]]
        above = [statement for statement in assignments if before is None or statement.node.lineno < before]
        return above[-1] if above else assignments[-1] if assignments else None

    def _expression(self, expression: ast.expr, statement: Statement) -> None:
        for piece in _pieces(expression):
            alive = bool(piece.kind) and self._alive(piece.under)
            if piece.kind:
                self._add(piece.kind, self._spot.body, piece.node, piece.under, alive)
            if not alive:
                self._wait_for(piece.under, statement)
        if statement.off:
            self._add(statement.off, self._spot.body, statement.node, expression, self._alive(expression))
        for call in ast.walk(expression):
            if isinstance(call, ast.Call):
                self._inside(_value(call.func, self._spot.variables), MAX_DEPTH)

    def _wait_for(self, expression: ast.expr, statement: Statement) -> None:
        for name in names_of(expression):
            value = value_of(name, self._spot.variables)
            followed = self._whole or not _has_graph(value)
            if followed and (value is None or issubclass(type(value), _VALUES)):
                self._waiting.append((name, statement.node.lineno))

    def _note_plain(self, name: str) -> None:
        value = value_of(name, self._spot.variables)
        if name != self._root and issubclass(type(value), torch.Tensor) and not _has_graph(value):
            self._plain.append(name)

    def _add(self, kind: Any, body: Body, node: ast.AST, under: ast.expr, alive: bool, inside: str = "") -> None:
        source = body.source(node)
        off = switch_around(source.file, source.line) if kind in ("no_grad", "inference") else None
        self._cuts.append(DetachPoint(kind, source, text_of(under, 40), alive, inside, off=off))

    def _alive(self, expression: ast.expr) -> bool:
        return any(
            _has_graph(_value(node, self._spot.variables))
            for node in ast.walk(expression)
            if isinstance(node, (ast.Name, ast.Attribute))
        )

    # -- functions of the user's that the value went through ----------------------------------------------------------

    def _inside(self, called: Any, depth: int) -> None:
        code, name, spaces = _code(called)
        key = f"{name}:{code.co_firstlineno}" if code is not None else ""
        if code is None or is_foundation(code.co_filename) or key in self._seen or not depth:
            return
        self._seen.add(key)
        body = body_of(code)
        if body is None:
            return
        for statement, expression in _flow(body):
            for piece in _pieces(expression):
                if piece.kind and piece.kind != "integer":
                    self._add(piece.kind, body, piece.node, piece.under, False, name)
            if statement is not None and statement.off:
                self._add(statement.off, body, statement.node, expression, False, name)
            for call in ast.walk(expression):
                if isinstance(call, ast.Call):
                    self._inside(_value(call.func, spaces), depth - 1)


def _flow(body: Body) -> Iterator[tuple[Statement | None, ast.expr]]:
    """The expressions that lead to what a function returns, with their statements."""
    wanted: set[str] = set()
    for statement in reversed(body.statements):
        node = statement.node
        targets, value = assigned(node)
        if isinstance(node, ast.Return):
            value = node.value
        elif not wanted.intersection(targets):
            continue
        if value is not None:
            wanted.update(names_of(value))
            yield statement, value


def _code(called: Any) -> tuple[CodeType | None, str, Sequence[Namespace]]:
    """The code that runs when this is called, a name for it, and where its names are looked up."""
    if issubclass(type(called), torch.nn.Module):
        forward = class_attribute(type(called), "forward")
        code = getattr(unwrap(forward), "__code__", None) if type(forward) is FunctionType else None
        return code, f"{type(called).__name__}.forward", ({"self": called}, getattr(forward, "__globals__", {}))
    if type(called) is MethodType:
        called = called.__func__
    if type(called) is not FunctionType:
        return None, "", ()
    inner = unwrap(called)
    return getattr(inner, "__code__", None), called.__qualname__, (getattr(inner, "__globals__", {}),)


# -- expressions -------------------------------------------------------------------------------------------------------


def _pieces(expression: ast.expr) -> Iterator[_Piece]:
    """The innermost cuts of an expression, and the names that reach its value without one."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        kind, under = _cut(node)
        if kind and under is not None:
            inner = [piece for piece in _pieces(under) if piece.kind]
            yield from inner or [_Piece(kind, node, under)]
        elif isinstance(node, ast.Name):
            yield _Piece("", node, node)
        elif isinstance(node, ast.IfExp):
            waiting += [node.orelse, node.body]
        elif not isinstance(node, (ast.Lambda, ast.Constant)):
            waiting += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)][::-1]
            if isinstance(node, ast.Call):
                waiting += [keyword.value for keyword in node.keywords]


def _cut(node: ast.expr) -> tuple[DetachKind | str, ast.expr | None]:
    """How this expression drops a graph and what loses it; ("", None) when it does not."""
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return "data", node.value
    if isinstance(node, ast.Compare):
        return "integer", node.left
    if not isinstance(node, ast.Call):
        return "", None
    first = node.args[0] if node.args else None
    if isinstance(node.func, ast.Name):
        return ("number", first) if node.func.id in ("float", "int") else ("", None)
    if not isinstance(node.func, ast.Attribute):
        return "", None
    owner, method = node.func.value, node.func.attr
    library = owner.id if isinstance(owner, ast.Name) else ""
    if library in ("np", "numpy"):
        return "numpy", first
    if library == "torch":
        return _MAKERS.get(method, _METHODS.get(method, "")), first
    if method in ("to", "type") and any(getattr(argument, "attr", "") in _INTEGERS for argument in node.args):
        return "integer", owner
    return _METHODS.get(method, ""), owner


def _value(expression: ast.expr, variables: Sequence[Namespace]) -> Any:
    """The live value of a name or dotted name; None when unknown. Runs no property."""
    parts: list[str] = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    if not isinstance(expression, ast.Name):
        return None
    value = value_of(expression.id, variables)
    for part in reversed(parts):
        value = _attribute(value, part)
    return value


def _attribute(value: Any, part: str) -> Any:
    own = own_attributes(value)
    for table in (own, own.get("_modules"), own.get("_parameters"), own.get("_buffers")):
        if isinstance(table, dict) and part in table:
            return table[part]
    defined = class_attribute(type(value), part)
    return defined if isinstance(defined, FunctionType) else None


def _has_graph(value: Any) -> bool:
    """Whether a value is a tensor that requires grad, or a module that could give it a graph."""
    if issubclass(type(value), torch.Tensor):
        with isolated():
            return bool(value.requires_grad)
    if issubclass(type(value), torch.nn.Module):
        return any(parameter.requires_grad for parameter in parameters(value))
    return False
