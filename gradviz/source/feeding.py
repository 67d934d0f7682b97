"""What goes into what a line computes, as the text says it: from line to line of a
function, and out of functions that it calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from gradviz.graph import SourceLine
from gradviz.source.statements import (
    Body,
    assigned,
    body_around,
    covers,
    method_calls,
    names_of,
    reads,
)

Line = tuple[str, int]
"""File and number."""
ADDING = ("add", "append", "appendleft", "extend", "insert", "setdefault", "update")
_PLAIN = (ast.Name, ast.Attribute, ast.Constant)


def feeding(
    line: Line, computed: Collection[Line] = (), term: str = ""
) -> frozenset[Line]:
    """The lines whose result goes into what a line computes, or a term in it, with none
    between them that is `computed`.

    What is put into a container is in it, and what a loop goes over is in its variable.
    """
    lines = (lines for _, lines in _followed(line, computed, term))
    return frozenset().union(*lines)


def lines_behind(source: SourceLine | None) -> list[SourceLine]:
    """The lines of the same function that give a value to what a line reads, and to
    what those read in turn: the nearest first.
    """
    if source is None:
        return []
    followed = _followed((source.file, source.line), (), "")
    return [line for line, _ in followed]


def _followed(
    line: Line,
    computed: Collection[Line],
    term: str,
) -> Iterator[tuple[SourceLine, set[Line]]]:
    """The statements that give a value to what a line reads, and to what those read:
    where each begins, and all its lines.
    """
    file, number = line
    body = body_around(file, number)
    statements = _simple(body, number)
    parts: list[ast.AST] = [ast.parse(term)] if term else []
    for statement in [] if term else statements:
        parts += _computing(statement)

    wanted = {name for part in parts for name in reads(part)}
    for node in reversed(body.statements):
        names, value = _gives(node)
        if value is None or node in statements or wanted.isdisjoint(names):
            continue
        # of a loop only its head: the rest has lines of its own
        span = _span(file, value if _is_block(node) else node)
        if span.isdisjoint(computed):
            wanted.update(reads(value))
            yield body.source(node), span


def statement_at(line: Line) -> frozenset[Line]:
    """All lines of the simple statement that a line is in; none where several are."""
    file, number = line
    statements = _simple(body_around(file, number), number)
    if len(statements) > 1:
        return frozenset()
    return frozenset({line}.union(*(_span(file, node) for node in statements)))


def _simple(body: Body, number: int) -> list[ast.stmt]:
    """The statements that go over a line and have none inside."""
    nodes = [node for node in body.statements if covers(node, number)]
    return [node for node in nodes if not _is_block(node)]


def _computing(node: ast.stmt) -> Sequence[ast.AST]:
    """The parts of a statement in which something can run: not `aux` of
    `return net(h), aux`.
    """
    value = getattr(node, "value", None)
    parts = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
    return [part for part in parts if not isinstance(part, _PLAIN)] or [node]


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
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return list(names_of(node.targets[0].value)), node.value
    for call, method in method_calls(node) if isinstance(node, ast.Expr) else ():
        if method.attr in ADDING:
            return list(names_of(method.value)), call
    return assigned(node)
