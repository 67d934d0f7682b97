"""What goes into what a line computes, as the text says it: from line to line of a
function, and out of functions that it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gradviz.source.changes import method_calls
from gradviz.source.search import ADDING, FOLLOWED
from gradviz.source.statements import (
    Body,
    assigned,
    body_around,
    covers,
    names_in,
    names_of,
)

Line = tuple[str, int]
"""File and number."""


_PLAIN = (ast.Name, ast.Attribute, ast.Constant)


def _computing(node: ast.stmt) -> Sequence[ast.AST]:
    """The parts of a statement in which something can run: not `aux` of
    `return net(h), aux`.
    """
    value = getattr(node, "value", None)
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    return [part for part in parts if not isinstance(part, _PLAIN)] or [node]


def feeding(
    line: Line, computed: Collection[Line] = (), term: str = ""
) -> frozenset[Line]:
    """The lines whose result goes into what a line computes, or a term in it, with none
    between them that is `computed`.

    What is put into a container is in it, and what a loop goes over is in its variable.
    """
    file, number = line
    body = body_around(file, number)
    statements = _simple(body, number)
    wanted: set[str] = set()
    if term:
        wanted.update(_read_in(ast.parse(term)))
    for statement in statements if not term else ():
        for part in _computing(statement):
            wanted.update(_read_in(part))

    lines, followed = set[Line](), 0
    for node, _ in reversed(body.statements):
        names, value = _gives(node)
        if value is None or node in statements or wanted.isdisjoint(names):
            continue
        span = _span(file, value if _is_block(node) else node)
        if span.isdisjoint(computed) and followed < FOLLOWED:
            lines |= span
            wanted.update(_read_in(value))
            followed += 1

    return frozenset(lines)


def statement_at(line: Line) -> frozenset[Line]:
    """All lines of the simple statement that a line is in; none where several are."""
    file, number = line
    statements = _simple(body_around(file, number), number)
    if len(statements) > 1:
        return frozenset()
    return frozenset({line}.union(*(_span(file, node) for node in statements)))


def given_at(line: Line) -> set[str]:
    """The plain names that the statement of a line gives a value to."""
    names: set[str] = set()
    for statement in _simple(body_around(*line), line[1]):
        names.update(assigned(statement)[0])
    return names


def _simple(body: Body, number: int) -> list[ast.stmt]:
    """The statements that go over a line and have none inside."""
    nodes = [statement.node for statement in body.statements]
    return [node for node in nodes if covers(node, number) and not _is_block(node)]


def _read_in(node: ast.AST) -> Iterator[str]:
    """The plain and dotted names that a piece of code reads."""
    into = getattr(node, "target", None) if isinstance(node, ast.AugAssign) else None
    for part in ast.walk(node):
        if not isinstance(part, (ast.Name, ast.Attribute)):
            continue
        if isinstance(part.ctx, ast.Load) or part is into:
            yield ast.unparse(part)


def _is_block(node: ast.stmt) -> bool:
    return hasattr(node, "body")


def _span(file: str, node: Any) -> set[Line]:
    last = node.end_lineno or node.lineno
    return {(file, number) for number in range(node.lineno, last + 1)}


def _gives(
    node: ast.stmt,
) -> tuple[Sequence[str], ast.expr | None]:
    """The plain names that a statement gives a value to, or puts one into, and the
    expression that they get it from.
    """
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return tuple(names_in(node.target)), node.iter
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    if isinstance(node, ast.Assign) and isinstance(target, ast.Subscript):
        return tuple(names_of(target.value)), node.value
    for call, method in method_calls(node):
        if method.attr in ADDING and isinstance(node, ast.Expr):
            return tuple(names_of(method.value)), call
    return assigned(node)
